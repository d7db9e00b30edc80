"""What may be done to text before it is cut: lone surrogates, and NFC as the reference knows it.

The reference's NFC knows about Unicode 9.0, and every Python knows more. Characters that came later and combine
or compose are plain base characters to the reference (`nfc_starters` in `unicode_tables.json`), so text is cut
around them and Python normalises what lies between.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from pyruntime.text.patterns import character_class

# Python orders combining marks by insertion, in time quadratic in a run that is out of order. Longer runs are
# ordered here first; any bound from a few to a few thousand gives the same text.
_LONG_RUN = 64


def replace_lone_surrogates(text: str) -> str:
    """`text` with halves of surrogate pairs joined, and each half that stands alone as U+FFFD.

    Python strings from JavaScript or from JSON escapes may hold halves; UTF-8 cannot.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def nfc(text: str) -> str:
    """The NFC of `text` in the reference's version of Unicode, in linear time."""
    if text.isascii():
        return text
    parts = _starters().split(text)
    parts[::2] = map(_nfc_of_this_python, parts[::2])
    return "".join(parts)


@cache
def _starters() -> re.Pattern[str]:
    return re.compile(f"([{character_class('nfc_starters')}])")


@cache
def _long_runs() -> re.Pattern[str]:
    return re.compile(f"[{character_class('M')}]{{{_LONG_RUN},}}")


def _nfc_of_this_python(text: str) -> str:
    if unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", _long_runs().sub(_order_marks, text))


def _order_marks(run: re.Match[str]) -> str:
    """A run of combining marks, decomposed and in canonical order: sorted by class between those of class 0."""
    marks = "".join(unicodedata.normalize("NFD", mark) for mark in run[0])
    ordered: list[str] = []
    waiting: list[str] = []
    for mark in marks:
        if unicodedata.combining(mark) == 0:
            ordered += sorted(waiting, key=unicodedata.combining)
            ordered.append(mark)
            waiting.clear()
        else:
            waiting.append(mark)
    return "".join(ordered + sorted(waiting, key=unicodedata.combining))
