"""From the blocks of model files to panels, in every type: native builds here, WebAssembly builds in Node."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from pyruntime.formats.tensor_types import TENSOR_TYPES
from pyruntime.model.kernel_abi import number
from pyruntime.model.kernel_layout import FORMAT_OF_TYPE, matrix_bytes
from pyruntime.weights.quantized import dequantize
from tests.kernel_lab import BACKENDS, Lab, make_backend, unpack
from tests.stored_tensors import FLOATS, SCALES, random_tensor

KEPT = ("Q8_0", "Q4_0", "Q4_1", "Q5_0")
ROUNDED_TO_8_BITS = (*FLOATS, "Q5_1", "Q5_K", "Q6_K")
NOT_FINITE, TOO_LARGE, SCALE_TOO_LARGE = (number("VERDICT", n) for n in ("NOT_FINITE", "TOO_LARGE", "SCALE_TOO_LARGE"))


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request, tmp_path_factory):
    made = make_backend(request.param, tmp_path_factory.mktemp("arena"))
    yield made
    made.close()


@pytest.fixture
def lab(backend):
    return Lab(backend)


@pytest.fixture
def random():
    return np.random.default_rng(7)


def repacked(lab, data, type_name, rows, columns):
    """The weights that the panels of a tensor mean."""
    format_ = FORMAT_OF_TYPE[type_name]
    verdict, place = lab.repack(data, type_name, format_, rows, columns)
    assert verdict == 0
    return unpack(lab.bytes_at(place, matrix_bytes(format_, rows, columns)), format_, rows, columns)


def test_every_type_of_a_file_has_a_form_in_memory():
    assert set(FORMAT_OF_TYPE) == set(TENSOR_TYPES) == {*KEPT, *ROUNDED_TO_8_BITS, "Q4_K"}


@pytest.mark.parametrize("type_name", KEPT)
def test_weights_of_types_that_fit_a_panel_are_kept(lab, random, type_name):
    rows, columns = 35, 96
    data = random_tensor(random, type_name, rows, columns)
    found = repacked(lab, data, type_name, rows, columns)
    np.testing.assert_array_equal(found, dequantize(data, type_name, (rows, columns)))


@pytest.mark.parametrize("type_name", ROUNDED_TO_8_BITS)
def test_weights_of_other_types_become_8_bit_ones_that_are_off_by_half_a_step_at_most(lab, random, type_name):
    rows, columns = 21, 77 if type_name in FLOATS else 512
    data = random_tensor(random, type_name, rows, columns)
    exact = dequantize(data, type_name, (rows, columns))
    found = repacked(lab, data, type_name, rows, columns)
    blocks = -(-columns // 32)
    padded = np.zeros((rows, 32 * blocks), np.float32)
    padded[:, :columns] = exact
    steps = np.repeat(np.abs(padded.reshape(rows, blocks, 32)).max(axis=2) / 127, 32, axis=1)[:, :columns]
    assert (np.abs(found - exact) <= steps * 0.51 + 2**-24 * 64).all()


@pytest.mark.parametrize("size", [1.0, 0.001, 50.0], ids=["usual", "below normal float16 numbers", "large"])
def test_q4_k_keeps_its_integers_and_rounds_the_scale_and_minimum_of_a_run_to_float16(lab, random, size):
    rows, columns = 19, 768
    data = random_tensor(random, "Q4_K", rows, columns)
    blocks = np.frombuffer(data, np.uint8).reshape(-1, 144).copy()
    factors = blocks[:, :4].view("<f2") * np.float16(size)
    blocks[:, :4] = factors.view(np.uint8)
    scales, minima = gguf.quants.Q4_K.get_scale_min(blocks[:, 4:16])
    nibbles = blocks[:, 16:].reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8)[:, None] & 15
    factors = factors.astype(np.float32)
    scale, minimum = (factors[:, :1] * scales).astype("<f2"), (-factors[:, 1:] * minima).astype("<f2")
    expected = nibbles.reshape(-1, 8, 32) * scale[..., None].astype("f4") + minimum[..., None].astype("f4")
    found = repacked(lab, blocks.tobytes(), "Q4_K", rows, columns)
    np.testing.assert_array_equal(found, expected.reshape(rows, columns))


@pytest.mark.parametrize(("type_name", "bad"), [("F32", np.float32), ("F16", np.float16), ("BF16", "bf16")])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_are_found(lab, random, type_name, bad, value):
    rows, columns = 17, 45
    data = bytearray(random_tensor(random, type_name, rows, columns))
    stored = np.float32(value).tobytes()[2:] if bad == "bf16" else bad(value).tobytes()
    for place in (0, 44, 700, rows * columns - 1):
        changed = data.copy()
        changed[place * len(stored) : (place + 1) * len(stored)] = stored
        assert lab.repack(bytes(changed), type_name, "Q8", rows, columns)[0] == NOT_FINITE


@pytest.mark.parametrize(("type_name", "start"), [(name, start) for name, places in SCALES.items() for start in places])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_scales_that_are_not_finite_are_found(lab, random, type_name, start, value):
    rows, columns = 17, 512
    data = bytearray(random_tensor(random, type_name, rows, columns))
    place = 20 * TENSOR_TYPES[type_name].block_bytes + start
    data[place : place + 2] = np.float16(value).tobytes()
    assert lab.repack(bytes(data), type_name, FORMAT_OF_TYPE[type_name], rows, columns)[0] == NOT_FINITE


@pytest.mark.parametrize(
    ("type_name", "expected"), [("F32", TOO_LARGE), ("Q5_K", TOO_LARGE), ("Q6_K", TOO_LARGE), ("Q4_K", SCALE_TOO_LARGE)]
)
def test_numbers_that_are_too_large_for_a_panels_float16_scales_are_found(lab, random, type_name, expected):
    data = bytearray(random_tensor(random, type_name, 16, 256))
    if type_name == "F32":
        data[:4] = np.float32(1e7).tobytes()
    else:
        data[: TENSOR_TYPES[type_name].block_bytes] = bytes([0x3F] * TENSOR_TYPES[type_name].block_bytes)
        for start in SCALES[type_name]:
            data[start : start + 2] = np.float16(60_000).tobytes()
    assert lab.repack(bytes(data), type_name, FORMAT_OF_TYPE[type_name], 16, 256)[0] == expected


@pytest.mark.parametrize("type_name", TENSOR_TYPES)
def test_repacking_any_bytes_stays_in_bounds_and_refuses_what_the_reference_refuses(lab, type_name):
    type_ = TENSOR_TYPES[type_name]
    for seed in range(4):
        random = np.random.default_rng(seed)
        rows, columns = int(random.integers(1, 40)), max(32, type_.block_size) * int(random.integers(1, 4))
        data = random.bytes(rows * columns // type_.block_size * type_.block_bytes)
        verdict, _ = lab.repack(data, type_name, FORMAT_OF_TYPE[type_name], rows, columns)
        assert (lab.memory[lab.arena.end :] == 0).all()
        if verdict == 0:
            dequantize(data, type_name, (rows, columns))  # does not raise
