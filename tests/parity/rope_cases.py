"""Rotary settings whose frequencies are compared with the reference: those of published models, and odd ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RopeCase:
    """A head, the model's context, and the settings as config.json has them."""

    head_size: int
    context: int
    parameters: dict[str, Any]


_LLAMA_3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}

CASES = {
    "Llama 3.2": RopeCase(64, 131_072, {"rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, **_LLAMA_3}),
    "Llama 3.1": RopeCase(128, 131_072, {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, **_LLAMA_3}),
    "Llama 3, first context not said": RopeCase(
        64,
        4096,
        {"rope_type": "llama3", "rope_theta": 1e4, "factor": 4.0, "low_freq_factor": 2.0, "high_freq_factor": 8.0},
    ),
    "Qwen3 with YaRN": RopeCase(
        128,
        131_072,
        {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32_768},
    ),
    "YaRN, attention factor said": RopeCase(
        64,
        8192,
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 1024,
            "attention_factor": 0.9,
        },
    ),
    "YaRN, attention factor by its scales": RopeCase(
        64,
        8192,
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 1024,
            "mscale": 0.7,
            "mscale_all_dim": 1.2,
        },
    ),
    "YaRN, one scale only": RopeCase(
        64,
        8192,
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 8.0,
            "original_max_position_embeddings": 1024,
            "mscale": 0.7,
        },
    ),
    "YaRN, other borders, not whole": RopeCase(
        96,
        8192,
        {
            "rope_type": "yarn",
            "rope_theta": 1e5,
            "factor": 8.0,
            "original_max_position_embeddings": 1024,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "truncate": False,
        },
    ),
    "YaRN, factor left to the contexts": RopeCase(
        64,
        8192,
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": None, "original_max_position_embeddings": 1024},
    ),
    "YaRN, first context too short to turn": RopeCase(
        32,
        64,
        {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0, "original_max_position_embeddings": 4},
    ),
    "linear": RopeCase(80, 8192, {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}),
}
