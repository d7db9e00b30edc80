"""What the model families share: the pre-norm decoder around their attention, its gated MLP, and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic

from pyruntime.model.ops import H, Ops

if TYPE_CHECKING:
    from pyruntime.model.config import ModelConfig

Layer = Mapping[str, H]
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Weights(Generic[H]):
    """Handles of all weights; `layers[n]` maps a part's name ("q", "gate" …) to its handle."""

    embedding: H  # (vocab, hidden)
    layers: tuple[Layer[H], ...]
    norm: H  # (hidden,)
    head: H  # (vocab, hidden); the embedding's handle when they are tied

    @classmethod
    def from_names(cls, handles: Mapping[str, H], n_layers: int) -> Weights[H]:
        """Weights from handles by their full names, as `weight_shapes` lists them."""
        layers = []
        for n in range(n_layers):
            prefix = f"layers.{n}."
            layers.append({name.removeprefix(prefix): h for name, h in handles.items() if name.startswith(prefix)})
        embedding = handles["embedding"]
        return cls(embedding, tuple(layers), handles["norm"], handles.get("head", embedding))


def decoder(ops: Ops[H], weights: Weights[H], attention: Callable[[Ops[H], Layer[H], int, H], H]) -> H:
    """Logits (rows wanted, vocab) of the run's ids.

    Args:
        ops: the operations, with the run's ids and position.
        weights: handles of the weights.
        attention: the family's attention: (ops, layer's weights, layer's number, normalised x) → what is added to x.
    """
    x = ops.embed(weights.embedding)
    for n, w in enumerate(weights.layers):
        x = ops.add(x, attention(ops, w, n, ops.rms_norm(x, w["attention_norm"])))
        x = ops.add(x, mlp(ops, w, ops.rms_norm(x, w["mlp_norm"])))
    # Rows are dropped before the head, which alone is a fifth of a small model's work.
    x = ops.rms_norm(ops.output_rows(x), weights.norm)
    return ops.linear(x, weights.head)


def mlp(ops: Ops[H], w: Layer[H], x: H) -> H:
    """The gated feed-forward layer: `down(silu(gate(x)) * up(x))`."""
    return ops.linear(ops.silu_mul(ops.linear(x, w["gate"]), ops.linear(x, w["up"])), w["down"])


def layer_shapes(config: ModelConfig) -> Shapes:
    """Part → shape of one layer's weights, those that every family has."""
    queries, keys = config.n_heads * config.head_size, config.n_kv_heads * config.head_size
    return {
        "attention_norm": (config.hidden,),
        "q": (queries, config.hidden),
        "k": (keys, config.hidden),
        "v": (keys, config.hidden),
        "o": (config.hidden, queries),
        "mlp_norm": (config.hidden,),
        "gate": (config.ffn, config.hidden),
        "up": (config.ffn, config.hidden),
        "down": (config.hidden, config.ffn),
    }
