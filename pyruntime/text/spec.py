"""What a BPE tokenizer is, whichever file it was read from.

Readers of files produce a `TokenizerSpec`; `Tokenizer` runs it. A reader checks everything that could be wrong
with a file, so that a spec is sound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from pyruntime.text import normalize, pre_tokenize
from pyruntime.text.bpe import MergeTable


@dataclass(frozen=True)
class AddedToken:
    """A token that stands beside the vocabulary and is recognised whole in text that may hold control tokens.

    Attributes:
        text: what it is recognised by.
        id: its id.
        special: True for a mark that decodes to nothing, False for one that decodes to its text.
        single_word: it counts only where no letter, digit, mark or connector touches it.
        lstrip, rstrip: it takes the white space before or behind it along.
        normalized: it is looked for in the normalised text, by its own normalised text.
    """

    text: str
    id: int
    special: bool
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False

    @property
    def is_text(self) -> bool:
        """Whether it is no mark but text: a single character or a run of white space that got a token of its own."""
        return len(self.text) == 1 or self.text.isspace()


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model.

    Attributes:
        tokens: by id, the bytes that a token stands for; None where an id stands for nothing.
        unreachable: ids that text cannot become: the added tokens, except those that are text, and what is not
            written in the byte alphabet where the others are.
    """

    tokens: Sequence[bytes | None]
    unreachable: AbstractSet[int] = frozenset()

    @cached_property
    def ids(self) -> Mapping[bytes, int]:
        """The bytes of each token that text can become, and its id."""
        # Made when it is first asked for: that takes as long as all that is made while a tokenizer is loaded.
        reachable = list(self.tokens)
        for token_id in self.unreachable:
            reachable[token_id] = None
        found: dict[bytes | None, int] = dict(zip(reachable, range(len(reachable)), strict=True))
        return {token: token_id for token, token_id in found.items() if token is not None}


def find_mixed(tokens: Sequence[bytes | None]) -> list[bytes]:
    """The tokens that begin or end inside a character and go beyond it."""
    return [token for token in tokens if token is not None and _is_mixed(token)]


def _is_mixed(token: bytes) -> bool:
    if token.isascii():
        return False
    try:
        token.decode()
    except UnicodeDecodeError:
        return any(byte & 0xC0 != 0x80 for byte in token[1:])
    return False


@dataclass(frozen=True)
class Decoding:
    """How tokens become text; the defaults are those of byte-level tokenizers.

    Attributes:
        replace: pairs of texts; in every token, the first becomes the second.
        byte_fallback: tokens such as <0x0A> stand for a byte.
        strip_start: a character, and how many of it are taken away at the start of the whole text.
    """

    replace: tuple[tuple[str, str], ...] = ()
    byte_fallback: bool = False
    strip_start: tuple[str, int] = ("", 0)


@dataclass(frozen=True)
class TokenizerSpec:
    """A BPE tokenizer.

    Attributes:
        vocabulary: the tokens.
        merges: the merge table over `vocabulary.ids`.
        added: the added tokens.
        normalizer: steps that change text first.
        pre_tokenizer: steps that cut it into pieces.
        byte_level: a piece's bytes are what is merged; otherwise its characters.
        ignore_merges: a piece that is in the vocabulary as a whole is taken whole.
        unknown_id: what a character without a token becomes; None: nothing.
        fuse_unknown: of several unknown characters in a row only one is counted.
        fallback_ids: the ids of <0x00> … <0xFF>, -1 where missing, which a character without a token becomes; ()
            where there is no such thing.
        decoding: how ids become text.
        special_ids: "bos_token", "eos_token", … to id, as the file declares them.
        prefix_ids, suffix_ids: what the file's post-processor puts around a text.
        add_bos: whether the model expects a begin token before a text that no template wrote.
        mixed: `find_mixed` of the vocabulary, where it is known already.
    """

    vocabulary: Vocabulary
    merges: MergeTable
    added: tuple[AddedToken, ...]
    normalizer: tuple[normalize.Step, ...] = ()
    pre_tokenizer: tuple[pre_tokenize.Step, ...] = ()
    byte_level: bool = True
    ignore_merges: bool = False
    unknown_id: int | None = None
    fuse_unknown: bool = False
    fallback_ids: tuple[int, ...] = ()
    decoding: Decoding = Decoding()
    special_ids: Mapping[str, int] = field(default_factory=dict)
    prefix_ids: tuple[int, ...] = ()
    suffix_ids: tuple[int, ...] = ()
    add_bos: bool = False
    mixed: Sequence[bytes] | None = None
