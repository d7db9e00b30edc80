"""The tokenizer: text to ids and back, id for id as the reference does it.

- Nothing touches the text but what the model's own file says. The one exception: half a surrogate pair, which no
  file could hold, becomes U+FFFD.
- `encode` is for text from outside: it never gives the id of an added token, whatever the text spells.
  `encode_with_control` recognises added tokens and is for text that a template wrote.
- No begin token is added; `add_bos` says whether the model wants one that its template does not write.
- It does not know how a file says what a tokenizer is (readers make a `TokenizerSpec`), nor templates or models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import BytesSource, FileSource, run_without_waiting
from pyruntime.text.bpe import merge
from pyruntime.text.byte_alphabet import CHARACTERS, to_alphabet, to_bytes
from pyruntime.text.gguf_reader import spec_from_gguf
from pyruntime.text.normalize import nfc, replace_lone_surrogates
from pyruntime.text.pre_tokenize import split
from pyruntime.text.spec import TokenizerSpec
from pyruntime.text.stream import StreamDecoder

_CACHED_PIECES = 32_768
_CACHED_PIECE_LENGTH = 64
# What templates know by these names, as transformers passes them.
_TEMPLATE_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "mask_token")


class Tokenizer:
    """A byte-level BPE tokenizer.

    Attributes:
        vocab_size: number of ids, those that stand for nothing included.
        control_ids: text to id of every added token.
        special_ids: "bos_token", "eos_token", … to id, as the file declares them.
        special_tokens: "bos_token", "eos_token", … to text, for templates.
        bos_id, eos_id: ids, or None when the file declares none.
        add_bos: whether the model expects a begin token that its template does not write.
    """

    def __init__(self, spec: TokenizerSpec) -> None:
        self._spec = spec
        self.vocab_size = len(spec.tokens)
        self.control_ids: Mapping[str, int] = MappingProxyType({token.text: token.id for token in spec.added})
        self.special_ids: Mapping[str, int] = MappingProxyType(dict(spec.special_ids))
        named = {name: spec.tokens[self.special_ids[name]] for name in _TEMPLATE_TOKENS if name in self.special_ids}
        self.special_tokens: Mapping[str, str] = MappingProxyType({name: text for name, text in named.items() if text})
        self.bos_id, self.eos_id = self.special_ids.get("bos_token"), self.special_ids.get("eos_token")
        self.add_bos = spec.add_bos
        self._special = frozenset(token.id for token in spec.added if token.special)
        self._byte_ids = [spec.vocab.get(character, -1) for character in CHARACTERS]
        self._missing_bytes = bytes(byte for byte, token_id in enumerate(self._byte_ids) if token_id < 0)
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def from_gguf(cls, source: str | os.PathLike[str] | bytes | memoryview) -> Tokenizer:
        """The tokenizer of a GGUF file, from its path or its bytes.

        Raises:
            FormatError: the file or its tokenizer is not sound; names the file and the field.
            UnsupportedError: the file or its tokenizer needs something that is not supported.
        """
        bytes_of = BytesSource(source) if isinstance(source, bytes | memoryview) else FileSource(source)
        file = run_without_waiting(read_gguf(bytes_of))
        return cls.from_metadata(file.metadata, file.name)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], name: str) -> Tokenizer:
        """The tokenizer in the metadata of the GGUF file called `name`. Raises as `from_gguf`."""
        return cls(spec_from_gguf(metadata, name))

    def encode(self, text: str) -> list[int]:
        """The ids of text from outside. No added token is recognised, however the text is spelled."""
        return self._encode_plain(replace_lone_surrogates(text))

    def encode_with_control(self, text: str) -> list[int]:
        """The ids of text in which added tokens are recognised: the leftmost first, the longest of those."""
        text = replace_lone_surrogates(text)
        if not self.control_ids:
            return self._encode_plain(text)
        ids: list[int] = []
        # The pattern is one group, so what it matched stands between what it did not.
        for index, part in enumerate(self._added_pattern.split(text)):
            if index % 2:
                ids.append(self.control_ids[part])
            elif part:
                ids += self._encode_plain(part)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens and ids that stand for nothing give none."""
        stream = self.stream()
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self) -> StreamDecoder:
        """A decoder for one answer."""
        return StreamDecoder(self.token_bytes)

    def token_bytes(self, token_id: int) -> bytes | None:
        """What `token_id` adds to a text: None for a special token, b"" for an id that stands for nothing."""
        if token_id in self._special:
            return None
        token = self._spec.tokens[token_id] if 0 <= token_id < self.vocab_size else None
        return b"" if token is None else to_bytes(token)

    def is_special(self, token_id: int) -> bool:
        """Whether `token_id` is a mark that prints nothing."""
        return token_id in self._special

    def dropped_bytes(self, text: str) -> int:
        """How many bytes of `text` have no token in this vocabulary. The reference leaves them out without a word."""
        if not self._missing_bytes:
            return 0
        return sum(
            len(data) - len(data.translate(None, self._missing_bytes))
            for data in (piece.encode() for piece in self._pieces(replace_lone_surrogates(text)))
            if not self._is_whole(data)
        )

    @cached_property
    def _added_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.control_ids, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first))})")

    def _pieces(self, text: str) -> list[str]:
        return split(nfc(text) if self._spec.nfc else text, self._spec.splits)

    def _encode_plain(self, text: str) -> list[int]:
        ids: list[int] = []
        cached = self._cache.get
        for piece in self._pieces(text):
            ids += cached(piece) or self._encode_piece(piece)
        return ids

    def _encode_piece(self, piece: str) -> list[int]:
        data = piece.encode()
        if self._is_whole(data):
            ids = [self._spec.vocab[to_alphabet(data)]]
        else:
            byte_ids = self._byte_ids
            if self._missing_bytes:
                data = data.translate(None, self._missing_bytes)
            ids = merge([byte_ids[byte] for byte in data], self._spec.merges)
        if len(piece) <= _CACHED_PIECE_LENGTH:
            if len(self._cache) >= _CACHED_PIECES:
                self._cache.clear()
            self._cache[piece] = ids
        return ids

    def _is_whole(self, data: bytes) -> bool:
        return self._spec.ignore_merges and to_alphabet(data) in self._spec.vocab
