"""Which file holds the forward pass of which architecture, and the weights each needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyruntime.model import llama, qwen2, qwen3

if TYPE_CHECKING:
    from types import ModuleType

    from pyruntime.model.config import ModelConfig
    from pyruntime.model.decoder import Shapes, Weights
    from pyruntime.model.ops import H, Ops

_FAMILIES: dict[str, ModuleType] = {"llama": llama, "qwen2": qwen2, "qwen3": qwen3}


def forward(config: ModelConfig, ops: Ops[H], weights: Weights[H]) -> H:
    """Logits (rows wanted, vocab) of the run's ids, by the forward pass of the configuration's architecture."""
    logits: H = _FAMILIES[config.architecture].forward(ops, weights)
    return logits


def weight_shapes(config: ModelConfig) -> Shapes:
    """Name → shape, in numpy order, of every weight of the model; names as in `weights/names.py`."""
    shapes: Shapes = {"embedding": (config.vocab_size, config.hidden)}
    layer = _FAMILIES[config.architecture].layer_shapes(config)
    for n in range(config.n_layers):
        shapes |= {f"layers.{n}.{part}": shape for part, shape in layer.items()}
    shapes["norm"] = (config.hidden,)
    if not config.tied_embeddings:
        shapes["head"] = (config.vocab_size, config.hidden)
    return shapes
