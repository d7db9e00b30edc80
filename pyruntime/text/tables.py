"""Compiled tables: a tokenizer in a form that loads in a few hundredths of a second. A cache, never a source.

They are made from a model's own file, hold the SHA-256 of that file, and end with a SHA-256 of themselves. Tables that
are cut, changed, of another version or of another file are refused, and the caller makes them anew. The same tokenizer
gives the same bytes on every machine.

Layout, integers little-endian:

    8 bytes   b"TinyTok" and the version
    32 bytes  SHA-256 of the source file
    3 × u32   n_merges, bytes of the tokens, bytes of the rest
    u32[n_merges] × 3   of each merge, in order of rank: left id, right id, id of what they become
    tokens    by id, separated by 0xFF; the few that hold this byte are empty here and written in the rest
    rest      everything else, as JSON
    32 bytes  SHA-256 of all before
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from itertools import chain
from typing import Any

import numpy as np

from pyruntime.errors import FormatError
from pyruntime.formats.strict_json import parse_json
from pyruntime.text import normalize, pre_tokenize
from pyruntime.text.bpe import make_table
from pyruntime.text.pattern_syntax import parse_pattern
from pyruntime.text.spec import AddedToken, Decoding, TokenizerSpec, Vocabulary, find_mixed

VERSION = 1
_MAGIC = b"TinyTok" + bytes([VERSION])
_HEAD = struct.Struct("<8s32s3I")
_HASH_BYTES = 32
_SEPARATOR = b"\xff"  # in no UTF-8 text, so in hardly any token
_NAME = "tokenizer tables"
_MAX_REST = 16 << 20
_MAX_IDS = 1 << 21

_NORMALIZERS = (normalize.Form, normalize.Prepend, normalize.Replace, normalize.Strip)
_PRE_TOKENIZERS = (pre_tokenize.Split, pre_tokenize.PrefixSpace)
_SWITCHES = ("byte_level", "ignore_merges", "fuse_unknown", "add_bos")
_TUPLES = ("fallback_ids", "prefix_ids", "suffix_ids")


class TablesError(FormatError):
    """Tables that are not to be trusted. The file they were made from is, so make them anew."""

    def __init__(self, problem: str) -> None:
        super().__init__(_NAME, "", problem, advice="They are made anew from the model's own file")


def compile_tables(spec: TokenizerSpec, source_sha256: str) -> bytes:
    """The tables of a tokenizer.

    Args:
        spec: the tokenizer.
        source_sha256: hash of the file that it was read from, 64 hexadecimal digits.
    """
    tokens = spec.vocabulary.tokens
    base, values = spec.merges.base, spec.merges.values
    in_order = sorted(values.items(), key=lambda item: item[1])
    pairs = np.array([key for key, _ in in_order], np.int64)
    merged = np.array([value for _, value in in_order], np.int64) % base
    columns = np.concatenate([pairs // base, pairs % base, merged]).astype("<u4").tobytes()
    text = _SEPARATOR.join(b"" if token is None or _SEPARATOR in token else token for token in tokens)
    rest = json.dumps(_rest(spec), ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, bytes.fromhex(source_sha256), len(pairs), len(text), len(rest))
    body = head + columns + text + rest
    return body + hashlib.sha256(body).digest()


def _rest(spec: TokenizerSpec) -> dict[str, Any]:
    tokens = spec.vocabulary.tokens
    mixed = find_mixed(tokens) if spec.mixed is None else spec.mixed
    return {
        "base": spec.merges.base,
        "size": len(tokens),
        "missing": [token_id for token_id, token in enumerate(tokens) if token is None],
        "odd": [[i, token.hex()] for i, token in enumerate(tokens) if token is not None and _SEPARATOR in token],
        "unreachable": sorted(spec.vocabulary.unreachable),
        "mixed": [token.hex() for token in mixed],
        "added": [list(astuple(token)) for token in spec.added],
        "normalizer": [[type(step).__name__, *astuple(step)] for step in spec.normalizer],
        "pre_tokenizer": [[type(step).__name__, *astuple(step)] for step in spec.pre_tokenizer],
        "decoding": list(astuple(spec.decoding)),
        "special_ids": dict(spec.special_ids),
        **{name: getattr(spec, name) for name in (*_SWITCHES, "unknown_id")},
        **{name: list(getattr(spec, name)) for name in _TUPLES},
    }


def read_tables(data: bytes | memoryview, source_sha256: str) -> TokenizerSpec:
    """The tokenizer in `data`.

    Args:
        data: the tables.
        source_sha256: hash of the file that they must have been made from.

    Raises:
        TablesError: they are cut or changed, or of another version or file.
    """
    data = bytes(data)
    if len(data) < _HEAD.size + _HASH_BYTES or data[:7] != _MAGIC[:7]:
        raise TablesError("too short, or no tables at all")
    magic, source, n_merges, text_bytes, rest_bytes = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise TablesError(f"of version {magic[7]}, and this is {VERSION}")
    if source.hex() != source_sha256.lower():
        raise TablesError(f"made from the file with SHA-256 {source.hex()}, not from {source_sha256}")
    if _HEAD.size + 12 * n_merges + text_bytes + rest_bytes + _HASH_BYTES != len(data) or rest_bytes > _MAX_REST:
        raise TablesError(f"{len(data)} bytes long, which is not what they say")
    if hashlib.sha256(memoryview(data)[:-_HASH_BYTES]).digest() != data[-_HASH_BYTES:]:
        raise TablesError("damaged: their SHA-256 is another one")
    text_at = _HEAD.size + 12 * n_merges
    columns = np.frombuffer(data, "<u4", 3 * n_merges, _HEAD.size).reshape(3, n_merges)
    text = data[text_at : text_at + text_bytes]
    rest = data[text_at + text_bytes : -_HASH_BYTES]
    try:
        return _spec(columns, text.split(_SEPARATOR), parse_json(rest, name=_NAME, max_bytes=_MAX_REST, max_depth=8))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise TablesError(f"not sound ({error})") from error


def _spec(columns: np.ndarray, listed: Sequence[bytes], rest: Mapping[str, Any]) -> TokenizerSpec:
    size, base = rest["size"], rest["base"]
    tokens: list[bytes | None] = list(listed)
    if len(tokens) != size or not _are([size, base], int) or not 0 < size <= base <= _MAX_IDS:
        raise ValueError(f"{len(tokens)} tokens for {size} ids")
    added = tuple(_added(written) for written in rest["added"])
    replace, byte_fallback, (character, count) = rest["decoding"]
    texts = [*chain.from_iterable(replace), character]
    if not _are([*(rest[name] for name in _SWITCHES), byte_fallback], bool) or not _are(texts, str) or count < 0:
        raise ValueError("a value of the wrong type")
    listed_ids = [rest[name] for name in ("missing", "unreachable", "prefix_ids", "suffix_ids")]
    numbers = [*chain(*listed_ids, rest["special_ids"].values()), *(token.id for token in added)]
    numbers += [token_id for token_id in (rest["unknown_id"], *rest["fallback_ids"]) if token_id not in (None, -1)]
    numbers += [token_id for token_id, _ in rest["odd"]]
    if (columns.size and columns.max() >= size) or not _are(numbers, int) or not all(0 <= i < size for i in numbers):
        raise ValueError("an id that the vocabulary does not have")
    for token_id in rest["missing"]:
        tokens[token_id] = None
    for token_id, token in rest["odd"]:
        tokens[token_id] = bytes.fromhex(token)
    others: dict[str, Any] = {name: rest[name] for name in (*_SWITCHES, "unknown_id")}
    others |= {name: tuple(rest[name]) for name in _TUPLES}
    return TokenizerSpec(
        vocabulary=Vocabulary(tokens, frozenset(rest["unreachable"])),
        merges=make_table(base, columns[0], columns[1], columns[2]),
        added=added,
        normalizer=tuple(_step(step, _NORMALIZERS) for step in rest["normalizer"]),
        pre_tokenizer=tuple(_step(step, _PRE_TOKENIZERS) for step in rest["pre_tokenizer"]),
        decoding=Decoding(tuple((old, new) for old, new in replace), byte_fallback, (character, count)),
        special_ids=rest["special_ids"],
        mixed=[bytes.fromhex(token) for token in rest["mixed"]],
        **others,
    )


def _are(values: Sequence[Any], kind: type) -> bool:
    return all(type(value) is kind for value in values)


def _added(written: Sequence[Any]) -> AddedToken:
    token = AddedToken(*written)
    if not _are([token.text], str) or not token.text or not _are(written[2:], bool) or len(written) != 7:
        raise ValueError(f"{written} is no added token")
    return token


def _step(written: Sequence[Any], kinds: Sequence[type]) -> Any:
    """The step that was written as its type's name and its fields."""
    name, *values = written
    step = {kind.__name__: kind for kind in kinds}[name](*values)
    texts, switches = ([value for value in values if isinstance(value, kind)] for kind in (str, bool))
    if len(values) != len(fields(step)) or len(texts) + len(switches) != len(values):
        raise ValueError(f"{name} has {values}")
    if isinstance(step, normalize.Form) and step.name not in normalize.FORMS:
        raise ValueError(f"{step.name} is no normal form")
    if isinstance(step, pre_tokenize.Split) and step.behavior not in pre_tokenize.BEHAVIORS:
        raise ValueError(f"{step.behavior} is no behaviour")
    if isinstance(step, pre_tokenize.Split | normalize.Replace):
        parse_pattern(step.pattern)
    return step
