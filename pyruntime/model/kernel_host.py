"""What runs the kernels, seen from Python: an arena of memory and a few calls. One implementation for each kind of place
(`native_host.py`: a library loaded into CPython; a WebAssembly module in the browser).

Places are in units of `UNIT` bytes from the start of the arena, as everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pyruntime.formats.source import ByteSource
    from pyruntime.model.kernel_weights import RowRange


class KernelHost(Protocol):
    """An arena and the kernels' exports. Calls block, except `load_rows`."""

    @property
    def name(self) -> str:
        """The executor's name, as the user may choose it."""

    @property
    def takes_bytes(self) -> bool:
        """Whether 4-bit weights take activations as bytes; otherwise as 16-bit integers, always."""

    @property
    def threads(self) -> int:
        """Threads that can take part in a run, the caller's included."""

    @property
    def spin(self) -> int:
        """How often a waiting thread looks before it sleeps: some tens of microseconds."""

    def allocate(self, n_bytes: int) -> None:
        """Make the arena, zeroed, once; MemoryError when it cannot be had."""

    def write(self, place: int, data: NDArray[np.generic] | bytes) -> None:
        """Copy `data` to a place."""

    def read(self, place: int, n_bytes: int) -> NDArray[np.uint8]:
        """A copy of the bytes at a place; the caller's own."""

    async def load_rows(self, source: ByteSource, rows: RowRange, staging: int) -> int:
        """Read a range of a file's rows and repack it; the kernels' verdict, 0 when all is well.

        `staging` is a place with room for the range's bytes, free while weights are read.
        """

    def run(self, threads: int, n_tokens: int, position: int, n_output: int) -> int:
        """One run of the program in the arena by so many threads; a number of the ABI's OUTCOME."""

    def begin(self, threads: int, token_id: int, position: int) -> None:
        """Let the helping threads begin a run over one token, whose logits are wanted; nothing of it may be written or read
        before `finish`.
        """

    def finish(self) -> int:
        """Take part in what was begun until it is done; as `run`."""

    def candidates(
        self, place: int, peaks: int, n: int, below: float, most: int, found: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]] | None:
        """Ids and values of the `most` largest of `n` logits that are at most `below` under the largest; None if one of
        all is not finite. Ids are ascending if there are fewer than `most`.

        `peaks` is where LINEAR left the logits' peaks, `found` a place with 8 bytes for each candidate.
        """

    def stop_word(self) -> Any:
        """The stop word in the form in which threads outside Python may write it; None when there is none."""

    def close(self) -> None:
        """Send the helping threads home and give the arena back."""
