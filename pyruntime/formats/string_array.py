"""A long list of strings, kept as the bytes it was read from: an item becomes a `str` when it is asked for.

A vocabulary and its merges are some hundred thousand strings, 10 MB of small objects for a file of 1.5 MB. Where compiled
tables of the tokenizer are at hand, nobody asks for a single one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from array import array


class StringArray(Sequence[str]):
    """Equal to any sequence of the same strings.

    Args:
        data: bytes in which the strings lie.
        bounds: where each begins and ends, two numbers for each; all are UTF-8, which has been checked.
    """

    def __init__(self, data: bytes, bounds: array[int]) -> None:
        self._data, self._bounds = data, bounds

    def __len__(self) -> int:
        return len(self._bounds) // 2

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        place = range(len(self))[index]  # a negative one counts from the end
        return self._data[self._bounds[2 * place] : self._bounds[2 * place + 1]].decode()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return repr(list(self))
