"""Typed access to a model's settings, in whatever file they stand, with a record of which were read.

Every error names the file, the field, the value and what is allowed. It does not know what a setting means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyruntime.errors import FormatError, UnsupportedError, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping


class Fields:
    """One group of settings.

    Args:
        values: setting → value. A null is as good as no value.
        prefix: what stands before a setting's name in errors.
        file: the file's name, for errors.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str, file: str) -> None:
        self.file = file
        self._values, self._prefix = values, prefix
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def integer(self, key: str, lowest: int, highest: int, *, default: int | None = None) -> int:
        """The integer at `key`, which must lie in lowest … highest."""
        value = self._get(key, default)
        allowed = f"an integer from {lowest} to {highest}"
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{shorten(value)} is not an integer", allowed=allowed)
        if not lowest <= value <= highest:
            self.fail(key, f"{shorten(value)} is out of range", allowed=allowed)
        return int(value)

    def number(self, key: str, lowest: float, highest: float, *, default: float | None = None) -> float:
        """The number at `key`, which must be finite and lie in lowest … highest."""
        value = self._get(key, default)
        allowed = f"a number from {lowest:g} to {highest:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, f"{shorten(value)} is not a number", allowed=allowed)
        if not lowest <= value <= highest:  # which NaN does not
            self.fail(key, f"{shorten(value)} is out of range", allowed=allowed)
        return float(value)

    def flag(self, key: str, *, default: bool) -> bool:
        """The truth value at `key`."""
        value = self._get(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"{shorten(value)} is neither true nor false", allowed="true or false")
        return value

    def text(self, key: str, *, default: str | None = None) -> str:
        """The text at `key`."""
        value = self._get(key, default)
        if not isinstance(value, str):
            self.fail(key, f"{shorten(value)} is not a text", allowed="a text")
        return value

    def group(self, key: str) -> Fields:
        """The settings inside the object at `key`; an empty group where there is none."""
        value = self._get(key, {})
        if not isinstance(value, dict):
            self.fail(key, f"{shorten(value)} is not an object", allowed="an object")
        return Fields(value, f"{self._prefix}{key}.", self.file)

    def any(self, key: str) -> Any:
        """Whatever stands at `key`; None where there is nothing."""
        self._read.add(key)
        return self._values.get(key)

    def expect(self, key: str, *allowed: Any) -> None:
        """Raise UnsupportedError if there is a value at `key` that is none of `allowed`."""
        value = self.any(key)
        if value is not None and not any(
            value == one and isinstance(value, bool) == isinstance(one, bool) for one in allowed
        ):
            shown = ", ".join(str(one).lower() if isinstance(one, bool) else str(one) for one in allowed)
            self.refuse(key, f"{shorten(value)} is not supported", allowed=f"absent, or {shown}" if shown else "absent")

    def refuse_unused(self, harmless: Mapping[str, tuple[Any, ...]], descriptive: frozenset[str]) -> None:
        """Raise UnsupportedError for the first setting that was neither read nor is known to change nothing.

        Args:
            harmless: setting → the values at which it changes nothing.
            descriptive: settings that change nothing at any value.
        """
        for key, value in self._values.items():
            if key in self._read or key in descriptive:
                continue
            if key not in harmless:
                self.refuse(key, f"a setting this runtime does not know, with the value {shorten(value)}")
            if value not in harmless[key]:
                self.refuse(key, f"{shorten(value)} is not supported", allowed=f"absent, or {harmless[key][0]!r}")

    def fail(self, key: str, problem: str, *, allowed: str = "") -> NoReturn:
        """Raise FormatError about the setting."""
        raise FormatError(self.file, self._prefix + key, problem, allowed=allowed)

    def refuse(self, key: str, problem: str, *, allowed: str = "absent") -> NoReturn:
        """Raise UnsupportedError about the setting."""
        raise UnsupportedError(self.file, self._prefix + key, problem, allowed=allowed)

    def _get(self, key: str, default: Any) -> Any:
        value = self.any(key)
        if value is not None:
            return value
        if default is None:
            self.fail(key, "missing")
        return default
