from __future__ import annotations

import pytest

from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.formats.tensor_info import TensorInfo
from pyruntime.weights.names import gguf_name, hf_name, match_tensors

SHAPES = {"embedding": (8, 4), "layers.0.q": (4, 4), "layers.12.k_norm": (2,), "norm": (4,)}
GGUF_SHAPES = {
    "output_norm.weight": (4,),
    "token_embd.weight": (8, 4),
    "blk.0.attn_q.weight": (4, 4),
    "blk.12.attn_k_norm.weight": (2,),
}


def tensors(**changes) -> dict[str, TensorInfo]:
    """The file's tensors; `changes` replace shapes (None removes), with `__` for each dot in a name."""
    shapes = GGUF_SHAPES | {name.replace("__", "."): shape for name, shape in changes.items()}
    return {name: TensorInfo(name, shape, "F32", 0, 0) for name, shape in shapes.items() if shape is not None}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("embedding", ("token_embd.weight", "model.embed_tokens.weight")),
        ("head", ("output.weight", "lm_head.weight")),
        ("layers.3.o", ("blk.3.attn_output.weight", "model.layers.3.self_attn.o_proj.weight")),
        ("layers.29.down", ("blk.29.ffn_down.weight", "model.layers.29.mlp.down_proj.weight")),
        ("layers.0.q_bias", ("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias")),
    ],
)
def test_a_weight_has_the_names_that_files_use(ours, theirs):
    assert (gguf_name(ours), hf_name(ours)) == theirs


def test_every_weight_is_matched_with_its_tensor():
    matched = match_tensors(SHAPES, tensors(), gguf_name, file="m.gguf")
    assert {name: tensor.shape for name, tensor in matched.items()} == SHAPES
    assert matched["layers.12.k_norm"].name == "blk.12.attn_k_norm.weight"


def test_a_missing_tensor_is_refused_by_name_with_the_shape_expected():
    with pytest.raises(
        FormatError, match=r"^m\.gguf: blk\.0\.attn_q\.weight: the tensor is missing \(allowed: shape \(4, 4\)"
    ):
        match_tensors(SHAPES, tensors(blk__0__attn_q__weight=None), gguf_name, file="m.gguf")


@pytest.mark.parametrize("shape", [(4, 5), (16,), (4, 4, 1)])
def test_a_wrongly_shaped_tensor_is_refused_by_name_with_both_shapes(shape):
    with pytest.raises(FormatError) as error:
        match_tensors(SHAPES, tensors(blk__0__attn_q__weight=shape), gguf_name, file="m.gguf")
    assert f"m.gguf: blk.0.attn_q.weight: its shape is {shape} (allowed: (4, 4))" in str(error.value)


@pytest.mark.parametrize("extra", ["rope_freqs.weight", "blk.0.ffn_gate_exps.weight", "blk.13.attn_q.weight"])
def test_a_tensor_the_model_would_ignore_is_refused_by_name(extra):
    with pytest.raises(UnsupportedError) as error:
        match_tensors(SHAPES, tensors() | {extra: TensorInfo(extra, (3,), "F32", 0, 0)}, gguf_name, file="m.gguf")
    assert f"m.gguf: {extra}: a tensor of shape (3,)" in str(error.value)
