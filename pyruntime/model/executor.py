"""What the engine needs from something that runs a model, whatever it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class Executor(Protocol):
    """A loaded model with its KV cache. Calls block; one at a time."""

    @property
    def name(self) -> str:
        """What it runs on, as the user may choose it: "native", "wasm", "numpy"."""

    @property
    def context(self) -> int:
        """Most positions the KV cache will hold."""

    @property
    def vocab_size(self) -> int:
        """Width of the logits; ids are 0 … vocab_size - 1."""

    @property
    def length(self) -> int:
        """Positions in the KV cache."""

    @property
    def prefill_chunk(self) -> int:
        """How many ids of a prompt to hand over at a time: few enough that a request to stop is heard soon."""

    @property
    def in_8_bits(self) -> tuple[str, ...]:
        """Types of the model's file whose matrices are kept as 8-bit integers, though they were not stored as such."""

    def prefill(self, ids: Sequence[int]) -> None:
        """Append `ids` to the cache without computing logits; errors as `forward`."""

    def forward(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """Append `ids` to the cache; logits (vocab_size,) of the last of them, the caller's own array.

        Raises:
            ParameterError: no ids, or one that is not in the vocabulary.
            ContextOverflowError: they do not fit behind what the cache holds.
            OutOfMemoryError: the cache cannot grow that far.
        After an error the cache is as it was before the call.
        """

    def forward_all(self, ids: Sequence[int]) -> NDArray[np.float32]:
        """As `forward`, but logits (len(ids), vocab_size) of all of them."""

    def truncate(self, length: int) -> None:
        """Forget the positions from `length` on; ParameterError when there are fewer."""

    def reset(self) -> None:
        """Forget all positions."""


@runtime_checkable
class Stoppable(Protocol):
    """What an executor may offer beside `Executor`: to end a call that is under way."""

    def stop(self) -> None:
        """Make the call under way raise StoppedError, within milliseconds; if none is, the next one."""

    def resume(self) -> None:
        """Take back a `stop` that met no call."""

    def stop_word(self) -> Any:
        """What threads outside Python may write 1 into, to the same effect; None where there is nothing of that kind."""


@runtime_checkable
class GivesCandidates(Protocol):
    """What an executor may offer beside `Executor`: the few logits that sampling needs, and a head start."""

    def begin(self, token_id: int) -> None:
        """Start on this token where other threads can, while the caller does something else: it is most likely what comes
        next. Changes nothing that can be seen.
        """

    def forward_candidates(
        self, ids: Sequence[int], below: float, most: int | None
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """As `Executor.forward`, but only the logits of some tokens: the largest.

        Args:
            ids: what to append.
            below: how far under the largest logit one may lie.
            most: how many at most; None for no limit.

        Returns:
            Token ids ascending (n,), and their logits (n,).
        """
