"""A tokenizer from the metadata of a GGUF file.

`tokenizer.ggml.pre` is only a name; what it stands for is the closed list `PRE_TOKENIZERS`, and a name that is
not there is refused. The patterns are the facts of the models' own tokenizer files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pyruntime.errors import FormatError, UnsupportedError, shorten
from pyruntime.formats.string_array import StringArray
from pyruntime.text.bpe import MergeError, resolve_merges
from pyruntime.text.byte_alphabet import all_to_bytes
from pyruntime.text.json_steps import DIGITS, GPT2_SPLIT
from pyruntime.text.normalize import Form
from pyruntime.text.pre_tokenize import Split
from pyruntime.text.spec import AddedToken, TokenizerSpec, Vocabulary

_QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _PreTokenizer(NamedTuple):
    """What a name in `tokenizer.ggml.pre` stands for; the fields are those of `TokenizerSpec`."""

    pre_tokenizer: tuple[Split, ...]
    normalizer: tuple[Form, ...] = ()
    ignore_merges: bool = False
    add_bos: bool = False


PRE_TOKENIZERS: dict[str, _PreTokenizer] = {
    "gpt-2": _PreTokenizer((Split(GPT2_SPLIT),)),
    "smollm": _PreTokenizer((Split(DIGITS), Split(GPT2_SPLIT))),  # each digit alone, then as GPT-2
    "qwen2": _PreTokenizer((Split(_QWEN2_SPLIT),), normalizer=(Form("NFC"),)),
    "llama-bpe": _PreTokenizer((Split(_LLAMA3_SPLIT),), ignore_merges=True, add_bos=True),
}

MAX_ADDED_TOKENS = 16_384  # real files have tens, some a few thousand; looking for them all must stay quick

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED = 1, 2, 3, 4, 5
_SPECIAL_IDS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "eot_token": "eot_token_id",
    "eom_token": "eom_token_id",
    "unk_token": "unknown_token_id",
    "sep_token": "seperator_token_id",  # as GGUF spells it
    "pad_token": "padding_token_id",
    "mask_token": "mask_token_id",
}

T = TypeVar("T")


def spec_from_gguf(metadata: Mapping[str, Any], name: str) -> TokenizerSpec:
    """The tokenizer described by the `tokenizer.ggml.*` keys of `metadata`, all checked.

    Args:
        metadata: of a GGUF file.
        name: the file's name, for errors.

    Raises:
        FormatError: a key is missing, of the wrong type, or contradicts another.
        UnsupportedError: the kind of tokenizer, its pre-tokenizer or a token's type is not supported.
    """
    keys = _Keys(metadata, name)
    keys.require("model", "gpt2", what="byte-level BPE")
    if keys.optional("add_space_prefix", bool):
        raise UnsupportedError(name, f"{keys.prefix}add_space_prefix", "true", allowed="false")
    pre = keys.value("pre", str)
    if pre not in PRE_TOKENIZERS:
        raise UnsupportedError(name, f"{keys.prefix}pre", shorten(pre), allowed=", ".join(PRE_TOKENIZERS))
    kind = PRE_TOKENIZERS[pre]
    tokens, vocab, added = _read_tokens(keys)
    try:
        merges = resolve_merges(keys.array("merges", str), vocab, len(tokens))
    except MergeError as error:
        raise keys.error("merges", f"merge {error.index}: {error}") from None
    special_ids = {}
    for special, key in _SPECIAL_IDS.items():
        token_id = keys.optional(key, int)
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise keys.error(key, str(token_id), allowed=f"0 to {len(tokens) - 1}, the ids of the vocabulary")
        if token_id is not None:
            special_ids[special] = token_id
    add_bos = keys.optional("add_bos_token", bool)
    return TokenizerSpec(
        vocabulary=_vocabulary(tokens, added),
        merges=merges,
        added=added,
        normalizer=kind.normalizer,
        pre_tokenizer=kind.pre_tokenizer,
        ignore_merges=kind.ignore_merges,
        special_ids=special_ids,
        add_bos=kind.add_bos if add_bos is None else add_bos,
    )


class _Keys:
    """Typed access to `tokenizer.ggml.*`."""

    prefix = "tokenizer.ggml."
    _NAMES: Mapping[type, str] = {str: "a string", int: "an integer", bool: "a boolean"}

    def __init__(self, metadata: Mapping[str, Any], file: str) -> None:
        self._metadata, self.file = metadata, file

    def error(self, key: str, problem: str, *, allowed: str = "") -> FormatError:
        return FormatError(self.file, self.prefix + key, problem, allowed=allowed)

    def optional(self, key: str, type_: type[T]) -> T | None:
        value = self._metadata.get(self.prefix + key)
        if value is None:
            return None
        if type(value) is not type_:
            raise self.error(key, shorten(value), allowed=self._NAMES[type_])
        return value

    def value(self, key: str, type_: type[T]) -> T:
        value = self.optional(key, type_)
        if value is None:
            raise self.error(key, "missing")
        return value

    def require(self, key: str, wanted: str, *, what: str) -> None:
        value = self.value(key, str)
        if value != wanted:
            raise UnsupportedError(self.file, self.prefix + key, shorten(value), allowed=f"{wanted}, which is {what}")

    def array(self, key: str, type_: type[T]) -> Sequence[T]:
        value = self._metadata.get(self.prefix + key)
        if value is None:
            raise self.error(key, "missing")
        if isinstance(value, StringArray):
            value = list(value)
        if not isinstance(value, list | tuple) or set(map(type, value)) - {type_}:
            raise self.error(key, shorten(value), allowed=f"an array, each item {self._NAMES[type_]}")
        return value


def _read_tokens(keys: _Keys) -> tuple[list[str | None], dict[str, int], tuple[AddedToken, ...]]:
    """Tokens by id, the vocabulary that text can become, and the added tokens."""
    tokens: list[str | None] = list(keys.array("tokens", str))
    types = keys.array("token_type", int)
    if not tokens:
        raise keys.error("tokens", "empty")
    if len(types) != len(tokens):
        raise keys.error("token_type", f"{len(types)} types for {len(tokens)} tokens")
    added = _sort_out(keys, tokens, types)
    vocab = {token: token_id for token_id, token in enumerate(tokens) if token is not None}
    if len(vocab) != len(tokens) - tokens.count(None):
        raise keys.error("tokens", _find_twice(tokens))
    for token in added:
        if not token.is_text:
            del vocab[token.text]
    return tokens, vocab, added


def _vocabulary(tokens: Sequence[str | None], added: tuple[AddedToken, ...]) -> Vocabulary:
    as_bytes, odd = all_to_bytes([token or "" for token in tokens])
    unreachable = odd | {token.id for token in added if not token.is_text}
    kept = [None if token is None else data for token, data in zip(tokens, as_bytes, strict=True)]
    return Vocabulary(kept, frozenset(unreachable))


def _sort_out(keys: _Keys, tokens: list[str | None], types: Sequence[int]) -> tuple[AddedToken, ...]:
    """The added tokens. Unused and empty tokens are made None in `tokens`."""
    added = []
    for token_id, (token, type_) in enumerate(zip(tokens, types, strict=True)):
        if type_ == _NORMAL and token:
            continue
        if type_ not in (_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED):
            field, problem = f"{keys.prefix}token_type", f"token {token_id} has type {type_}"
            raise UnsupportedError(keys.file, field, problem, allowed="1 to 5")
        if type_ == _UNUSED or not token:
            tokens[token_id] = None
        else:
            added.append(AddedToken(token, token_id, special=type_ != _USER_DEFINED))
    if len(added) > MAX_ADDED_TOKENS:
        raise keys.error("token_type", f"{len(added)} control tokens", allowed=f"at most {MAX_ADDED_TOKENS}")
    return tuple(added)


def _find_twice(tokens: Sequence[str | None]) -> str:
    seen: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if token is not None and seen.setdefault(token, token_id) != token_id:
            return f"ids {seen[token]} and {token_id} are both {shorten(token)}"
    raise AssertionError("tokens were refused and none appears twice")
