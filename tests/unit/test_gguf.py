"""Reading GGUF files that are what they claim to be."""

from __future__ import annotations

import io
import struct

import gguf
import numpy as np
import pytest

from pyruntime.errors import FormatError
from pyruntime.formats.gguf import FIRST_READ_BYTES, MAX_HEADER_BYTES, parse_gguf, read_gguf
from pyruntime.formats.gguf_metadata import PrefixTooShortError
from pyruntime.formats.source import BytesSource, FileSource, run_without_waiting
from pyruntime.formats.string_array import StringArray
from pyruntime.formats.tensor_types import TENSOR_TYPES
from tests import gguf_writer
from tests.gguf_writer import Typed, gguf_bytes, write_gguf

ARCHITECTURE = {"general.architecture": "llama"}


def read(data, name="model.gguf"):
    return run_without_waiting(read_gguf(BytesSource(data, name)))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (gguf_writer.UINT8, 255),
        (gguf_writer.INT8, -128),
        (gguf_writer.UINT16, 65535),
        (gguf_writer.INT16, -32768),
        (gguf_writer.UINT32, 2**32 - 1),
        (gguf_writer.INT32, -(2**31)),
        (gguf_writer.FLOAT32, 0.5),
        (gguf_writer.BOOL, True),
        (gguf_writer.STRING, "Grüße \U0001f600"),
        (gguf_writer.UINT64, 2**64 - 1),
        (gguf_writer.INT64, -(2**63)),
        (gguf_writer.FLOAT64, 1e300),
        (gguf_writer.ARRAY, (gguf_writer.STRING, ["", "a", "é"])),
        (gguf_writer.ARRAY, (gguf_writer.INT32, [3, -1])),
        (gguf_writer.ARRAY, (gguf_writer.BOOL, [True, False])),
        (gguf_writer.ARRAY, (gguf_writer.UINT8, [])),
    ],
)
def test_a_value_of_each_type_is_read_as_it_was_written(type_, value):
    file = read(gguf_bytes({**ARCHITECTURE, "x": Typed(type_, value)}, {}))
    expected = value[1] if type_ == gguf_writer.ARRAY else value
    assert file.metadata["x"] == expected
    assert type(file.metadata["x"]) is type(expected)


def test_a_tensor_has_numpys_shape_and_its_place_in_the_file():
    matrix, vector = np.arange(6, dtype="<f4"), bytes(range(34))
    data = gguf_bytes(ARCHITECTURE, {"m": ("F32", (2, 3), matrix.tobytes()), "v": ("Q8_0", (32,), vector)})
    file = read(data)
    assert list(file.tensors) == ["m", "v"]
    m, v = file.tensors.values()
    assert (m.shape, m.type, m.nbytes, m.offset) == ((2, 3), "F32", 24, file.data_offset)
    assert (v.shape, v.type, v.nbytes) == ((32,), "Q8_0", 34)
    assert data[m.offset : m.offset + m.nbytes] == matrix.tobytes()
    assert data[v.offset : v.offset + v.nbytes] == vector
    assert (file.size, file.alignment, file.version, file.name) == (len(data), 32, 3, "model.gguf")


@pytest.mark.parametrize("type_", TENSOR_TYPES)
def test_a_tensor_takes_the_bytes_of_its_type(type_):
    block_size, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[type_]]
    nbytes = 2 * 512 // block_size * block_bytes
    file = read(gguf_bytes(ARCHITECTURE, {"t": (type_, (2, 512), bytes(nbytes))}))
    assert (file.tensors["t"].type, file.tensors["t"].nbytes) == (type_, nbytes)


def test_a_scalar_tensor_is_one_value():
    assert read(gguf_bytes(ARCHITECTURE, {"t": ("F32", (), bytes(4))})).tensors["t"].nbytes == 4


def test_version_2_is_read():
    assert read(gguf_bytes(ARCHITECTURE, {}, version=2)).version == 2


def test_the_files_own_alignment_is_followed():
    metadata = {**ARCHITECTURE, "general.alignment": 256}
    tensors = {name: ("F32", (3,), bytes(12)) for name in ("a", "b")}
    file = read(gguf_bytes(metadata, tensors, alignment=256))
    assert [tensor.offset % 256 for tensor in file.tensors.values()] == [0, 0]
    assert file.tensors["b"].offset - file.tensors["a"].offset == 256


def test_tensors_need_not_be_listed_in_the_order_of_their_data():
    first, second = gguf_writer.tensor_info("a", "F32", (8,), 32), gguf_writer.tensor_info("b", "F32", (8,), 0)
    head = gguf_writer.header(3, 2, 1) + gguf_writer.pair("general.architecture", "llama") + first + second
    file = read(head + gguf_writer.padding(len(head), 32) + bytes(64))
    assert file.tensors["a"].offset == file.tensors["b"].offset + 32


def test_a_file_on_disk_is_read_and_named(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", ARCHITECTURE, {"t": ("F32", (4,), bytes(16))})
    file = run_without_waiting(read_gguf(FileSource(tmp_path / "tiny.gguf")))
    assert (file.name, list(file.tensors)) == ("tiny.gguf", ["t"])


def test_the_writer_writes_into_an_open_file_too():
    target = io.BytesIO()
    write_gguf(target, ARCHITECTURE, {})
    assert target.getvalue() == gguf_bytes(ARCHITECTURE, {})


def test_a_file_of_the_reference_writer_is_read_alike(tmp_path):
    path = tmp_path / "reference.gguf"
    values = np.linspace(-1, 1, 4 * 64, dtype=np.float32).reshape(4, 64)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(4096)
    writer.add_rope_freq_base(1e6)
    writer.add_token_list(["a", "b", "é"])
    writer.add_token_types([1, 1, 3])
    writer.add_add_bos_token(False)
    writer.add_tensor("plain", values)
    for type_ in (gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.BF16):
        writer.add_tensor(type_.name, gguf.quants.quantize(values, type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    file, reference = run_without_waiting(read_gguf(FileSource(path))), gguf.GGUFReader(path)
    assert dict(file.metadata) == {
        "general.architecture": "qwen3",
        "qwen3.context_length": 4096,
        "qwen3.rope.freq_base": 1e6,
        "tokenizer.ggml.tokens": ["a", "b", "é"],
        "tokenizer.ggml.token_type": [1, 1, 3],
        "tokenizer.ggml.add_bos_token": False,
    }
    assert [(t.name, t.shape, t.type, t.offset, t.nbytes) for t in file.tensors.values()] == [
        (t.name, (4, 64), t.tensor_type.name, t.data_offset, t.n_bytes) for t in reference.tensors
    ]


class Recorder:
    """A source that notes what was read."""

    def __init__(self, data, size=None):
        self._data, self.name, self.size, self.reads = data, "big.gguf", size or len(data), []

    async def read(self, offset, length):
        self.reads.append((offset, length))
        return self._data[offset : offset + length].ljust(length, b"\0")


def test_a_long_header_is_read_in_growing_steps_and_no_byte_twice():
    tokens = [f"token {i} {'x' * 80}" for i in range(100_000)]
    source = Recorder(gguf_bytes({**ARCHITECTURE, "tokens": tokens}, {"t": ("F32", (4 << 20,), bytes(16 << 20))}))
    file = run_without_waiting(read_gguf(source))
    assert file.metadata["tokens"] == tokens
    assert file.data_offset > 2 * FIRST_READ_BYTES
    starts, lengths = zip(*source.reads, strict=True)
    assert list(starts) == [sum(lengths[:i]) for i in range(len(lengths))]
    assert len(lengths) <= 4
    assert sum(lengths) <= 2 * file.data_offset


def test_only_the_beginning_of_a_large_file_is_read():
    source = Recorder(gguf_bytes(ARCHITECTURE, {}), size=1 << 40)
    run_without_waiting(read_gguf(source))
    assert source.reads == [(0, FIRST_READ_BYTES)]


def test_a_header_beyond_the_bound_is_refused_before_it_is_read():
    head = gguf_writer.header(3, 0, 1) + gguf_writer.string("x") + struct.pack("<IQ", gguf_writer.STRING, 1 << 33)
    source = Recorder(head, size=1 << 40)
    with pytest.raises(FormatError, match=f"big.gguf: header: .* at most {MAX_HEADER_BYTES}"):
        run_without_waiting(read_gguf(source))
    assert source.reads == [(0, FIRST_READ_BYTES)]


def test_a_prefix_that_ends_inside_the_header_asks_for_more():
    data = gguf_bytes({**ARCHITECTURE, "a": ["x"] * 50, "b": [1] * 50}, {"t": ("F32", (4,), bytes(16))})
    whole = parse_gguf(data, name="m", size=len(data))

    def needed_with(length):
        try:
            parsed = parse_gguf(memoryview(data)[:length], name="m", size=len(data))
        except PrefixTooShortError as error:
            return error.needed
        assert parsed == whole
        return length

    needed = [needed_with(length) for length in range(len(data))]
    end = next(length for length, more in enumerate(needed) if more == length)
    assert all(length < more <= end for length, more in enumerate(needed[:end]))
    assert needed[end:] == list(range(end, len(data)))
    assert end <= whole.data_offset


def test_the_parsed_header_cannot_be_changed():
    file = read(gguf_bytes(ARCHITECTURE, {}))
    with pytest.raises(TypeError):
        file.metadata["x"] = 1


def test_a_long_list_of_strings_is_kept_as_bytes_and_reads_like_a_list():
    strings = [f"é{n}" for n in range(5000)]
    found = read(gguf_bytes(ARCHITECTURE | {"x.y": strings}, {})).metadata["x.y"]
    assert isinstance(found, StringArray)
    assert (len(found), found[0], found[-1], found[7:9]) == (5000, "é0", "é4999", ["é7", "é8"])
    assert found == strings
    assert list(found) == strings
    assert hash(found) == hash(found)
    assert found != strings[:-1]
    assert found != "é"
    with pytest.raises(IndexError):
        found[5000]
