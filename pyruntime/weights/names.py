"""The names of weights: ours, and those a GGUF file uses for the same tensors.

Ours are `embedding`, `norm`, `head`, and `layers.N.PART` with the parts below. A model family says which parts it has
and their shapes; `match_gguf` pairs them with the tensors of a file, and refuses by name a file that has not exactly
those. It does not know what a tensor is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyruntime.errors import FormatError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyruntime.formats.gguf import TensorInfo

_GGUF_NAMES = {"embedding": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight"}
_GGUF_LAYER_PARTS = {
    "attention_norm": "attn_norm.weight",
    "q": "attn_q.weight",
    "k": "attn_k.weight",
    "v": "attn_v.weight",
    "o": "attn_output.weight",
    "q_bias": "attn_q.bias",
    "k_bias": "attn_k.bias",
    "v_bias": "attn_v.bias",
    "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight",
    "mlp_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight",
    "up": "ffn_up.weight",
    "down": "ffn_down.weight",
}


def gguf_name(name: str) -> str:
    """The name that a GGUF file gives the weight `name`: `layers.3.q` is `blk.3.attn_q.weight`."""
    if name in _GGUF_NAMES:
        return _GGUF_NAMES[name]
    _, layer, part = name.split(".")
    return f"blk.{layer}.{_GGUF_LAYER_PARTS[part]}"


def match_gguf(
    shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, TensorInfo], *, file: str
) -> dict[str, TensorInfo]:
    """Our name → the file's tensor, for every weight in `shapes`, in the order of `shapes`.

    Args:
        shapes: our name → the shape the model needs, in numpy order.
        tensors: the file's tensors by their GGUF names.
        file: the file's name, for errors.

    Raises:
        FormatError: a tensor is missing, or its shape is another.
        UnsupportedError: the file has a tensor that the model would leave unused.
    """
    matched = {}
    for name, shape in shapes.items():
        tensor = tensors.get(gguf_name(name))
        if tensor is None:
            raise FormatError(file, gguf_name(name), "the tensor is missing", allowed=f"shape {shape}")
        if tensor.shape != shape:
            raise FormatError(file, tensor.name, f"its shape is {tensor.shape}", allowed=str(shape))
        matched[name] = tensor
    if len(matched) < len(tensors):
        extra = min(tensors.keys() - {tensor.name for tensor in matched.values()})
        raise UnsupportedError(
            file,
            extra,
            f"a tensor of shape {tensors[extra].shape} that this architecture does not use",
            allowed="the architecture's own tensors only",
        )
    return matched
