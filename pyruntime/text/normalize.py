"""What may be done to text before it is cut: lone surrogates, and the normalizers of tokenizer files.

The reference's normal forms know about Unicode 9.0, and every Python knows more. Characters that came later and
combine, compose or decompose are plain base characters to the reference (`newer` in `unicode_tables.json`), so text is
cut around them and Python normalises what lies between.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from pyruntime.text.patterns import character_class, character_limit, compile_split

# Python orders combining marks by insertion, in time quadratic in a run that is out of order. Longer runs are
# ordered here first; any bound from a few to a few thousand gives the same text.
_LONG_RUN = 64

FormName = Literal["NFC", "NFD", "NFKC", "NFKD"]
FORMS: tuple[str, ...] = get_args(FormName)


@dataclass(frozen=True)
class Form:
    """A Unicode normal form."""

    name: FormName


@dataclass(frozen=True)
class Prepend:
    """Put a text before one that is not empty."""

    text: str


@dataclass(frozen=True)
class Replace:
    """Put `content` in the place of every match of a pattern (in the language of `pattern_syntax`)."""

    pattern: str
    content: str


@dataclass(frozen=True)
class Strip:
    """Take white space away at the ends."""

    left: bool
    right: bool


Step = Form | Prepend | Replace | Strip


def normalize(text: str, steps: Sequence[Step]) -> str:
    """`text` after every step."""
    for step in steps:
        if isinstance(step, Form):
            text = to_form(text, step.name)
        elif isinstance(step, Prepend):
            text = text and step.text + text
        elif isinstance(step, Replace):
            # Joined rather than substituted: the content is no template in which \\1 means something.
            text = step.content.join(compile_split(step.pattern, character_limit(text)).split(text)[::2])
        else:
            text = _strip(text, step)
    return text


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


def to_form(text: str, form: FormName) -> str:
    """The normal form of `text` in the reference's version of Unicode, in linear time."""
    if text.isascii():
        return text
    parts = _newer().split(text)
    parts[::2] = [_form_of_this_python(part, form) for part in parts[::2]]
    return "".join(parts)


@cache
def white_space() -> str:
    """The characters that the reference takes for white space."""
    codes = re.compile(f"[{character_class('white_space')}]")
    return "".join(char for char in map(chr, range(0x3001)) if codes.match(char))


def _strip(text: str, step: Strip) -> str:
    if step.left:
        text = text.lstrip(white_space())
    return text.rstrip(white_space()) if step.right else text


@cache
def _newer() -> re.Pattern[str]:
    return re.compile(f"([{character_class('newer')}])")


@cache
def _long_runs() -> re.Pattern[str]:
    return re.compile(f"[{character_class('M')}]{{{_LONG_RUN},}}")


def _form_of_this_python(text: str, form: FormName) -> str:
    if unicodedata.is_normalized(form, text):
        return text
    return unicodedata.normalize(form, _long_runs().sub(_order_marks, text))


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
