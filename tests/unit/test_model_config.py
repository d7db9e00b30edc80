from __future__ import annotations

import numpy as np
import pytest

from pyruntime.errors import FormatError, ParameterError, UnsupportedError
from pyruntime.formats.gguf import GGUFFile, read_gguf
from pyruntime.formats.source import BytesSource, FileSource, run_without_waiting
from pyruntime.formats.tensor_info import TensorInfo
from pyruntime.model.config import ModelConfig, config_from_gguf, read_gguf_config
from pyruntime.model.rope import DividedFrequencies, LinearScaling, YarnScaling, yarn_attention_factor

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 30,
    "llama.context_length": 8192,
    "llama.embedding_length": 576,
    "llama.feed_forward_length": 1536,
    "llama.attention.head_count": 9,
    "llama.attention.head_count_kv": 3,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.rope.freq_base": 1e5,
    "llama.rope.dimension_count": 64,
    "llama.vocab_size": 1000,
    "tokenizer.ggml.tokens": ["x"] * 1000,
}


def config(*, vocab_size=1000, untied=False, architecture="llama", **changes) -> ModelConfig:
    """The configuration of METADATA; `changes` replace values (None removes), with `__` for each dot in a key."""
    changed = METADATA | {key.replace("__", "."): value for key, value in changes.items()}
    metadata = {key.replace("llama.", f"{architecture}."): value for key, value in changed.items() if value is not None}
    if metadata.get("general.architecture") == "llama":
        metadata["general.architecture"] = architecture
    names = ["token_embd.weight", *(["output.weight"] if untied else [])]
    tensors = {name: TensorInfo(name, (vocab_size, 576), "F32", 0, 0) for name in names}
    return config_from_gguf(metadata, tensors, "m.gguf")


def test_a_llama_file_gives_its_shape():
    assert config() == ModelConfig(
        architecture="llama", n_layers=30, hidden=576, n_heads=9, n_kv_heads=3, head_size=64, ffn=1536, vocab_size=1000,
        context_length=8192, rope_theta=1e5, rope_layout="interleaved", norm_eps=1e-5, qk_norm=False, qkv_bias=False,
        tied_embeddings=True,
    )  # fmt: skip


def test_qwen_files_rotate_halves_and_have_their_own_traits():
    qwen2, qwen3 = config(architecture="qwen2"), config(architecture="qwen3")
    assert (qwen2.rope_layout, qwen2.qkv_bias, qwen2.qk_norm) == ("half", True, False)
    assert (qwen3.rope_layout, qwen3.qkv_bias, qwen3.qk_norm) == ("half", False, True)


def test_the_head_may_have_a_size_of_its_own_and_the_output_a_matrix_of_its_own():
    keys = {
        "llama__attention__key_length": 128,
        "llama__attention__value_length": 128,
        "llama__rope__dimension_count": None,
    }
    assert config(**keys).head_size == 128
    assert not config(untied=True).tied_embeddings


def test_what_a_file_leaves_out_has_the_formats_default():
    found = config(llama__attention__head_count_kv=None, llama__rope__freq_base=None, llama__vocab_size=None)
    assert (found.n_kv_heads, found.rope_theta, found.vocab_size) == (9, 10_000.0, 1000)


@pytest.mark.parametrize("architecture", ["gemma3", "mamba", ""])
def test_an_unknown_architecture_is_refused_with_the_list_of_known_ones(architecture):
    with pytest.raises(UnsupportedError) as error:
        config(general__architecture=architecture)
    assert f"m.gguf: general.architecture: {architecture!r} is not supported (allowed: llama, qwen2, qwen3)" in str(
        error.value
    )


@pytest.mark.parametrize("value", [None, 3, ["llama"]])
def test_an_architecture_that_is_no_name_is_refused(value):
    with pytest.raises(FormatError, match=r"general\.architecture: .*llama, qwen2, qwen3"):
        config(general__architecture=value)


@pytest.mark.parametrize(
    "key",
    ["block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
     "attention.layer_norm_rms_epsilon"],
)  # fmt: skip
def test_a_missing_field_is_refused_by_name(key):
    with pytest.raises(FormatError, match=rf"^m\.gguf: llama\.{key}: missing"):
        config(**{f"llama__{key.replace('.', '__')}": None})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", -1),
        ("block_count", 2**40),
        ("block_count", "30"),
        ("block_count", 30.0),
        ("block_count", True),
        ("context_length", 2**63),
        ("embedding_length", 2**31),
        ("feed_forward_length", 0),
        ("attention.head_count", [9] * 30),
        ("attention.head_count_kv", 10),
        ("attention.head_count_kv", 4),
        ("attention.head_count", 6),  # heads of 96 values, of which 64 would be rotated
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("attention.layer_norm_rms_epsilon", -1e-5),
        ("attention.layer_norm_rms_epsilon", "1e-5"),
        ("rope.freq_base", 0.0),
        ("rope.freq_base", float("inf")),
        ("rope.freq_base", True),
        ("attention.key_length", 63),
        ("rope.dimension_count", 32),
        ("attention.value_length", 32),
        ("vocab_size", 999),
    ],
)
def test_a_field_out_of_its_interval_is_refused_by_name(key, value):
    with pytest.raises(FormatError, match=r"^m\.gguf: llama\.") as error:
        config(**{f"llama__{key.replace('.', '__')}": value})
    assert "allowed: " in str(error.value) or "divide" in str(error.value)


def test_heads_that_do_not_divide_the_width_are_refused_by_name():
    changes = {
        "llama__attention__head_count": 7,
        "llama__attention__head_count_kv": 7,
        "llama__rope__dimension_count": None,
    }
    with pytest.raises(FormatError, match=r"llama\.attention\.head_count: 7 heads do not divide the hidden width 576"):
        config(**changes)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rope.scaling.type", "longrope"),
        ("rope.scaling.original_context_length", 8192),
        ("rope.scaling.attn_factor", 1.5),
        ("rope.scaling.yarn_attn_factor", 1.0),
        ("rope.scaling.yarn_ext_factor", 0.5),
        ("rope.scaling.yarn_log_multiplier", 0.1),
        ("rope.scaling.yarn_beta_fast", 32.0),
        ("rope.scale_linear", 2.0),
        ("expert_count", 8),
        ("attention.sliding_window", 4096),
        ("attention.causal", False),
        ("logit_scale", 0.1),
    ],
)
def test_a_setting_that_changes_the_mathematics_is_refused_by_name(key, value):
    with pytest.raises(UnsupportedError, match=rf"^m\.gguf: llama\.{key}: "):
        config(**{f"llama__{key.replace('.', '__')}": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("rope.scaling.type", "none"), ("rope.scaling.type", "linear"), ("rope.scaling.factor", 1.0),
     ("rope.scaling.finetuned", True), ("expert_count", 0), ("tensor_data_layout", "Meta AI original pth")],
)  # fmt: skip
def test_a_setting_that_changes_nothing_is_accepted(key, value):
    assert config(**{f"llama__{key.replace('.', '__')}": value}) == config()


@pytest.mark.parametrize(
    ("keys", "scaling"),
    [
        ({"type": "linear", "factor": 4.0}, LinearScaling(4.0)),
        ({"factor": 4.0}, LinearScaling(4.0)),  # as llama.cpp reads a factor without a type
        ({"type": "none", "factor": 4.0}, None),
        ({"type": "yarn", "factor": 4.0}, YarnScaling(4.0, 8192, yarn_attention_factor(4.0))),
        (
            {
                "type": "yarn",
                "factor": 4.0,
                "original_context_length": 2048,
                "attn_factor": 0.5,
                "yarn_beta_fast": 16.0,
                "yarn_beta_slow": 2.0,
                "yarn_ext_factor": 1.0,
            },
            YarnScaling(4.0, 2048, 0.5 * yarn_attention_factor(4.0), 16.0, 2.0),
        ),
    ],
)
def test_scaled_rotations_are_read(keys, scaling):
    assert config(**{f"llama__rope__scaling__{key}": value for key, value in keys.items()}).rope_scaling == scaling


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("factor", 0.5),
        ("factor", float("nan")),
        ("factor", "8"),
        ("type", 3),
        ("original_context_length", 0),
        ("yarn_beta_fast", 0.5),
        ("attn_factor", 0.0),
    ],
)
def test_a_scaling_out_of_its_interval_is_refused_by_name(key, value):
    keys = {"type": "yarn", "factor": 2.0} | {key: value}
    with pytest.raises(FormatError, match=rf"^m\.gguf: llama\.rope\.scaling\.{key}: .*allowed: "):
        config(**{f"llama__rope__scaling__{name}": value for name, value in keys.items()})


def divided(values, *, architecture="llama", **changes):
    """The configuration of a file that lists divisors of the frequencies."""
    values = np.array(values, "<f4")
    source = BytesSource(values.tobytes(), "m.gguf")
    metadata = {key.replace("llama.", f"{architecture}."): value for key, value in (METADATA | changes).items()}
    metadata["general.architecture"] = architecture
    tensors = {
        "token_embd.weight": TensorInfo("token_embd.weight", (1000, 576), "F32", 0, 0),
        "rope_freqs.weight": TensorInfo("rope_freqs.weight", values.shape, "F32", 0, values.nbytes),
    }
    file = GGUFFile("m.gguf", source.size, 3, metadata, tensors, 0, 32)
    return run_without_waiting(read_gguf_config(file, source))


def test_divisors_of_the_frequencies_are_read_from_their_tensor():
    values = [1.0] * 16 + [8.0] * 16
    assert divided(values).rope_scaling == DividedFrequencies(tuple(values))


@pytest.mark.parametrize(
    ("values", "options", "words"),
    [
        ([1.0] * 31, {}, r"31 values \(allowed: 32\)"),
        ([1.0] * 31 + [0.0], {}, "a value is 0.0"),
        ([1.0] * 31 + [float("nan")], {}, "a value is nan"),
        ([[1.0] * 32], {}, r"its shape is \(1, 32\)"),
        ([1.0] * 600, {}, r"its shape is \(600,\)"),
        ([1.0] * 32, {"architecture": "qwen2"}, "a tensor that qwen2 does not use"),
        ([1.0] * 32, {"llama.rope.scaling.factor": 2.0}, "beside another scaling"),
    ],
)
def test_divisors_that_do_not_fit_are_refused_by_the_tensors_name(values, options, words):
    with pytest.raises(FormatError, match=rf"^m\.gguf: rope_freqs\.weight: {words}"):
        divided(values, **options)


def test_a_file_of_another_architecture_is_refused_for_that_whatever_its_divisors():
    with pytest.raises(UnsupportedError, match=r"^m\.gguf: general\.architecture: 'gemma3'"):
        divided([[1.0] * 32], architecture="gemma3")


def test_divisors_are_never_left_out_by_oversight():
    tensors = {"rope_freqs.weight": TensorInfo("rope_freqs.weight", (32,), "F32", 0, 128)}
    with pytest.raises(ParameterError, match=r"divisors: None is not allowed"):
        config_from_gguf(METADATA, tensors, "m.gguf")


def test_more_tokens_than_rows_of_the_embedding_are_refused():
    with pytest.raises(FormatError, match=r"tokenizer\.ggml\.tokens: 1000 tokens while the embedding has 999 rows"):
        config(vocab_size=999, llama__vocab_size=None)


def test_a_file_without_an_embedding_is_refused_by_the_tensors_name():
    with pytest.raises(FormatError, match=r"^m\.gguf: token_embd\.weight: the tensor is missing"):
        config_from_gguf(METADATA, {}, "m.gguf")


def test_the_shared_file_with_an_endless_context_is_refused(shared):
    source = FileSource(shared / "corpus" / "malformed" / "gguf_30_context_length_2e63.gguf")
    file = run_without_waiting(read_gguf(source))
    with pytest.raises(FormatError, match=r"llama\.context_length: 9223372036854775808 is out of range"):
        config_from_gguf(file.metadata, file.tensors, file.name)
