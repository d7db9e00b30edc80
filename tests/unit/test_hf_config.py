"""config.json: what its settings mean, their defaults, and what is refused by name."""

from __future__ import annotations

import json

import pytest

from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.model.config import ModelConfig
from pyruntime.model.hf_config import config_from_json, parse_config
from pyruntime.model.rope import LinearScaling, Llama3Scaling, YarnScaling, yarn_attention_factor

SETTINGS = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 128_256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
    "tie_word_embeddings": True,
}
QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
MISSING = object()


def config(**changes) -> ModelConfig:
    """The configuration of SETTINGS with changes; MISSING takes a setting out."""
    values = {key: value for key, value in {**SETTINGS, **changes}.items() if value is not MISSING}
    return config_from_json(parse_config(json.dumps(values).encode(), "config.json"), "config.json")


def refusal(error=UnsupportedError, **changes) -> str:
    with pytest.raises(error) as caught:
        config(**changes)
    return str(caught.value)


def test_the_settings_of_a_llama_give_its_shape():
    assert config() == ModelConfig(
        architecture="llama", n_layers=16, hidden=2048, n_heads=32, n_kv_heads=8, head_size=64, ffn=8192,
        vocab_size=128_256, context_length=131_072, rope_theta=500_000.0, rope_layout="half", norm_eps=1e-5,
        qk_norm=False, qkv_bias=False, tied_embeddings=True,
    )  # fmt: skip


def test_each_architecture_has_its_traits_and_rotates_halves():
    qwen2, qwen3 = config(**QWEN2), config(**QWEN3)
    assert (qwen2.architecture, qwen2.qkv_bias, qwen2.qk_norm, qwen2.rope_layout) == ("qwen2", True, False, "half")
    assert (qwen3.architecture, qwen3.qkv_bias, qwen3.qk_norm, qwen3.rope_layout) == ("qwen3", False, True, "half")


def test_what_is_left_out_has_the_references_default():
    found = config(rms_norm_eps=MISSING, rope_theta=MISSING, tie_word_embeddings=MISSING, num_key_value_heads=MISSING)
    assert (found.norm_eps, found.rope_theta, found.tied_embeddings, found.n_kv_heads) == (1e-6, 10_000.0, False, 32)
    assert (config(**QWEN3).head_size, config(**QWEN2).head_size) == (128, 64)
    assert (config(head_dim=None).head_size, config(head_dim=96).head_size) == (64, 96)
    assert config(**QWEN2, num_key_value_heads=None).n_kv_heads == 32


def test_the_type_of_model_alone_tells_the_architecture_and_so_does_the_class_alone():
    assert config(**QWEN3).architecture == "qwen3"
    assert config(architectures=MISSING, model_type="qwen2").architecture == "qwen2"
    assert config(architectures=["Qwen2ForCausalLM"], model_type=MISSING).architecture == "qwen2"


def test_settings_that_the_reference_does_not_read_are_not_read_here():
    odd = {
        "torch_dtype": "bfloat16", "dtype": "float16", "use_cache": True, "pretraining_tp": 4, "sliding_window": 4096,
        "rope_interleaved": False, "is_llama_config": True, "attention_dropout": 0.1, "invented": {"by": ["somebody"]},
    }  # fmt: skip
    assert config(**odd) == config()
    assert config(**QWEN2, attention_bias=True, mlp_bias=True, sliding_window=4096, max_window_layers=0) == config(
        **QWEN2
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["Gemma3ForCausalLM"]}, "architectures: ['Gemma3ForCausalLM'] is not supported"),
        ({"architectures": ["Qwen2ForSequenceClassification"]}, "architectures: "),
        ({"architectures": ["LlamaForCausalLM", "Qwen2ForCausalLM"]}, "architectures: "),
        ({"architectures": []}, "architectures: [] is not supported"),
        ({"architectures": "LlamaForCausalLM"}, "architectures: "),
        ({"architectures": [["LlamaForCausalLM"]]}, "architectures: "),
        ({"architectures": MISSING, "model_type": "mistral"}, "model_type: 'mistral' is not supported"),
        ({"architectures": MISSING, "model_type": ["llama"]}, "model_type: ['llama'] is not supported"),
    ],
)
def test_an_unknown_architecture_is_refused_by_name_with_the_known_ones(changes, words):
    text = refusal(**changes)
    assert text.startswith(f"config.json: {words}")
    assert "(allowed: " in text


def test_an_architecture_that_is_missing_or_contradicts_itself_is_refused():
    assert "architectures: missing" in refusal(FormatError, architectures=MISSING, model_type=MISSING)
    text = refusal(FormatError, model_type="mistral")
    assert text.startswith("config.json: model_type: 'mistral' while the architecture is LlamaForCausalLM")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act: 'gelu' is not supported (allowed: absent, or silu)"),
        ({"attention_bias": True}, "attention_bias: True is not supported (allowed: absent, or false)"),
        ({**QWEN3, "attention_bias": True}, "attention_bias: "),
        ({"attention_bias": 0}, "attention_bias: 0 "),
        ({"mlp_bias": True}, "mlp_bias: "),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config: {'quant_method': 'gptq'} is not "),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: 0.5 is not supported (allowed: absent, or 1)"),
        ({"rope_scaling": {**YARN, "partial_rotary_factor": 0.5}}, "rope_scaling.partial_rotary_factor: 0.5 "),
        (
            {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}},
            "rope_scaling.rope_type: 'dynamic' is not supported",
        ),
        ({"rope_scaling": {"type": "longrope"}}, "rope_scaling.type: 'longrope' is not supported"),
        ({"rope_parameters": {"rope_type": ["yarn"]}}, "rope_parameters.rope_type: ['yarn'] is not supported"),
        ({"rope_parameters": {"full_attention": YARN}}, "rope_parameters.full_attention: "),
    ],
)
def test_a_setting_that_the_forward_pass_does_not_do_is_refused_by_name(changes, words):
    assert refusal(**changes).startswith(f"config.json: {words}")


def test_a_refused_scaling_is_told_with_those_that_are_supported():
    text = refusal(rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert "(allowed: default, linear, llama3, yarn)" in text


@pytest.mark.parametrize(
    "key",
    ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "max_position_embeddings"],
)  # fmt: skip
@pytest.mark.parametrize("value", [MISSING, 0, -1, 2**63, 10**4000, "64", 64.0, True, [64]], ids=lambda v: str(v)[:8])
def test_a_size_that_is_none_is_refused_by_name(key, value):
    assert refusal(FormatError, **{key: value}).startswith(f"config.json: {key}: ")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_key_value_heads": 5}, "num_key_value_heads: 5 does not divide the 32 query heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads: 64 is out of range"),
        ({**QWEN3, "num_key_value_heads": MISSING}, "num_key_value_heads: missing"),
        ({"num_attention_heads": 31, "num_key_value_heads": 31}, "num_attention_heads: 31 heads do not divide"),
        ({"head_dim": 63}, "head_dim: 63 is odd"),
        ({"head_dim": 2048}, "head_dim: 2048 is out of range"),
        ({"rms_norm_eps": -1e-5}, "rms_norm_eps: "),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps: "),
        ({"rope_theta": 0.0}, "rope_theta: 0.0 is out of range"),
        ({"rope_theta": 1}, "rope_theta: 1 is out of range"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes' is neither true nor false"),
        ({"rope_scaling": "yarn"}, "rope_scaling: 'yarn' is not an object"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor: missing"),
        ({"rope_scaling": {**YARN, "factor": 0.5}}, "rope_scaling.factor: 0.5 is out of range"),
        ({"rope_scaling": {**YARN, "beta_fast": 0.5}}, "rope_scaling.beta_fast: "),
        ({"rope_scaling": {**YARN, "truncate": 1}}, "rope_scaling.truncate: "),
        ({"rope_scaling": {**YARN, "mscale": "1", "mscale_all_dim": 1}}, "rope_scaling.mscale: "),
        ({"rope_scaling": {**YARN, "original_max_position_embeddings": 0}}, "rope_scaling.original_max_position"),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": None}}, "rope_scaling.low_freq_factor: missing"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1}}, "rope_scaling.high_freq_factor: 1 is not above"),
        ({"rope_parameters": {"rope_theta": "1e4"}}, "rope_parameters.rope_theta: '1e4' is not a number"),
    ],
)
def test_a_setting_out_of_its_interval_is_refused_by_name(changes, words):
    assert refusal(FormatError, **changes).startswith(f"config.json: {words}")


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b'{"a": 1', b'{"a": 1, "a": 1}', b"\xef\xbb\xbf{}"])
def test_what_is_no_object_in_strict_json_is_refused(content):
    with pytest.raises(FormatError, match=r"^config\.json: "):
        parse_config(content, "config.json")


# ------------------------------------------------------------------------------------------------------------- rotations


@pytest.mark.parametrize(
    ("rope", "scaling"),
    [
        ({}, None),
        ({"rope_scaling": {"rope_type": "default"}}, None),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, LinearScaling(2.0)),
        ({"rope_scaling": LLAMA3}, Llama3Scaling(32.0, 1.0, 4.0, 8192)),
        ({"rope_scaling": YARN}, YarnScaling(4.0, 32_768, yarn_attention_factor(4.0))),
        (
            {"rope_parameters": {**YARN, "attention_factor": 1.5, "beta_fast": 16, "beta_slow": 2, "truncate": False}},
            YarnScaling(4.0, 32_768, 1.5, 16.0, 2.0, truncate=False),
        ),
        ({"rope_scaling": YARN, "rope_parameters": LLAMA3}, YarnScaling(4.0, 32_768, yarn_attention_factor(4.0))),
        (
            {"rope_scaling": YARN, "original_max_position_embeddings": 4096},
            YarnScaling(4.0, 4096, yarn_attention_factor(4.0)),
        ),
    ],
)
def test_scaled_rotations_are_read(rope, scaling):
    assert config(**rope).rope_scaling == scaling


def test_the_base_of_the_frequencies_is_taken_from_the_group_first():
    assert config(rope_parameters={"rope_type": "default", "rope_theta": 1e6}).rope_theta == 1e6
    assert config(rope_theta=MISSING, rope_parameters={"rope_theta": 3e4}).rope_theta == 3e4
    assert config(rope_scaling=LLAMA3).rope_theta == 5e5


# --------------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(
    "changes",
    [
        {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 0},
        {"use_sliding_window": True, "sliding_window": 131_072, "max_window_layers": 0},
        {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 16},
        {"use_sliding_window": True},  # from layer 28 on, of 16
        {"layer_types": ["full_attention"] * 16},
        {"use_sliding_window": True, "sliding_window": 4096, "layer_types": ["full_attention"] * 16},
    ],
)
def test_a_sliding_window_that_no_layer_uses_within_the_context_is_accepted(changes):
    assert config(**QWEN2, **changes) == config(**QWEN2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 15},
            "use_sliding_window: layers with a sliding window of 4096 positions, in a context of 131072",
        ),
        (
            {"use_sliding_window": True, "max_window_layers": 0},
            "use_sliding_window: layers with a sliding window of 4096",
        ),
        ({"layer_types": ["full_attention"] * 15 + ["sliding_attention"]}, "layer_types: layers with a sliding window"),
        ({"layer_types": ["full_attention"] * 15 + ["linear_attention"]}, "layer_types: "),
        ({"layer_types": ["full_attention"] * 15}, "layer_types: "),
        ({"layer_types": "full_attention"}, "layer_types: "),
    ],
)
def test_a_sliding_window_that_a_layer_uses_is_refused_by_name(changes, words):
    assert refusal(**QWEN3, **changes).startswith(f"config.json: {words}")
