from __future__ import annotations

import tracemalloc

import gguf
import numpy as np
import pytest

from pyruntime.errors import FormatError, ParameterError, UnsupportedError
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.formats.tensor_types import TENSOR_TYPES
from pyruntime.weights.quantized import dequantize

HALF, MINUS_TWO, THREE = b"\x00\x38", b"\x00\xc0", b"\x00\x42"  # 0.5, -2 and 3 in float16


def random_bytes(type_name, rows, columns) -> bytes:
    """Random blocks of a type, their scales and values made finite."""
    type_ = TENSOR_TYPES[type_name]
    n_blocks = rows * columns // type_.block_size
    random = np.random.default_rng(rows)
    if type_name in ("F32", "F16", "BF16"):
        values = random.standard_normal(n_blocks).astype(np.float32)
        as_bf16 = (values.view(np.uint32) >> 16).astype("<u2")
        return {"F32": values.astype("<f4"), "F16": values.astype("<f2"), "BF16": as_bf16}[type_name].tobytes()
    blocks = random.integers(0, 256, (n_blocks, type_.block_bytes), dtype=np.uint8)
    blocks[:, :2] = random.standard_normal((n_blocks, 1)).astype("<f2").view(np.uint8)
    if type_name == "Q4_1":
        blocks[:, 2:4] = random.standard_normal((n_blocks, 1)).astype("<f2").view(np.uint8)
    return blocks.tobytes()


@pytest.mark.parametrize(
    ("type_name", "data", "values"),
    [
        ("F32", np.array([1.5, -0.1], "<f4").tobytes(), [1.5, np.float32(-0.1)]),
        ("F16", HALF + MINUS_TWO, [0.5, -2]),
        ("BF16", b"\x00\x3f" + b"\x49\x40", [0.5, 3.140625]),
        ("Q8_0", MINUS_TWO + bytes([1, 255, 127, 128]) + bytes(28), [-2, 2, -254, 256] + [0] * 28),
        # Low nibbles are the first sixteen values, high nibbles the last; 8 stands for zero.
        ("Q4_0", HALF + b"\x0f" + b"\x88" * 15, [3.5] + [0] * 15 + [-4] + [0] * 15),
        ("Q4_1", HALF + THREE + b"\x4f" + b"\x00" * 15, [10.5] + [3] * 15 + [5] + [3] * 15),
    ],
)
def test_a_block_computed_by_hand_comes_out_right(type_name, data, values):
    result = dequantize(data, type_name, (len(values),))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.array(values, np.float32))


@pytest.mark.parametrize("type_name", TENSOR_TYPES)
def test_random_blocks_equal_the_reference_dequantiser_bit_for_bit(type_name):
    rows, columns = 700, 320  # more than is unpacked at a time
    data = random_bytes(type_name, rows, columns)
    raw = np.frombuffer(data, np.uint8).reshape(rows, -1)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[type_name])
    result = dequantize(memoryview(data), type_name, (rows, columns))
    np.testing.assert_array_equal(result.view(np.uint32), np.ascontiguousarray(expected, np.float32).view(np.uint32))


def test_values_are_written_into_the_given_array_with_little_memory_beside_it():
    rows, columns = 2000, 1024
    data = random_bytes("Q4_1", rows, columns)
    out = np.zeros((rows, columns), np.float32)
    tracemalloc.start()
    result = dequantize(data, "Q4_1", (rows, columns), out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result is out
    np.testing.assert_array_equal(out, dequantize(data, "Q4_1", (rows, columns)))
    assert peak < 1_000_000  # the array itself has 8 MB


@pytest.mark.parametrize("out", [np.empty((2, 32)), np.empty((1, 64), np.float32), np.empty((32, 2), np.float32).T])
def test_an_array_that_does_not_fit_is_refused(out):
    with pytest.raises(ParameterError, match=r"out: .*float32\(2, 32\)"):
        dequantize(bytes(2 * 34), "Q8_0", (2, 32), out=out)


@pytest.mark.parametrize(
    ("type_name", "position", "what"),
    [("F32", 4, "value"), ("F16", 2, "value"), ("BF16", 2, "value"), ("Q8_0", 34, "scale"), ("Q4_0", 18, "scale"),
     ("Q4_1", 20, "scale"), ("Q4_1", 22, "scale")],
)  # fmt: skip
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_number_that_is_not_finite_is_refused_with_the_tensors_name(type_name, position, what, bad):
    data = bytearray(random_bytes(type_name, 1, 128))
    width = 4 if type_name == "F32" else 2
    exact = np.array([bad], "<f4")
    stored = {"F32": exact.tobytes(), "BF16": exact.tobytes()[2:]}.get(type_name, exact.astype("<f2").tobytes())
    data[position : position + width] = stored
    with pytest.raises(FormatError, match=rf"^m\.gguf: blk\.0\.attn_q\.weight: a {what} is {bad} "):
        dequantize(bytes(data), type_name, (1, 128), file="m.gguf", tensor="blk.0.attn_q.weight")


def test_a_type_that_is_not_supported_is_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"m\.gguf: t: its type is 'Q6_K' .*F32, F16, BF16, Q8_0, Q4_0, Q4_1"):
        dequantize(bytes(210), "Q6_K", (256,), file="m.gguf", tensor="t")


@pytest.mark.parametrize("shape", [(33,), (2, 48)])
def test_a_row_that_is_not_whole_blocks_is_refused(shape):
    with pytest.raises(FormatError, match=r"t: a row has .* multiple of 32"):
        dequantize(bytes(34 * 3), "Q8_0", shape, tensor="t")


@pytest.mark.parametrize("n_bytes", [0, 33, 35, 68])
def test_a_number_of_bytes_that_does_not_match_the_shape_is_refused(n_bytes):
    with pytest.raises(FormatError, match=rf"t: {n_bytes} bytes .*34 for \(1, 32\)"):
        dequantize(bytes(n_bytes), "Q8_0", (1, 32), tensor="t")


@pytest.mark.parametrize("name", ["gguf_24_q8_nan_scale.gguf", "gguf_25_f32_nan.gguf"])
def test_the_shared_files_with_nan_are_refused(shared, name):
    source = FileSource(shared / "corpus" / "malformed" / name)
    tensor = run_without_waiting(read_gguf(source)).tensors["t"]
    data = run_without_waiting(source.read(tensor.offset, tensor.nbytes))
    with pytest.raises(FormatError, match=f"^{name}: t: .* nan"):
        dequantize(data, tensor.type, tensor.shape, file=name, tensor=tensor.name)
