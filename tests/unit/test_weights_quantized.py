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
from tests.stored_tensors import FLOATS, SCALES, quantize, random_tensor

HALF, MINUS_TWO, THREE = b"\x00\x38", b"\x00\xc0", b"\x00\x42"  # 0.5, -2 and 3 in float16


@pytest.fixture
def random():
    return np.random.default_rng(7)


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
        # The fifth bits of the values 0, 9 and 31 are set; 16 stands for zero.
        ("Q5_0", HALF + b"\x01\x02\0\x80" + b"\x0f" + bytes(15), [7.5] + [-8] * 8 + [0] + [-8] * 21 + [0]),
        ("Q5_1", HALF + THREE + b"\x01\x02\0\x80" + b"\x0f" + bytes(15), [18.5] + [3] * 8 + [11] + [3] * 21 + [11]),
        # Runs 1 and 6 have the scales 2 and 33, run 2 has the minimum 1 and run 7 the minimum 50.
        (
            "Q4_K",
            HALF + MINUS_TWO + bytes([0, 2, 0x80, 0, 0, 0, 1, 0xC0, 0, 0, 1, 0x20]) + b"\x73" * 128,
            [0] * 32 + [7] * 32 + [2] * 32 + [0] * 96 + [49.5] * 32 + [100] * 32,
        ),
        # As above; the fifth bits of the first value in run 1 and the last in run 6 are set.
        (
            "Q5_K",
            HALF + MINUS_TWO + bytes([0, 2, 0x80, 0, 0, 0, 1, 0xC0, 0, 0, 1, 0x20])
            + b"\x02" + bytes(30) + b"\x40" + b"\x73" * 128,
            [0] * 32 + [23] + [7] * 31 + [2] * 32 + [0] * 96 + [49.5] * 31 + [313.5] + [100] * 32,
        ),
        # Runs of 16: the first of each half has the scale 2, its third -1. Upper bits are set in the first 32 values of
        # the first half, and in the values 64 … 95 of the second.
        (
            "Q6_K",
            b"\x21" * 128 + b"\x03" * 32 + b"\x20" * 32 + (b"\x02\0\xff" + bytes(5)) * 2 + HALF,
            [17] * 16 + [0] * 16 + [15.5] * 16 + [0] * 80 + [-31] * 16 + [0] * 16 + [15.5] * 16 + [0] * 80,
        ),
    ],
)  # fmt: skip
def test_a_block_computed_by_hand_comes_out_right(type_name, data, values):
    result = dequantize(data, type_name, (len(values),))
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.array(values, np.float32))


@pytest.mark.parametrize("type_name", TENSOR_TYPES)
def test_random_blocks_equal_the_reference_dequantiser_bit_for_bit(random, type_name):
    rows, columns = 700, 512  # more than is unpacked at a time
    data = random_tensor(random, type_name, rows, columns)
    raw = np.frombuffer(data, np.uint8).reshape(rows, -1)
    expected = gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[type_name])
    result = dequantize(memoryview(data), type_name, (rows, columns))
    np.testing.assert_array_equal(result.view(np.uint32), np.ascontiguousarray(expected, np.float32).view(np.uint32))


@pytest.mark.parametrize("type_name", SCALES)
def test_values_survive_being_quantised_as_well_as_their_type_has_bits(random, type_name):
    values = random.standard_normal((4, 512)).astype(np.float32)
    found = dequantize(quantize(values, type_name), type_name, values.shape)
    assert np.abs(found - values).max() < 8 / 2 ** int(type_name[1])


@pytest.mark.parametrize("type_name", ["Q4_1", "Q5_1", "Q5_K", "Q6_K"])
def test_values_are_written_into_the_given_array_with_little_memory_beside_it(random, type_name):
    rows, columns = 2000, 1024
    data = random_tensor(random, type_name, rows, columns)
    out = np.zeros((rows, columns), np.float32)
    tracemalloc.start()
    result = dequantize(data, type_name, (rows, columns), out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result is out
    np.testing.assert_array_equal(out, dequantize(data, type_name, (rows, columns)))
    assert peak < 1_000_000  # the array itself has 8 MB


@pytest.mark.parametrize("out", [np.empty((2, 32)), np.empty((1, 64), np.float32), np.empty((32, 2), np.float32).T])
def test_an_array_that_does_not_fit_is_refused(out):
    with pytest.raises(ParameterError, match=r"out: .*float32\(2, 32\)"):
        dequantize(bytes(2 * 34), "Q8_0", (2, 32), out=out)


@pytest.mark.parametrize(
    ("type_name", "start"), [(name, 0) for name in FLOATS] + [(name, at) for name, places in SCALES.items() for at in places]
)  # fmt: skip
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_number_that_is_not_finite_is_refused_with_the_tensors_name(random, type_name, start, bad):
    data = bytearray(random_tensor(random, type_name, 1, 512))
    exact = np.array([bad], "<f4")
    stored = {"F32": exact.tobytes(), "BF16": exact.tobytes()[2:]}.get(type_name, exact.astype("<f2").tobytes())
    position = TENSOR_TYPES[type_name].block_bytes + start  # in the second block
    data[position : position + len(stored)] = stored
    what = "value" if type_name in FLOATS else "scale"
    with pytest.raises(FormatError, match=rf"^m\.gguf: blk\.0\.attn_q\.weight: a {what} is {bad} "):
        dequantize(bytes(data), type_name, (1, 512), file="m.gguf", tensor="blk.0.attn_q.weight")


def test_a_type_that_is_not_supported_is_refused_by_name():
    with pytest.raises(UnsupportedError, match=r"m\.gguf: t: its type is 'Q2_K' .*F32, F16, BF16, .*, Q6_K"):
        dequantize(bytes(84), "Q2_K", (256,), file="m.gguf", tensor="t")


@pytest.mark.parametrize(
    ("type_name", "shape"), [("Q8_0", (33,)), ("Q8_0", (2, 48)), ("Q4_K", (8, 32)), ("Q6_K", (288,))]
)
def test_a_row_that_is_not_whole_blocks_is_refused(type_name, shape):
    with pytest.raises(FormatError, match=rf"t: a row has .* multiple of {TENSOR_TYPES[type_name].block_size}"):
        dequantize(bytes(34 * 3), type_name, shape, tensor="t")


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
