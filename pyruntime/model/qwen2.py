"""Qwen2 and Qwen2.5: as Llama, with a bias on the query, key and value projections.

Yang et al., "Qwen2 Technical Report" (2024).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyruntime.model.decoder import Layer, Shapes, Weights, decoder
from pyruntime.model.decoder import layer_shapes as shared_shapes

if TYPE_CHECKING:
    from pyruntime.model.config import ModelConfig
    from pyruntime.model.ops import H, Ops


def forward(ops: Ops[H], weights: Weights[H]) -> H:
    """Logits (rows wanted, vocab) of the run's ids."""
    return decoder(ops, weights, attention)


def attention(ops: Ops[H], w: Layer[H], layer: int, x: H) -> H:
    """What attention adds to the residual stream, for normalised `x` (n, hidden)."""
    q = ops.rope(ops.linear(x, w["q"], w["q_bias"]))
    k = ops.rope(ops.linear(x, w["k"], w["k_bias"]))
    v = ops.linear(x, w["v"], w["v_bias"])
    return ops.linear(ops.attention(layer, q, k, v), w["o"])


def layer_shapes(config: ModelConfig) -> Shapes:
    """Part → shape of one layer's weights."""
    queries, keys = config.n_heads * config.head_size, config.n_kv_heads * config.head_size
    return shared_shapes(config) | {"q_bias": (queries,), "k_bias": (keys,), "v_bias": (keys,)}
