"""Llama: grouped-query attention with rotary positions, nothing else (Llama 2 and 3, SmolLM2).

Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023) and its successors.
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
    q = ops.rope(ops.linear(x, w["q"]))
    k = ops.rope(ops.linear(x, w["k"]))
    v = ops.linear(x, w["v"])
    return ops.linear(ops.attention(layer, q, k, v), w["o"])


def layer_shapes(config: ModelConfig) -> Shapes:
    """Part → shape of one layer's weights."""
    return shared_shapes(config)
