"""Typed access to the objects of a JSON file, each of which knows its place, so that errors can name it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pyruntime.errors import FormatError, UnsupportedError, shorten

T = TypeVar("T")
_NAMES: Mapping[type, str] = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}
_OFF: tuple[Any, ...] = (None, False, "", [], {})  # what an unknown key may hold without asking for anything


@dataclass(frozen=True)
class Fields:
    """One object of a file.

    Attributes:
        values: its keys and values.
        path: where it stands, such as `pre_tokenizer.pretokenizers[0]`; "" for the whole file.
        file: the file's name.
    """

    values: Mapping[str, Any]
    path: str
    file: str

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def error(self, key: str, problem: str, *, allowed: str = "") -> FormatError:
        """The key is wrong."""
        return FormatError(self.file, self.at(key), problem, allowed=allowed)

    def unsupported(self, key: str, problem: str, *, allowed: str) -> UnsupportedError:
        """The key asks for something that is not supported."""
        return UnsupportedError(self.file, self.at(key), problem, allowed=allowed)

    def get(self, key: str, type_: type[T]) -> T:
        """The value of a key that must be there; strings can be written as UTF-8."""
        if key not in self.values:
            raise self.error(key, "missing", allowed=_NAMES[type_])
        value = self.values[key]
        if type(value) is not type_:
            raise self.error(key, shorten(value), allowed=_NAMES[type_])
        if isinstance(value, str):
            check_text(value, self.file, self.at(key))
        return value

    def optional(self, key: str, type_: type[T]) -> T | None:
        """The value of a key, None where it is missing or null."""
        return None if self.values.get(key) is None else self.get(key, type_)

    def object(self, key: str) -> Fields:
        """An object that must be there."""
        return Fields(self.get(key, dict), self.at(key), self.file)

    def objects(self, key: str) -> Iterator[Fields]:
        """The objects of a list that must be there."""
        for index, value in enumerate(self.get(key, list)):
            if not isinstance(value, dict):
                raise self.error(f"{key}[{index}]", shorten(value), allowed=_NAMES[dict])
            yield Fields(value, self.at(f"{key}[{index}]"), self.file)

    def only(self, *known: str) -> None:
        """Refuse every other key that asks for something."""
        for key, value in self.values.items():
            if key not in known and not any(value is off or value == off for off in _OFF):
                raise self.unsupported(shorten(key)[1:-1], f"{shorten(value)} is not known", allowed=", ".join(known))

    def one_of(self, key: str, allowed: Sequence[str]) -> str:
        """A string that is one of a closed list."""
        value = self.get(key, str)
        if value not in allowed:
            raise self.unsupported(key, shorten(value), allowed=", ".join(allowed))
        return value


def check_text(text: str, file: str, path: str) -> None:
    """Refuse text with half a surrogate pair, which is no text."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise FormatError(file, path, f"half a surrogate pair at character {error.start}") from None
