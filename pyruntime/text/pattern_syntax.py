r"""The language of split patterns: what the patterns of tokenizer files are made of, and nothing else.

A pattern is alternatives; an alternative is a sequence of items; an item is a set of characters or a group of plain
words, with a quantifier, or a look at one character ahead. Anything else is refused by name.

Time: Python's engine tries alternatives one after another and goes back when one fails, which can take quadratic or
worse time in the length of a text. So only shapes are accepted whose attempts cost no more than what is then matched:

- an alternative that, once inside an unbounded repeat, cannot fail any more: `\p{L}+`, ` ?[^\s\p{L}\p{N}]+[\r\n]*`;
- white space that must end in something, `\s*[\r\n]+` or `\s+(?!\S)`, when `\s+` follows and takes what they leave;
- `P?A*B+`, when `P?A+B*` follows and takes what it leaves (words by capital and small letters).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from pyruntime.errors import ParameterError

UNBOUNDED = 1 << 30
CATEGORIES = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S", "Digits", "Punctuation", "word")
WHITE_SPACE = "white_space"

_LONGEST_PATTERN = 4096
_LARGEST_COUNT = 64
_MOST_CHOICES = 4  # optional items before a repeat; each doubles the attempts
_ESCAPES = {"r": "\r", "n": "\n", "t": "\t"}
_QUANTIFIERS = {"": (1, 1), "?": (0, 1), "*": (0, UNBOUNDED), "+": (1, UNBOUNDED)}
# Two letters that the case-insensitive reference also finds in one character, such as "ß" or the ligature "ﬁ".
_ONE_CHARACTER = re.compile("ss|st|f[fil]", re.IGNORECASE)

_TOKEN = re.compile(
    r"\\p\{(?P<category>\w+)\}|\\(?P<escape>.)|(?P<group>\(\?(?:[:!=]|i:))|(?P<count>\{\d{1,2}(?:,\d{0,2})?\})"
    r"|(?P<other>.)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Chars:
    """A set of characters: those of the named classes and ranges, or all others when `negated`."""

    classes: tuple[str, ...] = ()
    ranges: tuple[tuple[str, str], ...] = ()
    negated: bool = False


@dataclass(frozen=True)
class Words:
    """One of several sequences of sets."""

    words: tuple[tuple[Chars, ...], ...]


@dataclass(frozen=True)
class Repeat:
    """A set or words, `least` to `most` times; with `possessive`, what was taken is not given back."""

    of: Chars | Words
    least: int = 1
    most: int = 1
    possessive: bool = False


@dataclass(frozen=True)
class Ahead:
    """A look at the next character: it is in the set, or (`negated`) it is not, or the text ends."""

    of: Chars
    negated: bool


Item = Repeat | Ahead
_SPACES = Chars((WHITE_SPACE,))
_NO_MORE_TEXT_AHEAD = Ahead(Chars((WHITE_SPACE,), negated=True), negated=True)


@cache
def parse_pattern(pattern: str) -> tuple[tuple[Item, ...], ...]:
    """The alternatives of `pattern`.

    Raises:
        ParameterError: it is not of this language, can match nothing, or could take more than linear time.
    """
    if len(pattern) > _LONGEST_PATTERN:
        raise _refusal(pattern, f"It is {len(pattern)} characters long", allowed=f"at most {_LONGEST_PATTERN}")
    alternatives = _Parser(pattern).alternatives()
    for at, items in enumerate(alternatives):
        if all(isinstance(item, Ahead) or item.least == 0 for item in items):
            raise _refusal(pattern, "It can match the empty string")
        if not _is_linear(items, alternatives[at + 1 :]):
            raise _refusal(pattern, "It could take more than linear time")
    return tuple(alternatives)


def literal_pattern(text: str) -> str:
    """The pattern that matches `text` and nothing else."""
    return "".join(f"\\{char}" if char in "\\()[]{}?*+|.^$" else char for char in text)


def _refusal(pattern: str, problem: str, *, allowed: str = "") -> ParameterError:
    known = ", ".join(CATEGORIES)
    language = rf"alternatives of sets, words and (?!\S), with \s \S \r \n \t and \p{{…}} of {known}"
    return ParameterError("pattern", pattern, allowed or language, advice=problem)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._tokens = list(_TOKEN.finditer(pattern))
        self._at = 0

    def alternatives(self) -> list[tuple[Item, ...]]:
        found: list[tuple[Item, ...]] = []
        while True:
            found.append(tuple(self._items()))
            if self._peek("") is None:
                return found
            self._next()  # "|": nothing else ends the items

    def _error(self, problem: str) -> ParameterError:
        return _refusal(self._pattern, problem)

    def _peek(self, kind: str) -> str | None:
        """The next token if it is of this kind ("": of any kind)."""
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        return None if token is None else token[kind or 0]

    def _next(self) -> re.Match[str]:
        if self._at == len(self._tokens):
            raise self._error("It ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _items(self) -> Iterator[Item]:
        while self._peek("") is not None and self._peek("other") != "|":
            group = self._peek("group")
            if group in ("(?!", "(?="):
                self._next()
                yield Ahead(self._chars(), negated=group == "(?!")
                if self._next()["other"] != ")":
                    raise self._error("It looks further ahead than one character")
            else:
                yield self._quantified(self._words() if group else self._chars())

    def _quantified(self, of: Chars | Words) -> Repeat:
        least, most = 1, 1
        sign, count = self._peek("other") or "", self._peek("count")
        if sign in ("?", "*", "+"):
            self._next()
            least, most = _QUANTIFIERS[sign]
        elif count:
            self._next()
            first, _, last = count[1:-1].partition(",")
            least, most = int(first), int(last or (UNBOUNDED if "," in count else first))
            if least > most or least > _LARGEST_COUNT or (most > _LARGEST_COUNT and most != UNBOUNDED):
                raise self._error(f"It has the count {count}")
        if isinstance(of, Words) and (least, most) not in ((1, 1), (0, 1)):
            raise self._error("It repeats a group")
        possessive = bool(sign in _QUANTIFIERS and sign and self._peek("other") == "+")
        if possessive:
            self._next()
        if self._peek("other") in ("?", "*", "+") or self._peek("count"):
            raise self._error("It repeats a repeat")
        return Repeat(of, least, most, possessive)

    def _words(self) -> Words:
        fold = self._next()["group"] == "(?i:"
        words: list[tuple[Chars, ...]] = [()]
        while self._peek("other") != ")":
            if self._peek("other") == "|":
                self._next()
                words.append(())
            elif self._peek("group") or self._peek("count") or self._peek("other") in ("?", "*", "+"):
                raise self._error("It has a group inside a group, or a repeat there")
            else:
                words[-1] = (*words[-1], self._chars())
        self._next()
        if not all(words):
            raise self._error("It has an empty alternative")
        return Words(tuple(map(self._fold, words)) if fold else tuple(words))

    def _fold(self, word: tuple[Chars, ...]) -> tuple[Chars, ...]:
        if any(chars.classes or chars.negated or any(a != b for a, b in chars.ranges) for chars in word):
            raise self._error("It has a class or a range inside (?i:…)")
        for first, second in pairwise(word):
            if any(_ONE_CHARACTER.fullmatch(a + b) for a, _ in first.ranges for b, _ in second.ranges):
                raise self._error("It has letters inside (?i:…) that a ligature stands for")
        return tuple(_folded(chars) for chars in word)

    def _chars(self) -> Chars:
        token = self._next()
        if token["other"] == "[":
            return self._set()
        if token["escape"] in ("s", "S"):
            return Chars((WHITE_SPACE,), negated=token["escape"] == "S")
        if token["category"]:
            return Chars((self._category(token),))
        if token["other"] and token["other"] in "(){?*+.^$":
            raise self._error(f"It has {token[0]} in a place where it is not known")
        char = self._char(token)
        return Chars(ranges=((char, char),))

    def _set(self) -> Chars:
        negated = self._peek("other") == "^"
        if negated:
            self._next()
        classes: list[str] = []
        ranges: list[tuple[str, str]] = []
        while self._peek("other") != "]":
            token = self._next()
            if token["category"] or token["escape"] == "s":
                classes.append(self._category(token) if token["category"] else WHITE_SPACE)
                continue
            if token["other"] == "[" or (token["other"] == "&" and self._peek("other") == "&"):
                raise self._error("It has a set inside a set")
            if token["group"] or token["count"]:  # inside a set these characters mean themselves
                ranges += [(char, char) for char in token[0]]
                continue
            first = last = self._char(token)
            if self._peek("other") == "-" and self._tokens[self._at + 1 : self._at + 2]:
                self._next()
                if self._peek("other") == "]":
                    ranges.append(("-", "-"))
                else:
                    last = self._char(self._next())
            if first > last:
                raise self._error(f"It has the range {first}-{last}")
            ranges.append((first, last))
        self._next()
        if not classes and not ranges:
            raise self._error("It has an empty set")
        return Chars(tuple(classes), tuple(ranges), negated)

    def _category(self, token: re.Match[str]) -> str:
        if token["category"] not in CATEGORIES:
            raise self._error(f"It has {token[0]}")
        return token["category"]

    def _char(self, token: re.Match[str]) -> str:
        escape = token["escape"]
        if escape is None:
            if len(token[0]) != 1:
                raise self._error(f"It has {token[0]} in a place where it is not known")
            if token[0] == "\\":
                raise self._error("It ends with a backslash")
            return token[0]
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        if escape.isalnum():
            raise self._error(f"It has \\{escape}")
        return escape


def _folded(chars: Chars) -> Chars:
    """Both cases of the ASCII letters, and what else folds to them: U+017F to s and U+212A to k."""
    more = [
        other
        for char, _ in chars.ranges
        for other in {char, char.lower(), char.upper(), *{"s": "\u017f", "k": "\u212a"}.get(char.lower(), "")}
    ]
    return Chars(ranges=tuple((char, char) for char in sorted(set(more))))


def _is_linear(items: Sequence[Item], later: Sequence[tuple[Item, ...]]) -> bool:
    """Whether an attempt at `items` costs no more than what it, or one of the `later` alternatives, then matches."""
    repeat = next((at for at, item in enumerate(items) if isinstance(item, Repeat) and item.most == UNBOUNDED), None)
    before = items if repeat is None else items[:repeat]
    if sum(isinstance(item, Repeat) and item.least != item.most for item in before) > _MOST_CHOICES:
        return False
    if repeat is None:
        return True
    if all(isinstance(item, Repeat) and item.least == 0 for item in items[repeat + 1 :]):
        return True
    return _is_rest_of_spaces(items, later) or _is_rest_of_words(items, later)


def _is_rest_of_spaces(items: Sequence[Item], later: Sequence[tuple[Item, ...]]) -> bool:
    r"""`\s*[\r\n]+` or `\s+(?!\S)`, followed by others of them and then `\s+`."""
    if not _ends_spaces(items):
        return False
    rest = next((alternative for alternative in later if not _ends_spaces(alternative)), ())
    return len(rest) == 1 and rest[0] in (Repeat(_SPACES, 1, UNBOUNDED), Repeat(_SPACES, 1, UNBOUNDED, possessive=True))


def _ends_spaces(items: Sequence[Item]) -> bool:
    if len(items) != 2 or items[0] not in (Repeat(_SPACES, 0, UNBOUNDED), Repeat(_SPACES, 1, UNBOUNDED)):
        return False
    return items[1] == _NO_MORE_TEXT_AHEAD or (isinstance(items[1], Repeat) and items[1].of == _NEWLINES)


_NEWLINES = Chars(ranges=(("\r", "\r"), ("\n", "\n")))


def _is_rest_of_words(items: Sequence[Item], later: Sequence[tuple[Item, ...]]) -> bool:
    """`P?A*B+E`, followed by `P?A+B*E`, where E is optional as well."""
    at = next(at for at, item in enumerate(items) if isinstance(item, Repeat) and item.most == UNBOUNDED)
    first, *others = items[at:]
    if not others or not later or not isinstance(first, Repeat) or not isinstance(others[0], Repeat):
        return False
    second, *rest = others
    around = (*items[:at], *rest)
    if any(not isinstance(item, Repeat) or (item.least, item.most) != (0, 1) for item in around):
        return False
    this = (Repeat(first.of, 0, UNBOUNDED), Repeat(second.of, 1, UNBOUNDED))
    other = (Repeat(first.of, 1, UNBOUNDED), Repeat(second.of, 0, UNBOUNDED))
    return (first, second) == this and tuple(later[0]) == (*items[:at], *other, *rest)
