"""What a byte-level BPE tokenizer is, whichever file it was read from.

Readers of files produce a `TokenizerSpec`; `Tokenizer` runs it. A reader checks everything that could be wrong
with a file, so that a spec is sound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyruntime.text.bpe import MergeTable


@dataclass(frozen=True)
class AddedToken:
    """A token that stands beside the vocabulary and is recognised whole in text that may hold control tokens.

    Attributes:
        text: what it is recognised by.
        id: its id.
        special: True for a mark that decodes to nothing, False for one that decodes to its text.
    """

    text: str
    id: int
    special: bool


@dataclass(frozen=True)
class TokenizerSpec:
    """A byte-level BPE tokenizer.

    Attributes:
        tokens: by id, in the byte alphabet (added tokens as they are); None where an id stands for nothing.
        vocab: token to id, without the added tokens: what text can become.
        merges: the merge table over `vocab`.
        added: the added tokens.
        nfc: text is put into NFC first.
        splits: patterns; each cuts every piece into its matches and what lies between them.
        ignore_merges: a piece that is in the vocabulary as a whole is taken whole.
        special_ids: "bos_token", "eos_token", … to id, as the file declares them.
        add_bos: whether the model expects a begin token that its template does not write.
    """

    tokens: Sequence[str | None]
    vocab: Mapping[str, int]
    merges: MergeTable
    added: tuple[AddedToken, ...]
    nfc: bool
    splits: tuple[str, ...]
    ignore_merges: bool
    special_ids: Mapping[str, int]
    add_bos: bool
