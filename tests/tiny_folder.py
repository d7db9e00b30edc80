"""The tiny model of `tiny_model.py` as a folder of the kind Hugging Face models come in: the same weights and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from pyruntime.formats.model_files import (
    CHAT_TEMPLATE,
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    WEIGHTS,
    WEIGHTS_INDEX,
    ModelFiles,
)
from pyruntime.formats.source import BytesSource
from pyruntime.weights.names import gguf_name, hf_name
from tests import tiny_model
from tests.safetensors_writer import Tensor, bf16_bytes, safetensors_bytes
from tests.tiny_model import CONTEXT, CONTROL, FFN, HEADS, HIDDEN, IM_END, KV_HEADS, LAYERS, PAD, TAGS, TEMPLATE, VOCAB

PARTS = ("attention_norm", "q", "k", "v", "o", "mlp_norm", "gate", "up", "down")
NAMES = ("embedding", *(f"layers.{n}.{part}" for n in range(LAYERS) for part in PARTS), "norm")
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def arrays(seed: int = 0) -> dict[str, np.ndarray]:
    """Our name → float32 weights, in published row order."""
    stored = tiny_model.tensors(seed)
    found = {}
    for name in NAMES:
        _, shape, data = stored[gguf_name(name)]
        array = np.frombuffer(data, "<f4").reshape(shape)
        found[name] = halves(array, HIDDEN // HEADS) if name.endswith((".q", ".k")) else array
    return found


def halves(rows: np.ndarray, head_size: int) -> np.ndarray:
    """Rows of each head reordered so that those side by side come to the same place in either half."""
    return rows.reshape(-1, head_size // 2, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def tensors(dtype: str = "F32", seed: int = 0) -> dict[str, Tensor]:
    """The weights as a safetensors file has them."""
    write = {"F32": lambda a: a.astype("<f4").tobytes(), "F16": lambda a: a.astype("<f2").tobytes(), "BF16": bf16_bytes}
    return {hf_name(name): (dtype, array.shape, write[dtype](array)) for name, array in arrays(seed).items()}


def config(**changes: Any) -> dict[str, Any]:
    """The settings in config.json; a change to None takes one out."""
    values = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "eos_token_id": IM_END,
        **changes,
    }
    return {key: value for key, value in values.items() if value is not None}


def tokenizer_json() -> dict[str, Any]:
    """Byte tokens, each digit alone, the control tokens of the tiny model."""
    added = [
        {"id": 256 + n, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": text in CONTROL}
        for n, text in enumerate([*CONTROL, *TAGS])
    ]  # fmt: skip
    pieces = [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": pieces},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {t: n for n, t in enumerate(tiny_model.byte_tokens())}, "merges": []},
    }


def tiny_folder(**changes: bytes | None) -> dict[str, bytes]:
    """The folder's files by name; `changes` replace contents (None takes a file out), with `__` for each dot."""
    named = {"eos_token": CONTROL[1], "pad_token": CONTROL[2], "chat_template": TEMPLATE}
    files = {
        CONFIG: json.dumps(config()).encode(),
        GENERATION_CONFIG: json.dumps({"eos_token_id": [IM_END, PAD], "temperature": 0.6}).encode(),
        TOKENIZER: json.dumps(tokenizer_json()).encode(),
        TOKENIZER_CONFIG: json.dumps(named).encode(),
        WEIGHTS: safetensors_bytes(tensors(), {"format": "pt"}),
        "README.md": b"# Tiny\n",
        **{name.replace("__", "."): content for name, content in changes.items()},
    }
    return {name: content for name, content in files.items() if content is not None}


def sharded(**changes: bytes | None) -> dict[str, bytes]:
    """As `tiny_folder`, with the weights in two files and an index."""
    stored = tensors()
    first = dict(list(stored.items())[:9])
    rest = {name: tensor for name, tensor in stored.items() if name not in first}
    places = dict.fromkeys(first, SHARDS[0]) | dict.fromkeys(rest, SHARDS[1])
    index = {"metadata": {"total_size": sum(len(data) for _, _, data in stored.values())}, "weight_map": places}
    shards = {SHARDS[0]: safetensors_bytes(first), SHARDS[1]: safetensors_bytes(rest)}
    files = {**tiny_folder(), **shards, WEIGHTS_INDEX: json.dumps(index).encode()}
    del files[WEIGHTS]
    files |= {name.replace("__", "."): content for name, content in changes.items()}
    return {name: content for name, content in files.items() if content is not None}


def with_template_file(template: str, files: dict[str, bytes]) -> dict[str, bytes]:
    """The same files with a template in a file of its own."""
    return files | {CHAT_TEMPLATE: template.encode()}


def in_memory(files: dict[str, bytes], name: str = "tiny") -> ModelFiles:
    return ModelFiles(name, {file: BytesSource(data, file) for file, data in files.items()})


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
