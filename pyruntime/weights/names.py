"""The names of weights: ours, and those that files use for the same tensors.

Ours are `embedding`, `norm`, `head`, and `layers.N.PART` with the parts below. A model family says which parts it has
and their shapes; `match_tensors` pairs them with the tensors of a file, and refuses by name a file that has not exactly
those. It does not know what a tensor is for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyruntime.errors import FormatError, UnsupportedError, label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyruntime.formats.tensor_info import TensorInfo

# Not a weight but a setting: the numbers by which the frequencies of rotary pairs are divided.
GGUF_ROPE_DIVISORS = "rope_freqs.weight"

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
_HF_NAMES = {"embedding": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}
_HF_LAYER_PARTS = {
    "attention_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


def gguf_name(name: str) -> str:
    """The name that a GGUF file gives the weight `name`: `layers.3.q` is `blk.3.attn_q.weight`."""
    if name in _GGUF_NAMES:
        return _GGUF_NAMES[name]
    _, layer, part = name.split(".")
    return f"blk.{layer}.{_GGUF_LAYER_PARTS[part]}"


def hf_name(name: str) -> str:
    """The name that a Hugging Face model gives the weight `name`: `layers.3.q` is `model.layers.3.self_attn.q_proj.weight`."""
    if name in _HF_NAMES:
        return _HF_NAMES[name]
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{_HF_LAYER_PARTS[part]}"


def match_tensors(
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, TensorInfo],
    name_of: Callable[[str], str],
    *,
    file: str,
) -> dict[str, TensorInfo]:
    """Our name → the file's tensor, for every weight in `shapes`, in the order of `shapes`.

    Args:
        shapes: our name → the shape the model needs, in numpy order.
        tensors: the file's tensors by their own names.
        name_of: our name → the file's: `gguf_name` or `hf_name`.
        file: the name of the file or folder, for errors about what is missing.

    Raises:
        FormatError: a tensor is missing, or its shape is another.
        UnsupportedError: there is a tensor that the model would leave unused.
    """
    matched = {}
    for name, shape in shapes.items():
        tensor = tensors.get(name_of(name))
        if tensor is None:
            raise FormatError(file, name_of(name), "the tensor is missing", allowed=f"shape {shape}")
        if tensor.shape != shape:
            raise FormatError(file, tensor.name, f"its shape is {tensor.shape}", allowed=str(shape))
        matched[name] = tensor
    if len(matched) < len(tensors):
        extra = min(tensors.keys() - {tensor.name for tensor in matched.values()})
        raise UnsupportedError(
            file,
            label(extra),
            f"a tensor of shape {tensors[extra].shape} that this architecture does not use",
            allowed="the architecture's own tensors only",
        )
    return matched
