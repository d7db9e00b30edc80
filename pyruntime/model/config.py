"""What a GGUF file's metadata say about its model's shape, checked; and what every description of a shape amounts to.

- `ModelConfig` is all that the forward pass, the cache and the memory estimate need to know.
- Every number has an interval; every key under the architecture's prefix is either used, harmless at the value found,
  or refused by name. Nothing that would change the mathematics is ignored.
- It does not look at weights beyond the embedding's shape, whether there is a separate output head, and the numbers by
  which rotary frequencies are divided, which converters store as a tensor.

Keys: the GGUF specification, "Standardized key-value pairs".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from pyruntime.errors import FormatError, ParameterError, UnsupportedError, shorten
from pyruntime.formats.string_array import StringArray
from pyruntime.model.config_fields import Fields
from pyruntime.model.rope import (
    DividedFrequencies,
    LinearScaling,
    RopeScaling,
    YarnScaling,
    yarn_attention_factor,
)
from pyruntime.weights.loading import read_float32
from pyruntime.weights.names import GGUF_ROPE_DIVISORS, gguf_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyruntime.formats.gguf import GGUFFile
    from pyruntime.formats.source import ByteSource
    from pyruntime.formats.tensor_info import TensorInfo

RopeLayout = Literal["interleaved", "half"]


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer.

    Attributes:
        architecture: "llama", "qwen2" or "qwen3".
        n_layers: number of blocks.
        hidden: width of the residual stream.
        n_heads: query heads.
        n_kv_heads: key and value heads; divides `n_heads`.
        head_size: values per head; `n_heads * head_size` need not be `hidden`.
        ffn: width of the gated feed-forward layer.
        vocab_size: rows of the embedding; ids are 0 … vocab_size - 1.
        context_length: positions the model was trained for.
        rope_theta: base of the rotary frequencies.
        rope_layout: which two values of a head form a rotated pair: neighbours, or the same place in either half.
        norm_eps: added to the mean square in RMS normalisation.
        qk_norm: queries and keys are normalised per head before rotation.
        qkv_bias: the query, key and value projections have a bias.
        tied_embeddings: the output head is the embedding.
        rope_scaling: how the rotary frequencies are changed for a longer context; None if they are not.
    """

    architecture: str
    n_layers: int
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    ffn: int
    vocab_size: int
    context_length: int
    rope_theta: float
    rope_layout: RopeLayout
    norm_eps: float
    qk_norm: bool
    qkv_bias: bool
    tied_embeddings: bool
    rope_scaling: RopeScaling | None = None


@dataclass(frozen=True)
class _Traits:
    """What the architecture's name alone decides."""

    rope_layout: RopeLayout
    qk_norm: bool = False
    qkv_bias: bool = False


# Converters store the query and key rows of `llama` so that rotated pairs are neighbours, and those of the Qwen
# families as published: a pair is the same place in either half.
ARCHITECTURES: Mapping[str, _Traits] = {
    "llama": _Traits("interleaved"),
    "qwen2": _Traits("half", qkv_bias=True),
    "qwen3": _Traits("half", qk_norm=True),
}

# Keys that change nothing at these values; at others they ask for something the forward pass does not do.
_HARMLESS_AT: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "rope.scale_linear": (1.0,),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (1.0,),
    "rope.scaling.yarn_log_multiplier": (0.0,),
    "use_parallel_residual": (False,),
}
# Keys that only describe: the tensors are in the same order, and the angles the same, whatever they say.
_DESCRIPTIVE = frozenset({"rope.scaling.finetuned", "tensor_data_layout"})
_ROPE_SCALINGS = ("none", "linear", "yarn")
THETA_INTERVAL = (1.01, 1e12)
LARGEST_FACTOR = 1e6  # by which a context can have grown
MAX_HEAD = 1024


async def read_gguf_config(file: GGUFFile, source: ByteSource) -> ModelConfig:
    """The configuration of the model in a GGUF file.

    Args:
        file: the file's header.
        source: the file.

    Raises:
        FormatError, UnsupportedError: as `config_from_gguf`.
    """
    tensor, divisors = file.tensors.get(GGUF_ROPE_DIVISORS), None
    if tensor is not None and file.metadata.get("general.architecture") == "llama":
        divisors = await _read_divisors(tensor, source)
    return config_from_gguf(file.metadata, file.tensors, file.name, divisors)


def config_from_gguf(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, TensorInfo],
    name: str,
    divisors: tuple[float, ...] | None = None,
) -> ModelConfig:
    """The configuration of the model in a GGUF file.

    Args:
        metadata: the file's metadata.
        tensors: the file's tensors; the embedding gives the vocabulary's size, a missing head means it is tied.
        name: the file's name, for errors.
        divisors: the values of the tensor `GGUF_ROPE_DIVISORS`, if the file of a llama has it.

    Raises:
        UnsupportedError: the architecture, or a key that changes the mathematics, is not supported.
        FormatError: a field is missing, of the wrong type, out of its interval, or contradicts another.
    """
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        found = "missing" if architecture is None else f"{shorten(architecture)} is not a name"
        raise FormatError(name, "general.architecture", found, allowed=", ".join(ARCHITECTURES))
    if architecture not in ARCHITECTURES:
        allowed = ", ".join(ARCHITECTURES)
        raise UnsupportedError(
            name, "general.architecture", f"{shorten(architecture)} is not supported", allowed=allowed
        )
    if GGUF_ROPE_DIVISORS in tensors and architecture != "llama":
        raise UnsupportedError(name, GGUF_ROPE_DIVISORS, f"a tensor that {architecture} does not use", allowed="absent")
    if (divisors is None) == (GGUF_ROPE_DIVISORS in tensors):
        raise ParameterError("divisors", divisors, f"the values of {GGUF_ROPE_DIVISORS}, where the file has it")
    prefix = f"{architecture}."
    own = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    fields = Fields(own, prefix, name)
    n_heads = fields.integer("attention.head_count", 1, 1024)
    n_kv_heads = fields.integer("attention.head_count_kv", 1, n_heads, default=n_heads)
    if n_heads % n_kv_heads:
        fields.fail("attention.head_count_kv", f"{n_kv_heads} does not divide the {n_heads} query heads")
    hidden = fields.integer("embedding_length", 1, 1 << 16)
    head_size = _head_size(fields, hidden, n_heads)
    context_length = fields.integer("context_length", 1, 1 << 24)
    scaling = _rope_scaling(fields, context_length)
    if divisors is not None:
        scaling = _divided(divisors, head_size, scaling, name)
    config = ModelConfig(
        architecture=architecture,
        n_layers=fields.integer("block_count", 1, 1024),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_size=head_size,
        ffn=fields.integer("feed_forward_length", 1, 1 << 20),
        context_length=context_length,
        rope_theta=fields.number("rope.freq_base", *THETA_INTERVAL, default=10_000.0),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon", 0.0, 0.1),
        vocab_size=_vocab_size(fields, tensors, hidden, metadata.get("tokenizer.ggml.tokens")),
        tied_embeddings=gguf_name("head") not in tensors,
        rope_scaling=scaling,
        **vars(ARCHITECTURES[architecture]),
    )
    fields.refuse_unused(_HARMLESS_AT, _DESCRIPTIVE)
    return config


def _head_size(fields: Fields, hidden: int, n_heads: int) -> int:
    """Values per head: said outright, or the hidden width divided among the heads."""
    head_size = fields.integer("attention.key_length", 1, MAX_HEAD, default=hidden // n_heads)
    if "attention.key_length" not in fields and hidden % n_heads:
        fields.fail("attention.head_count", f"{n_heads} heads do not divide the hidden width {hidden}")
    if head_size % 2:
        fields.fail(
            "attention.key_length", f"{head_size} is odd", allowed="an even number: values are rotated in pairs"
        )
    for key in ("attention.value_length", "rope.dimension_count"):
        other = fields.integer(key, 1, 1 << 16, default=head_size)
        if other != head_size:
            fields.refuse(key, f"{other} while heads have {head_size} values", allowed=str(head_size))
    return head_size


def _rope_scaling(fields: Fields, context_length: int) -> RopeScaling | None:
    """What `rope.scaling` says. A factor without a type is a linear one, as in llama.cpp."""
    factor = fields.number("rope.scaling.factor", 1.0, LARGEST_FACTOR, default=1.0)
    kind = fields.text("rope.scaling.type", default="linear")
    if kind not in _ROPE_SCALINGS:
        fields.refuse("rope.scaling.type", f"{shorten(kind)} is not supported", allowed=", ".join(_ROPE_SCALINGS))
    if kind == "yarn":
        beta_slow = fields.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, default=1.0)
        # The file's factor is beside the recommended stretch, not in its place.
        stretch = yarn_attention_factor(factor) * fields.number("rope.scaling.attn_factor", 1e-3, 1e3, default=1.0)
        return YarnScaling(
            factor=factor,
            original_context=fields.integer("rope.scaling.original_context_length", 1, 1 << 24, default=context_length),
            attention_factor=stretch,
            beta_fast=fields.number("rope.scaling.yarn_beta_fast", beta_slow, 1e6, default=max(32.0, beta_slow)),
            beta_slow=beta_slow,
        )
    return LinearScaling(factor) if kind == "linear" and factor != 1 else None


async def _read_divisors(tensor: TensorInfo, source: ByteSource) -> tuple[float, ...]:
    if len(tensor.shape) != 1 or tensor.shape[0] > MAX_HEAD // 2:
        allowed = "one number for each pair of a head"
        raise FormatError(source.name, tensor.name, f"its shape is {tensor.shape}", allowed=allowed)
    values = np.empty(tensor.shape, np.float32)
    await read_float32(source, tensor, values)
    if values.min() <= 0:
        raise FormatError(source.name, tensor.name, f"a value is {values.min()}", allowed="positive numbers")
    return tuple(map(float, values))


def _divided(divisors: tuple[float, ...], head_size: int, other: RopeScaling | None, name: str) -> DividedFrequencies:
    """The scaling by a list of numbers, which must fit the model and be the only one."""
    if other is not None:
        raise UnsupportedError(name, GGUF_ROPE_DIVISORS, "beside another scaling", allowed="one of the two")
    if len(divisors) != head_size // 2:
        raise FormatError(name, GGUF_ROPE_DIVISORS, f"{len(divisors)} values", allowed=str(head_size // 2))
    return DividedFrequencies(divisors)


def _vocab_size(fields: Fields, tensors: Mapping[str, TensorInfo], hidden: int, tokens: Any) -> int:
    """Rows of the embedding; what the metadata say about the vocabulary must agree."""
    name = gguf_name("embedding")
    if name not in tensors:
        raise FormatError(fields.file, name, "the tensor is missing", allowed=f"shape (vocabulary, {hidden})")
    shape = tensors[name].shape
    if len(shape) != 2 or not 1 <= shape[0] < 1 << 24:
        raise FormatError(fields.file, name, f"its shape is {shape}", allowed=f"(1…{(1 << 24) - 1}, {hidden})")
    rows = shape[0]
    said = fields.integer("vocab_size", 1, 1 << 24, default=rows)
    if said != rows:
        fields.fail("vocab_size", f"{said} while the embedding has {rows} rows", allowed=str(rows))
    if isinstance(tokens, list | StringArray) and len(tokens) > rows:
        problem = f"{len(tokens)} tokens while the embedding has {rows} rows"
        raise FormatError(fields.file, "tokenizer.ggml.tokens", problem, allowed=f"at most {rows}")
    return rows
