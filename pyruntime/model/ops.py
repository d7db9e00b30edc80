"""The operations a forward pass is written in.

A model file (`llama.py`, `qwen3.py` …) calls these on handles it never looks into. One implementation computes at once
(`numpy_ops.py`: a handle is an array); another may only take notes (a handle is then a register) and replay them, so a
model file must not branch on data, nor ask a handle for anything.

What differs from run to run — the ids, the position of the first of them in the cache, and which rows of logits are
wanted — belongs to the run, and no operation takes it as an argument. What is fixed for a model — head size, epsilon,
rotation tables — belongs to the implementation.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

H = TypeVar("H")


class Ops(Protocol[H]):
    """Operations over handles of type `H`; in the shapes, n is the number of ids of the run."""

    def embed(self, table: H) -> H:
        """The rows of `table` (vocab, hidden) for the ids of the run: (n, hidden)."""

    def rms_norm(self, x: H, weight: H) -> H:
        """`x` (n, k·width), each run of `width` values divided by its root mean square, times `weight` (width,)."""

    def linear(self, x: H, weight: H, bias: H | None = None) -> H:
        """`x @ weight.T + bias` for `x` (n, inputs), `weight` (outputs, inputs), `bias` (outputs,): (n, outputs)."""

    def rope(self, x: H) -> H:
        """`x` (n, heads·head_size), pairs of each head rotated by the angles of their row's position."""

    def attention(self, layer: int, q: H, k: H, v: H) -> H:
        """Causal attention of the run's queries over the cache of `layer`, to which the run's keys and values are added.

        `q` is (n, n_heads·head_size), `k` and `v` (n, n_kv_heads·head_size); the result has the shape of `q`. Each
        key and value head serves n_heads / n_kv_heads neighbouring query heads.
        """

    def silu_mul(self, gate: H, up: H) -> H:
        """`silu(gate) * up`, value by value."""

    def add(self, x: H, y: H) -> H:
        """`x + y`, value by value."""

    def output_rows(self, x: H) -> H:
        """The rows of `x` (n, width) whose logits the run wants: all, the last one, or none."""
