"""Every operation of the kernels against numpy, over random shapes: native builds here, WebAssembly builds in Node."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pyruntime.model.kernel_abi import FLAGS, NOTHING, UNIT, number
from pyruntime.model.kernel_layout import FORMAT_OF_TYPE, CacheLayout, partials_bytes, peaks_bytes, row_bytes
from pyruntime.model.rope import Rope, frequencies
from pyruntime.weights.quantized import dequantize
from tests.kernel_lab import BACKENDS, GIVEN_LIBRARY, Lab, Place, make_backend
from tests.stored_tensors import random_tensor

QUANTIZED = ("Q8_0", "Q4_0", "Q4_1")  # one type for each format of weights
ARENA_BYTES = 1 << 22
LEVELS = {"INT8": 127, "INT16": 32767, "SPLIT": 32512}


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request, tmp_path_factory):
    made = make_backend(request.param, tmp_path_factory.mktemp("arena"))
    yield made
    made.close()


@pytest.fixture
def lab(backend):
    return Lab(backend, ARENA_BYTES)


@pytest.fixture
def random():
    return np.random.default_rng(7)


def forms(lab, format_):
    """The forms in which this build takes rows for weights of a format."""
    return ("INT16",) if format_ == "Q8" or not lab.takes_bytes else ("INT8", "SPLIT")


def integers(lab, rows, form):
    """(place, what the integers stand for) of rows quantised by the kernel."""
    n, width = rows.shape
    dst = lab.take(n * row_bytes(form, width))
    lab.run("QUANTIZE", n_tokens=n, dst=dst, dst_row=number("ROW", form), src=lab.put_rows(rows), width=width)
    blocks, stride = -(-width // 32), row_bytes(form, width)
    raw = lab.bytes_at(dst, n * stride).reshape(n, stride)
    values = raw[:, : blocks * 32 * (1 if form == "INT8" else 2)].copy()
    tail = raw[:, values.shape[1] :][:, : blocks * 8].copy().view(np.float32)
    if form == "SPLIT":
        halves = values.view(np.int8).reshape(n, blocks, 2, 32).astype(np.int32)
        q = halves[:, :, 1] * 256 + halves[:, :, 0]
    else:
        q = values.view(np.int8 if form == "INT8" else np.int16).reshape(n, blocks, 32).astype(np.int32)
    meant = q * tail[:, :blocks, None].astype(np.float64)
    np.testing.assert_allclose(tail[:, blocks:], meant.sum(axis=2), rtol=1e-5, atol=1e-5)
    return dst, meant.reshape(n, -1)[:, :width]


@pytest.mark.skipif(GIVEN_LIBRARY is None, reason="this is about the run under AddressSanitizer")
def test_the_tests_notice_a_kernel_that_leaves_its_memory():
    code = (
        "from tests.kernel_lab import *; import numpy as np; lab = Lab(make_backend('given', None)); "
        "place = Place(lab.put(np.zeros(4, np.float32)) * UNIT); lab.call('candidates', place, place, 5, 0.0, 1, place)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "use-after-poison" in result.stderr


@pytest.mark.parametrize("type_name", QUANTIZED)
def test_embedding_gives_the_rows_of_the_table(lab, random, type_name):
    rows, columns, ids = 37, 64, [36, 0, 15, 16]
    data = random_tensor(random, type_name, rows, columns)
    format_ = FORMAT_OF_TYPE[type_name]
    _, table = lab.repack(data, type_name, format_, rows, columns)
    dst = lab.take(4 * row_bytes("FLOAT", columns))
    lab.run("EMBED", n_tokens=4, ids=ids, dst=dst, table=table, format=number("FORMAT", format_), width=columns)
    expected = dequantize(data, type_name, (rows, columns))[ids]
    np.testing.assert_allclose(lab.rows(dst, 4, columns), expected, rtol=1e-6)


@pytest.mark.parametrize("form", LEVELS)
def test_integers_are_off_by_half_a_step_at_most(lab, random, form):
    rows = random.standard_normal((3, 75)).astype(np.float32)
    rows[1] *= 1e-20
    rows[2] = 0
    _, meant = integers(lab, rows, form)
    padded = np.zeros((3, 96), np.float32)
    padded[:, :75] = rows
    steps = np.repeat(np.abs(padded.reshape(3, 3, 32)).max(axis=2) / LEVELS[form], 32, axis=1)[:, :75]
    assert (np.abs(meant - rows) <= steps * 0.5001).all()


@pytest.mark.parametrize("type_name", QUANTIZED)
@pytest.mark.parametrize("n", [1, 6, 12])
def test_products_equal_numpys_on_the_same_integers(lab, random, type_name, n):
    outputs, inputs = 37, 160
    format_ = FORMAT_OF_TYPE[type_name]
    data = random_tensor(random, type_name, outputs, inputs)
    weights = dequantize(data, type_name, (outputs, inputs)).astype(np.float64)
    _, panels = lab.repack(data, type_name, format_, outputs, inputs)
    bias, residual = random.standard_normal(outputs), random.standard_normal((n, outputs))
    bias_place, residual_place = lab.put_vector(bias), lab.put_rows(residual.astype(np.float32))
    for form in forms(lab, format_):
        src, meant = integers(lab, random.standard_normal((n, inputs)).astype(np.float32), form)
        for with_sums in (False, True):
            dst, peaks = lab.take(n * row_bytes("FLOAT", outputs)), lab.take(peaks_bytes(outputs, n))
            lab.run(
                "LINEAR", n_tokens=n, dst=dst, weight=panels, format=number("FORMAT", format_), src=src,
                src_row=number("ROW", form), inputs=inputs, outputs=outputs,
                bias=bias_place if with_sums else NOTHING, residual=residual_place if with_sums else NOTHING, peaks=peaks,
            )  # fmt: skip
            expected = meant @ weights.T + (bias + residual if with_sums else 0)
            found = lab.rows(dst, n, outputs)
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-4)
            np.testing.assert_array_equal(lab.floats_at(peaks, (n, 3)), peaks_of(found))


def test_extreme_products_do_not_overflow(lab):
    for type_name, q in (("Q8_0", 0x80), ("Q4_0", 0xFF), ("Q4_1", 0xFF)):
        header = {"Q8_0": [1.0], "Q4_0": [1.0], "Q4_1": [1.0, 0.0]}[type_name]
        block = np.array(header, "<f2").tobytes() + bytes([q] * (32 if type_name == "Q8_0" else 16))
        data, format_ = block * 3 * 16, FORMAT_OF_TYPE[type_name]
        weights = dequantize(data, type_name, (16, 96)).astype(np.float64)
        _, panels = lab.repack(data, type_name, format_, 16, 96)
        rows = np.stack([np.full(96, 1.0), np.full(96, -1.0), np.tile([1.0, -1.0], 48), np.zeros(96)] * 2)
        for form in forms(lab, format_):
            src, meant = integers(lab, rows.astype(np.float32), form)
            for n in (1, 8):
                dst = lab.take(8 * row_bytes("FLOAT", 16))
                lab.run(
                    "LINEAR", n_tokens=n, dst=dst, weight=panels, format=number("FORMAT", format_), src=src,
                    src_row=number("ROW", form), inputs=96, outputs=16, bias=NOTHING, residual=NOTHING, peaks=NOTHING,
                )  # fmt: skip
                np.testing.assert_allclose(lab.rows(dst, n, 16), (meant @ weights.T)[:n], rtol=1e-5, atol=0.05)


def test_products_of_the_last_rows_read_them_from_all(lab, random):
    data = random_tensor(random, "Q8_0", 16, 32)
    _, panels = lab.repack(data, "Q8_0", "Q8", 16, 32)
    src, meant = integers(lab, random.standard_normal((5, 32)).astype(np.float32), "INT16")
    dst = lab.take(5 * row_bytes("FLOAT", 16))
    flags = FLAGS["OUTPUT_ROWS"][0] | FLAGS["TAIL"][0]
    lab.run(
        "LINEAR", n_tokens=5, n_output=2, flags=flags, dst=dst, weight=panels, format=number("FORMAT", "Q8"), src=src,
        src_row=number("ROW", "INT16"), inputs=32, outputs=16, bias=NOTHING, residual=NOTHING, peaks=NOTHING,
    )  # fmt: skip
    expected = meant[3:] @ dequantize(data, "Q8_0", (16, 32)).T.astype(np.float64)
    np.testing.assert_allclose(lab.rows(dst, 2, 16), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("width", "runs"), [(37, 1), (64, 1), (14, 3), (64, 2)])
def test_normalisation(lab, random, width, runs):
    x, weight = random.standard_normal((3, width * runs)).astype(np.float32), random.standard_normal(width)
    dst = lab.take(3 * row_bytes("FLOAT", width * runs))
    epsilon = int(np.float32(0.01).view(np.int32))
    lab.run(
        "NORM", n_tokens=3, dst=dst, dst_row=0, src=lab.put_rows(x), weight=lab.put_vector(weight), width=width,
        runs=runs, epsilon=epsilon,
    )  # fmt: skip
    heads = x.reshape(3, runs, width)
    expected = heads / np.sqrt(np.square(heads).mean(axis=2, keepdims=True) + 0.01) * weight
    np.testing.assert_allclose(lab.rows(dst, 3, width * runs), expected.reshape(3, -1), rtol=1e-5, atol=1e-6)


def test_sum_and_activation(lab, random):
    x, y = (random.standard_normal((3, 45)).astype(np.float32) * 9 for _ in range(2))
    x[0, :4] = [-200, 200, -88, 0]
    places = lab.put_rows(x), lab.put_rows(y)
    dst = lab.take(3 * row_bytes("FLOAT", 45))
    lab.run("ADD", n_tokens=3, dst=dst, x=places[0], y=places[1], width=45)
    np.testing.assert_array_equal(lab.rows(dst, 3, 45), x + y)
    lab.run("SILU_MUL", n_tokens=3, dst=dst, dst_row=0, gate=places[0], up=places[1], width=45)
    expected = x.astype(np.float64) / (1 + np.exp(-x.astype(np.float64))) * y
    np.testing.assert_allclose(lab.rows(dst, 3, 45), expected, rtol=2e-6, atol=1e-30 + 1e-7)


@pytest.mark.parametrize("layout", ["HALF", "INTERLEAVED"])
@pytest.mark.parametrize("size", [14, 64])
def test_rotation(lab, random, layout, size):
    x = random.standard_normal((2, 3 * size)).astype(np.float32)
    turned = Rope(frequencies(size, 1e4), 1.0).rotations(0, 9)
    table = lab.put(np.concatenate([turned.real, turned.imag], axis=1))
    dst = lab.take(2 * row_bytes("FLOAT", 3 * size))
    lab.run(
        "ROPE", n_tokens=2, position=7, dst=dst, src=lab.put_rows(x), heads=3, head_size=size,
        layout=number("ROPE", layout), table=table,
    )  # fmt: skip
    heads = x.reshape(2, 3, size)
    pairs = heads[..., ::2] + 1j * heads[..., 1::2]
    if layout == "HALF":
        pairs = heads[..., : size // 2] + 1j * heads[..., size // 2 :]
    pairs = pairs * turned[7:9, None]
    parts = [pairs.real, pairs.imag]
    expected = np.concatenate(parts, axis=2) if layout == "HALF" else np.stack(parts, axis=3)
    np.testing.assert_allclose(lab.rows(dst, 2, 3 * size), expected.reshape(2, -1), rtol=1e-5, atol=1e-6)


def attention(q, k, v, position):
    """Causal attention of n queries (n, kv_heads, group, size) at `position` over keys and values (positions, kv_heads, size)."""
    scores = np.einsum("nhgd,phd->nhgp", q, k) / np.sqrt(q.shape[-1])
    behind = np.arange(len(k))[None, :] > position + np.arange(len(q))[:, None]
    scores = np.where(behind[:, None, None], -np.inf, scores)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("nhgp,phd->nhgd", weights / weights.sum(axis=-1, keepdims=True), v)


@pytest.mark.parametrize("kv", ["INT16", "INT8"])
@pytest.mark.parametrize(
    ("size", "heads", "group", "past", "n"),
    [
        (64, 3, 3, 60, 1),
        (10, 2, 3, 5, 7),
        (80, 1, 7, 600, 1),
        (96, 2, 1, 0, 3),
        (128, 2, 2, 250, 13),
        (256, 1, 4, 300, 2),
    ],
)
def test_attention(lab, random, kv, size, heads, group, past, n):
    """Several spans of positions, several tiles of rows, one token and many, heads of any size."""
    k, v = (random.standard_normal((past + n, heads, size)).astype(np.float32) for _ in range(2))
    q = (2 * random.standard_normal((n, heads, group, size))).astype(np.float32)
    cache = CacheLayout(kv, 1, heads, size, 704)
    words = CacheLayout(kv, 1, heads, size, 704, lab.take(cache.n_bytes)).words(0)
    for start, stop in [*((p, min(p + 64, past)) for p in range(0, past, 64)), (past, past + n)]:
        rows = [lab.put_rows(a[start:stop].reshape(stop - start, -1)) for a in (k, v)]
        lab.run("STORE", n_tokens=stop - start, position=start, key_rows=rows[0], value_rows=rows[1], **words)
    width = heads * group * size
    dst, parts = lab.take(n * row_bytes("FLOAT", width)), lab.take(partials_bytes(heads * group, heads, size, 704))
    shared = {"dst": dst, "query_rows": lab.put_rows(q.reshape(n, -1)), "partials": parts, "group": group, **words}
    for operation in ("ATTEND", "MERGE"):
        lab.run(operation, n_tokens=n, position=past, **shared)
    expected = attention(*(a.astype(np.float64) for a in (q, k, v)), past).reshape(n, -1)
    error = np.abs(lab.rows(dst, n, width) - expected).max() / np.abs(expected).max()
    assert error < (2e-3 if kv == "INT16" else 5e-2)


def peaks_of(rows):
    """The largest of each 16 values; infinity if one is not finite."""
    groups = np.array_split(rows, range(16, rows.shape[-1], 16), axis=-1)
    return np.stack([np.where(np.isfinite(g).all(axis=-1), g.max(axis=-1), np.inf) for g in groups], axis=-1)


def test_results_that_are_not_finite_are_peaks_of_their_own(lab):
    bias = np.zeros(37, np.float32)
    bias[20], bias[36] = -np.inf, np.nan
    _, panels = lab.repack(np.zeros((37, 32), "<f4").tobytes(), "F32", "Q8", 37, 32)
    src, _ = integers(lab, np.ones((1, 32), np.float32), "INT16")
    dst, peaks = lab.take(row_bytes("FLOAT", 37)), lab.take(peaks_bytes(37, 1))
    lab.run(
        "LINEAR", n_tokens=1, dst=dst, weight=panels, format=number("FORMAT", "Q8"), src=src, peaks=peaks,
        src_row=number("ROW", "INT16"), inputs=32, outputs=37, bias=lab.put_vector(bias), residual=NOTHING,
    )  # fmt: skip
    assert lab.floats_at(peaks, 3).tolist() == [0, np.inf, np.inf]


@pytest.mark.parametrize("digits", [7, 1])
def test_candidates_are_the_largest_above_the_floor_and_of_equal_ones_the_first(lab, random, digits):
    logits = random.standard_normal(1003).round(digits).astype(np.float32)
    place, peaks = (Place(lab.put(x) * UNIT) for x in (logits, peaks_of(logits)))
    found = lab.take(8 * 1003)
    for below, most in ((1e30, 10), (1.5, 1003), (2.0, 5), (0.0, 10), (4.0, 1), (1e30, 1003)):
        count = lab.call("candidates", place, peaks, 1003, below, most, Place(found * UNIT))
        ids = lab.bytes_at(found, 4 * count).view(np.int32)
        values = lab.bytes_at(found, 8 * count)[4 * count :].view(np.float32)
        floor = np.float32(logits.max()) - np.float32(below)
        expected = np.argsort(-logits, kind="stable")[: (logits >= floor).sum()][:most]
        assert sorted(ids) == sorted(expected)
        assert count == most or sorted(ids) == ids.tolist()
        np.testing.assert_array_equal(values, logits[ids])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_noticed(lab, bad):
    for place in (0, 7, 9):
        logits = np.ones(10, np.float32)
        logits[place] = bad
        found = Place(lab.take(80) * UNIT)
        given = (Place(lab.put(x) * UNIT) for x in (logits, peaks_of(logits)))
        assert lab.call("candidates", *given, 10, 1.0, 10, found) == -1
