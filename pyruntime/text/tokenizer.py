"""The tokenizer: text to ids and back, id for id as the reference does it.

- Nothing touches the text but what the model's own file says. The one exception: half a surrogate pair, which no
  file could hold, becomes U+FFFD.
- `encode` is for text from outside: it never gives the id of a control token, whatever the text spells. Added tokens
  that are text, runs of white space and single characters, are text there too.
  `encode_with_control` recognises every added token and is for text that a template wrote.
- No begin token is added: templates write it. `add_bos` says whether texts without a template must begin with one.
- It does not know how a file says what a tokenizer is (readers make a `TokenizerSpec`), nor templates or models.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import BytesSource, FileSource, run_without_waiting
from pyruntime.text.added_tokens import AddedTokens
from pyruntime.text.gguf_reader import spec_from_gguf
from pyruntime.text.normalize import normalize, replace_lone_surrogates
from pyruntime.text.piece_encoder import PieceEncoder
from pyruntime.text.pre_tokenize import split
from pyruntime.text.spec import TokenizerSpec
from pyruntime.text.stream import StreamDecoder
from pyruntime.text.tables import read_tables
from pyruntime.text.tokenizer_config import TokenizerConfig
from pyruntime.text.tokenizer_json import spec_from_tokenizer_json

_CACHED_PIECES = 32_768
_CACHED_PIECE_LENGTH = 64
# What templates know by these names, as transformers passes them.
_TEMPLATE_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "mask_token")
_FALLBACK_BYTE = re.compile(rb"<0x([0-9A-Fa-f]{2}|\+[0-9A-Fa-f])>")  # what the reference's number parser reads

Source = str | os.PathLike[str] | bytes | memoryview


class Tokenizer:
    """A BPE tokenizer.

    Attributes:
        vocab_size: number of ids, those that stand for nothing included.
        control_ids: text to id of every added token.
        special_ids: "bos_token", "eos_token", … to id, as the file declares them.
        special_tokens: "bos_token", "eos_token", … to text, for templates.
        bos_id, eos_id: ids, or None when the file declares none.
        add_bos: whether the model expects `bos_id` before a text that no template wrote.
        prefix_ids, suffix_ids: what the file's post-processor puts around a text. It is never added here.
    """

    def __init__(self, spec: TokenizerSpec, config: TokenizerConfig | None = None) -> None:
        self._spec = spec
        self._tokens = spec.vocabulary.tokens
        self.vocab_size = len(self._tokens)
        self.control_ids: Mapping[str, int] = MappingProxyType({token.text: token.id for token in spec.added})
        self.special_ids, self.special_tokens = self._special(config)
        self.bos_id, self.eos_id = self.special_ids.get("bos_token"), self.special_ids.get("eos_token")
        wanted = config.add_bos_token if config else None
        self.add_bos = spec.add_bos if wanted is None else wanted
        self.prefix_ids, self.suffix_ids = spec.prefix_ids, spec.suffix_ids
        self._special_ids = frozenset(token.id for token in spec.added if token.special)
        self._added = AddedTokens(spec.added, self._normalize)
        self._text_like = AddedTokens([token for token in spec.added if token.is_text], self._normalize)
        self._encoder = PieceEncoder(spec)
        self._cache: dict[str, list[int]] = {}

    @classmethod
    def from_gguf(cls, source: Source) -> Tokenizer:
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

    @classmethod
    def from_tokenizer_json(cls, source: Source, config: TokenizerConfig | None = None) -> Tokenizer:
        """The tokenizer of a tokenizer.json, from its path or its bytes.

        Args:
            source: the file.
            config: the tokenizer_config.json beside it, which names the special tokens.

        Raises:
            FormatError: the file is not sound; names the file and the place in it.
            UnsupportedError: it needs something that is not supported.
            OSError: it cannot be read.
        """
        if isinstance(source, bytes | memoryview):
            return cls(spec_from_tokenizer_json(bytes(source), "tokenizer.json"), config)
        path = Path(source)
        return cls(spec_from_tokenizer_json(path.read_bytes(), path.name), config)

    @classmethod
    def from_tables(
        cls, data: bytes | memoryview, source_sha256: str, config: TokenizerConfig | None = None
    ) -> Tokenizer:
        """The tokenizer in compiled tables.

        Args:
            data: the tables.
            source_sha256: hash of the file that they must have been made from.
            config: the tokenizer_config.json beside that file.

        Raises:
            TablesError: they are damaged, or of another file or version; make them anew from the file.
        """
        return cls(read_tables(data, source_sha256), config)

    @property
    def spec(self) -> TokenizerSpec:
        """What this tokenizer is."""
        return self._spec

    def encode(self, text: str) -> list[int]:
        """The ids of text from outside. No control token is recognised, however the text is spelled."""
        return self._encode(text, self._text_like)

    def encode_with_control(self, text: str) -> list[int]:
        """The ids of text in which added tokens are recognised: the leftmost first, the longest of those."""
        return self._encode(text, self._added)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens and ids that stand for nothing give none."""
        stream = self.stream()
        return "".join(map(stream.push, ids)) + stream.flush()

    def stream(self) -> StreamDecoder:
        """A decoder for one answer."""
        decoding = self._spec.decoding
        fallback = self._is_fallback_byte if decoding.byte_fallback else None
        return StreamDecoder(self.token_bytes, fallback, decoding.strip_start)

    def token_bytes(self, token_id: int) -> bytes | None:
        """What `token_id` adds to a text: None for a special token, b"" for an id that stands for nothing."""
        if token_id in self._special_ids:
            return None
        token = self._printed(token_id)
        if self._spec.decoding.byte_fallback and (match := _FALLBACK_BYTE.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token

    def is_special(self, token_id: int) -> bool:
        """Whether `token_id` is a mark that prints nothing."""
        return token_id in self._special_ids

    def dropped_bytes(self, text: str) -> int:
        """How many bytes of `text` have no token in this vocabulary. The reference leaves them out without a word."""
        parts = self._text_like.parts(replace_lone_surrogates(text))
        pieces = (piece for part in parts if isinstance(part, str) for piece in self._pieces(part))
        return sum(map(self._encoder.dropped, pieces))

    def _special(self, config: TokenizerConfig | None) -> tuple[Mapping[str, int], Mapping[str, str]]:
        """The special tokens' ids and texts, as the configuration names them, or else the file itself."""
        if config is None:
            tokens = {name: self._tokens[token_id] for name, token_id in self._spec.special_ids.items()}
            texts = {name: tokens[name] for name in _TEMPLATE_TOKENS if tokens.get(name)}
            named = {name: token.decode(errors="replace") for name, token in texts.items() if token}
            return MappingProxyType(dict(self._spec.special_ids)), MappingProxyType(named)
        ids: dict[str, int] = {}
        for name, text in config.special_tokens.items():
            found = self.control_ids.get(text, self._spec.vocabulary.ids.get(text.encode()))
            if found is not None:
                ids[name] = found
        return MappingProxyType(ids), MappingProxyType(dict(config.special_tokens))

    def _printed(self, token_id: int) -> bytes:
        """What an id's token is for the decoder; b"" for an id that stands for nothing."""
        token = self._tokens[token_id] if 0 <= token_id < self.vocab_size else None
        if token is None or not self._spec.decoding.replace:
            return token or b""
        text = token.decode()
        for old, new in self._spec.decoding.replace:
            text = text.replace(old, new)
        return text.encode()

    def _is_fallback_byte(self, token_id: int) -> bool:
        return bool(_FALLBACK_BYTE.fullmatch(self._printed(token_id)))

    def _normalize(self, text: str) -> str:
        return normalize(text, self._spec.normalizer)

    def _pieces(self, normalised: str) -> list[str]:
        return split(normalised, self._spec.pre_tokenizer)

    def _encode(self, text: str, added: AddedTokens) -> list[int]:
        ids: list[int] = []
        cached = self._cache.get
        for part in added.parts(replace_lone_surrogates(text)):
            if isinstance(part, int):
                ids.append(part)
                continue
            for piece in self._pieces(part):
                ids += cached(piece) or self._encode_piece(piece)
        return ids

    def _encode_piece(self, piece: str) -> list[int]:
        ids = self._encoder.encode(piece)
        if len(piece) <= _CACHED_PIECE_LENGTH:
            if len(self._cache) >= _CACHED_PIECES:
                self._cache.clear()
            self._cache[piece] = ids
        return ids
