"""JSON from strangers: parsed with bounds, and without the liberties `json.loads` takes.

Size and depth are checked before anything is built, so a hostile text costs one linear scan. Byte-order marks, repeated
keys, NaN, Infinity and numbers that overflow to it are refused, because two readers would understand them differently. It
does not know what the JSON means.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from itertools import accumulate
from typing import Any, NoReturn

from pyruntime.errors import FormatError, shorten

# A string; its closing quote is optional, so that a match never fails after a long scan.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NOT_BRACKETS = bytes({*range(256)} - {*b"[]{}"})
_DEPTH_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def parse_json(
    data: bytes, *, name: str, max_bytes: int, max_depth: int, max_values: int | None = None, field: str = "JSON"
) -> Any:
    """The value of a JSON text given as UTF-8 bytes.

    Args:
        data: the whole text.
        name: the file's name, as errors show it.
        max_bytes: longest text accepted.
        max_depth: deepest nesting of lists and objects accepted.
        max_values: most values accepted: a list takes thirty times the memory of the two bytes that write it.
        field: what errors about the text as a whole call it, where it is only a part of the file.

    Raises:
        FormatError: with field `field` when the text is too long, too deep, too rich or not JSON; with the key as its
            field when an object has that key twice.
    """
    if len(data) > max_bytes:
        raise FormatError(name, field, f"{len(data)} bytes long", allowed=f"at most {max_bytes} bytes")
    depth = depth_of(data)
    if depth > max_depth:
        raise FormatError(name, field, f"nested {depth} levels deep", allowed=f"at most {max_depth}")
    if max_values is not None and (values := _values_in(data)) > max_values:
        raise FormatError(name, field, f"about {values} values", allowed=f"at most {max_values}")

    try:
        text = data.decode("utf-8")
        return strict_decoder(name).decode(text)
    except FormatError:
        raise
    except ValueError as error:  # UnicodeDecodeError, JSONDecodeError and "too many digits" alike
        raise FormatError(name, field, f"not a JSON text ({error})") from error


def strict_decoder(name: str) -> json.JSONDecoder:
    """A decoder that refuses repeated keys (FormatError, with the key as its field), and with ValueError NaN, Infinity and
    numbers that would become infinite.
    """

    def pairs_to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise FormatError(name, shorten(twice), "the key occurs twice in one object")
        return table

    def refuse_constant(text: str) -> NoReturn:
        raise ValueError(f"{text} is not JSON")

    def finite(text: str) -> float:
        number = float(text)
        if math.isinf(number):
            raise ValueError(f"{text} is larger than any number here")
        return number

    return json.JSONDecoder(object_pairs_hook=pairs_to_dict, parse_constant=refuse_constant, parse_float=finite)


def _values_in(data: bytes) -> int:
    """About how many values a JSON text has: its commas and opening brackets outside strings."""
    outside = _STRING.sub(b"", data)
    return sum(map(outside.count, (b",", b"[", b"{")))


def depth_of(data: bytes) -> int:
    """The deepest nesting of brackets outside strings."""
    # No loop: a tokenizer.json has a million strings, and a page waits for it.
    brackets = _STRING.sub(b"", data).translate(None, _NOT_BRACKETS)
    return max(accumulate(map(_DEPTH_STEP.__getitem__, brackets), initial=0))
