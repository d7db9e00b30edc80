"""Random models of every family, the same on every machine: weights and ids come from raw PCG64 words of a seed.

The words are mapped to numbers here and not by a distribution of numpy's, whose streams may change between releases.
Weights are made in the row order in which models are published; `gguf_file` reorders them as converters do, `hf_files`
writes them as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from pyruntime.formats.model_files import CONFIG, WEIGHTS
from pyruntime.model.config import ModelConfig
from pyruntime.model.families import weight_shapes
from pyruntime.model.rope import LinearScaling, Llama3Scaling, YarnScaling, frequencies, yarn_attention_factor
from pyruntime.weights.names import GGUF_ROPE_DIVISORS, gguf_name, hf_name
from tests.gguf_writer import gguf_bytes
from tests.safetensors_writer import safetensors_bytes
from tests.stored_tensors import quantize


@dataclass(frozen=True)
class RandomModel:
    """A model to compare.

    Attributes:
        config: its shape; everything else follows from it and from `seed`.
        seed: of weights and ids.
        n_ids: length of the input.
        positions: those whose logits are compared; all when None.
    """

    config: ModelConfig
    seed: int
    n_ids: int
    positions: tuple[int, ...] | None = None

    @property
    def ids(self) -> list[int]:
        words = np.random.PCG64(self.seed + 1_000_000).random_raw(self.n_ids)
        return [int(word) for word in words % np.uint64(self.config.vocab_size)]

    def compared_positions(self) -> list[int]:
        return list(range(self.n_ids) if self.positions is None else self.positions)


def _config(architecture: str, **values) -> ModelConfig:
    defaults = {
        "context_length": 2048,
        "rope_layout": "interleaved" if architecture == "llama" else "half",
        "rope_theta": 10_000.0,
        "norm_eps": 1e-5,
        "qk_norm": architecture == "qwen3",
        "qkv_bias": architecture == "qwen2",
        "tied_embeddings": True,
    }
    return ModelConfig(architecture=architecture, **(defaults | values))


def _sizes(n_layers, hidden, n_heads, n_kv_heads, head_size, ffn, vocab_size) -> dict:
    return {
        "n_layers": n_layers, "hidden": hidden, "n_heads": n_heads, "n_kv_heads": n_kv_heads, "head_size": head_size,
        "ffn": ffn, "vocab_size": vocab_size,
    }  # fmt: skip


_FAR = (0, 1, 63, 64, 65, 127, 128, 255, 256, 257, 511, 1023, 1024, 1499)

MODELS = {
    # Sizes are uneven on purpose, and two epsilons large: no transposed or padded matrix and no forgotten epsilon may go
    # unnoticed.
    "llama, 3 queries per key, tied": RandomModel(
        _config("llama", **_sizes(3, 54, 6, 2, 10, 77, 101), norm_eps=0.02), 1, 16
    ),
    "llama, a key per query, own head, far": RandomModel(
        _config("llama", **_sizes(2, 44, 4, 4, 12, 65, 83), tied_embeddings=False, rope_theta=500_000.0), 2, 1500, _FAR
    ),
    "qwen2, 2 queries per key, own head": RandomModel(
        _config("qwen2", **_sizes(2, 48, 4, 2, 12, 71, 97), tied_embeddings=False, norm_eps=1e-6), 3, 16
    ),
    "qwen3, 2 queries per key, tied": RandomModel(
        _config("qwen3", **_sizes(3, 37, 4, 2, 14, 53, 89), norm_eps=0.01), 4, 16
    ),
    "qwen3, one key for all, own head, far": RandomModel(
        _config("qwen3", **_sizes(2, 42, 3, 1, 16, 59, 79), tied_embeddings=False, rope_theta=1e6, norm_eps=1e-6),
        5,
        1500,
        _FAR,
    ),
    # The frequencies of these have fast, slow and mixed pairs, and 1,500 positions are far beyond the first training.
    "llama, scaled as Llama 3, far": RandomModel(
        _config(
            "llama",
            **_sizes(2, 52, 4, 2, 16, 61, 73),
            rope_theta=500_000.0,
            rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 64),
        ),
        8,
        1500,
        _FAR,
    ),
    "llama, scaled as YaRN, far": RandomModel(
        _config(
            "llama",
            **_sizes(2, 44, 4, 2, 14, 55, 71),
            rope_scaling=YarnScaling(16.0, 128, yarn_attention_factor(16.0)),
        ),
        9,
        1500,
        _FAR,
    ),
    "qwen3, scaled as YaRN in its own way, far": RandomModel(
        _config(
            "qwen3",
            **_sizes(2, 40, 4, 2, 12, 57, 67),
            rope_theta=1e6,
            rope_scaling=YarnScaling(4.0, 512, yarn_attention_factor(4.0) * 1.25, beta_fast=24.0, beta_slow=2.0),
        ),
        10,
        1500,
        _FAR,
    ),
    "qwen2, scaled evenly, far": RandomModel(
        _config("qwen2", **_sizes(2, 44, 4, 2, 10, 63, 69), rope_scaling=LinearScaling(2.5)), 11, 1500, _FAR
    ),
    # Two layers at the sizes of real models, with a short vocabulary.
    "SmolLM2-135M's sizes": RandomModel(_config("llama", **_sizes(2, 576, 9, 3, 64, 1536, 131), rope_theta=1e5), 6, 16),
    "Qwen3-0.6B's sizes": RandomModel(
        _config("qwen3", **_sizes(2, 1024, 16, 8, 128, 3072, 139), rope_theta=1e6, norm_eps=1e-6), 7, 16
    ),
}


def weights(model: RandomModel) -> dict[str, np.ndarray]:
    """Our name → float32 array, in published row order.

    Matrices have the variance 1 / inputs, queries and keys four times that, so that attention is not uniform.
    """
    words = np.random.PCG64(model.seed)
    arrays = {}
    for name, shape in weight_shapes(model.config).items():
        top_bits = words.random_raw(prod(shape)) >> np.uint64(40)
        uniform = (top_bits.astype(np.float64) / 2**23 - 1).astype(np.float32).reshape(shape)  # [-1, 1)
        part = name.rpartition(".")[2]
        if part.endswith("norm"):
            array = 1 + uniform * np.float32(0.25)
        elif part.endswith("bias"):
            array = uniform
        else:
            gain = {"q": 2.0, "k": 2.0, "embedding": shape[-1] ** 0.5}.get(part, 1.0)
            array = uniform * np.float32(gain * (3 / shape[-1]) ** 0.5)
        arrays[name] = array
    return arrays


def digest(arrays: dict[str, np.ndarray]) -> str:
    """SHA-256 of all weights."""
    total = hashlib.sha256()
    for name, array in arrays.items():
        total.update(name.encode() + array.astype("<f4").tobytes())
    return total.hexdigest()


def gguf_file(
    model: RandomModel, arrays: dict[str, np.ndarray], type_of: Callable[[str], str] = lambda name: "F32"
) -> bytes:
    """The model as a converter would write it, each matrix in the type that `type_of` gives for our name of it."""
    config, prefix = model.config, model.config.architecture
    metadata = {
        "general.architecture": prefix,
        f"{prefix}.block_count": config.n_layers,
        f"{prefix}.context_length": config.context_length,
        f"{prefix}.embedding_length": config.hidden,
        f"{prefix}.feed_forward_length": config.ffn,
        f"{prefix}.attention.head_count": config.n_heads,
        f"{prefix}.attention.head_count_kv": config.n_kv_heads,
        f"{prefix}.attention.key_length": config.head_size,
        f"{prefix}.attention.value_length": config.head_size,
        f"{prefix}.attention.layer_norm_rms_epsilon": config.norm_eps,
        f"{prefix}.rope.freq_base": config.rope_theta,
    }
    metadata |= {f"{prefix}.rope.scaling.{key}": value for key, value in gguf_scaling(config).items()}
    tensors = {}
    if isinstance(config.rope_scaling, Llama3Scaling):
        divisors = rope_divisors(config)
        tensors[GGUF_ROPE_DIVISORS] = ("F32", divisors.shape, divisors.tobytes())
    for name, array in arrays.items():
        stored = _neighbours(array, config.head_size) if prefix == "llama" and name.endswith((".q", ".k")) else array
        type_ = type_of(name) if stored.ndim > 1 else "F32"
        tensors[gguf_name(name)] = (type_, stored.shape, quantize(stored, type_))
    return gguf_bytes(metadata, tensors)


def gguf_scaling(config: ModelConfig) -> dict:
    """What stands under `rope.scaling.` in a GGUF file."""
    scaling = config.rope_scaling
    if isinstance(scaling, LinearScaling):
        return {"type": "linear", "factor": scaling.factor}
    if isinstance(scaling, YarnScaling):
        return {
            "type": "yarn",
            "factor": scaling.factor,
            "original_context_length": scaling.original_context,
            "attn_factor": scaling.attention_factor / yarn_attention_factor(scaling.factor),
            "yarn_beta_fast": scaling.beta_fast,
            "yarn_beta_slow": scaling.beta_slow,
        }
    return {}


def rope_divisors(config: ModelConfig) -> np.ndarray:
    """What a converter makes of the scaling of Llama 3: the quotient of plain and scaled frequencies."""
    plain = frequencies(config.head_size, config.rope_theta)
    return plain / frequencies(config.head_size, config.rope_theta, config.rope_scaling)


def rope_parameters(config: ModelConfig) -> dict:
    """The rotary settings as transformers 5 writes them."""
    scaling, base = config.rope_scaling, {"rope_theta": config.rope_theta}
    if scaling is None:
        return base | {"rope_type": "default"}
    if isinstance(scaling, LinearScaling):
        return base | {"rope_type": "linear", "factor": scaling.factor}
    base |= {"factor": scaling.factor, "original_max_position_embeddings": scaling.original_context}
    if isinstance(scaling, Llama3Scaling):
        freq = {"low_freq_factor": scaling.low_freq_factor, "high_freq_factor": scaling.high_freq_factor}
        return base | freq | {"rope_type": "llama3"}
    betas = {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
    return base | betas | {"rope_type": "yarn", "attention_factor": scaling.attention_factor}


def hf_config(config: ModelConfig) -> dict:
    """The settings in the config.json of such a model."""
    return {
        "architectures": [f"{config.architecture.capitalize()}ForCausalLM"],
        "model_type": config.architecture,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden,
        "intermediate_size": config.ffn,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_size,
        "max_position_embeddings": config.context_length,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": rope_parameters(config),
        "tie_word_embeddings": config.tied_embeddings,
        "attention_bias": False,
    }


def hf_files(model: RandomModel, arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    """The model as it would be published, without a tokenizer: file name → content."""
    tensors = {hf_name(name): ("F32", array.shape, array.astype("<f4").tobytes()) for name, array in arrays.items()}
    return {CONFIG: json.dumps(hf_config(model.config)).encode(), WEIGHTS: safetensors_bytes(tensors)}


def _neighbours(rows: np.ndarray, head_size: int) -> np.ndarray:
    """Rows of each head reordered so that those at the same place in either half come to stand side by side."""
    heads = rows.reshape(-1, 2, head_size // 2, rows.shape[-1])
    return heads.swapaxes(1, 2).reshape(rows.shape)
