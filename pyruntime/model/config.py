"""What a model's metadata say about its shape, checked.

- `ModelConfig` is all that the forward pass, the cache and the memory estimate need to know.
- Every number has an interval; every key under the architecture's prefix is either used, harmless at the value found,
  or refused by name. Nothing that would change the mathematics is ignored.
- It does not look at weights beyond the embedding's shape and whether there is a separate output head.

Keys: the GGUF specification, "Standardized key-value pairs".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from pyruntime.errors import FormatError, UnsupportedError, shorten
from pyruntime.weights.names import gguf_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyruntime.formats.gguf import TensorInfo

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
    "rope.scaling.factor": (1.0,),
    "rope.scaling.finetuned": (False,),
    "rope.scaling.type": ("none",),
    "use_parallel_residual": (False,),
}
# Keys that only describe: the tensors are in the same order whatever it says.
_DESCRIPTIVE = frozenset({"tensor_data_layout"})


def config_from_gguf(metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo], name: str) -> ModelConfig:
    """The configuration of the model in a GGUF file.

    Args:
        metadata: the file's metadata.
        tensors: the file's tensors; the embedding gives the vocabulary's size, a missing head means it is tied.
        name: the file's name, for errors.

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
    fields = _Fields(metadata, architecture, name)
    n_heads = fields.integer("attention.head_count", 1, 1024)
    n_kv_heads = fields.integer("attention.head_count_kv", 1, n_heads, default=n_heads)
    if n_heads % n_kv_heads:
        fields.fail("attention.head_count_kv", f"{n_kv_heads} does not divide the {n_heads} query heads")
    hidden = fields.integer("embedding_length", 1, 1 << 16)
    config = ModelConfig(
        architecture=architecture,
        n_layers=fields.integer("block_count", 1, 1024),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_size=_head_size(fields, hidden, n_heads),
        ffn=fields.integer("feed_forward_length", 1, 1 << 20),
        context_length=fields.integer("context_length", 1, 1 << 24),
        rope_theta=fields.number("rope.freq_base", 1.0, 1e12, default=10_000.0),
        norm_eps=fields.number("attention.layer_norm_rms_epsilon", 0.0, 0.1),
        vocab_size=_vocab_size(fields, tensors, hidden),
        tied_embeddings=gguf_name("head") not in tensors,
        **vars(ARCHITECTURES[architecture]),
    )
    fields.refuse_unused()
    return config


def _head_size(fields: _Fields, hidden: int, n_heads: int) -> int:
    """Values per head: said outright, or the hidden width divided among the heads."""
    head_size = fields.integer("attention.key_length", 1, 1024, default=hidden // n_heads)
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


def _vocab_size(fields: _Fields, tensors: Mapping[str, TensorInfo], hidden: int) -> int:
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
    tokens = fields.metadata.get("tokenizer.ggml.tokens", ())
    if len(tokens) > rows:
        problem = f"{len(tokens)} tokens while the embedding has {rows} rows"
        raise FormatError(fields.file, "tokenizer.ggml.tokens", problem, allowed=f"at most {rows}")
    return rows


class _Fields:
    """The metadata under an architecture's prefix, with a record of which were read."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str, file: str) -> None:
        self.metadata, self.file = metadata, file
        self._prefix = f"{architecture}."
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._prefix + key in self.metadata

    def integer(self, key: str, lowest: int, highest: int, *, default: int | None = None) -> int:
        """The integer at `key`, which must lie in lowest … highest."""
        value = self._get(key, default)
        allowed = f"an integer from {lowest} to {highest}"
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{shorten(value)} is not an integer", allowed=allowed)
        if not lowest <= value <= highest:
            self.fail(key, f"{value} is out of range", allowed=allowed)
        return int(value)

    def number(self, key: str, lowest: float, highest: float, *, default: float | None = None) -> float:
        """The number at `key`, which must be finite and lie in lowest … highest."""
        value = self._get(key, default)
        allowed = f"a number from {lowest:g} to {highest:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(key, f"{shorten(value)} is not a number", allowed=allowed)
        if not (math.isfinite(value) and lowest <= value <= highest):
            self.fail(key, f"{value:g} is out of range", allowed=allowed)
        return float(value)

    def refuse_unused(self) -> None:
        """Raise UnsupportedError for the first key that was neither read nor is harmless."""
        for full_key, value in self.metadata.items():
            key = full_key.removeprefix(self._prefix)
            if key == full_key or key in self._read or key in _DESCRIPTIVE:
                continue
            harmless = _HARMLESS_AT.get(key)
            if harmless is None:
                self.refuse(key, f"a setting this runtime does not know, with the value {shorten(value)}")
            if value not in harmless:
                self.refuse(key, f"{shorten(value)} is not supported", allowed=f"absent, or {harmless[0]!r}")

    def fail(self, key: str, problem: str, *, allowed: str = "") -> NoReturn:
        raise FormatError(self.file, self._prefix + key, problem, allowed=allowed)

    def refuse(self, key: str, problem: str, *, allowed: str = "absent") -> NoReturn:
        raise UnsupportedError(self.file, self._prefix + key, problem, allowed=allowed)

    def _get(self, key: str, default: float | None) -> Any:
        self._read.add(key)
        value = self.metadata.get(self._prefix + key, default)
        if value is None:
            self.fail(key, "missing")
        return value
