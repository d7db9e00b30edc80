"""Where one tensor lies, whatever the container."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies.

    Attributes:
        name: the tensor's name in the file.
        shape: in numpy's order, (rows, columns).
        type: a key of `TENSOR_TYPES`.
        offset: of its first byte, from the start of the file.
        nbytes: bytes of its data.
        file: the name of the file it is in; a model may have several.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    offset: int
    nbytes: int
    file: str = "<bytes>"

    @property
    def place(self) -> tuple[str, int]:
        """By which tensors are sorted to be read from the beginning of each file to its end."""
        return self.file, self.offset
