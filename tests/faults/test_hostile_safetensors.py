"""Safetensors files that lie: each is refused by a FormatError that names the file and the field, in little memory."""

from __future__ import annotations

import contextlib
import json
import struct
import tracemalloc

import pytest

from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.formats.safetensors import MAX_HEADER_BYTES, SafetensorsFile, read_safetensors
from pyruntime.formats.source import BytesSource, run_without_waiting
from tests.safetensors_writer import safetensors_bytes, with_header

ENTRY = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}


def open_file(data: bytes, name: str = "hostile.safetensors") -> SafetensorsFile:
    return run_without_waiting(read_safetensors(BytesSource(data, name)))


def refusal(data: bytes, name: str = "hostile.safetensors") -> FormatError:
    with pytest.raises(FormatError) as caught:
        open_file(data, name)
    assert caught.value.file == name
    assert str(caught.value).startswith(f"{name}: ")
    return caught.value


def entry(**changes) -> bytes:
    """A file with one tensor of four values, changed; None takes a key out."""
    values = {key: value for key, value in {**ENTRY, **changes}.items() if value is not None}
    return with_header(json.dumps({"t": values}), bytes(16))


def several(*offsets: tuple[int, int], data: int = 48) -> bytes:
    """A file whose tensors a, b, c… have these places in so many bytes of data."""
    table = {
        chr(ord("a") + n): {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}
        for n, (begin, end) in enumerate(offsets)
    }
    return with_header(json.dumps(table), bytes(data))


def test_an_honest_file_tells_where_its_tensors_lie():
    data = safetensors_bytes(
        {"b": ("BF16", (2, 3), bytes(range(12))), "a": ("F32", (), bytes(4)), "none": ("F16", (0, 5), b"")},
        {"format": "pt"},
    )
    file = open_file(data, "m.safetensors")
    assert list(file.tensors) == ["b", "a", "none"]
    assert file.metadata == {"format": "pt"}
    b = file.tensors["b"]
    assert (b.name, b.shape, b.type, b.nbytes, b.file) == ("b", (2, 3), "BF16", 12, "m.safetensors")
    assert data[b.offset : b.offset + b.nbytes] == bytes(range(12))
    assert (file.tensors["a"].shape, file.tensors["none"].nbytes) == ((), 0)


def test_only_the_header_is_read():
    class Noting(BytesSource):
        async def read(self, offset, length):
            read.append((offset, length))
            return await super().read(offset, length)

    read, data = [], entry()
    run_without_waiting(read_safetensors(Noting(data)))
    assert read == [(0, 8), (8, len(data) - 24)]


def test_spaces_after_the_header_are_allowed():
    assert open_file(with_header(json.dumps({"t": ENTRY}) + "   ", bytes(16))).tensors["t"].shape == (4,)


HEADERS = {
    "an empty file": (b"", "header length"),
    "less than a length": (b"1234567", "header length"),
    "a header longer than the file": (struct.pack("<Q", 100) + bytes(99), "header length"),
    "a header of 2^64 - 1 bytes": (b"\xff" * 8 + bytes(99), "header length"),
    "a header longer than allowed": (with_header(b"{" + b" " * MAX_HEADER_BYTES), "header length"),
    "a header of no bytes": (bytes(8), "header"),
    "a page instead of a file": (b"<!DOCTYPE html><html><body>404</body></html>", "header length"),
    "no JSON": (with_header(b"{no JSON}"), "header"),
    "a list": (with_header(b"[1, 2]"), "header"),
    "a space before the header": (with_header(b" {}"), "header"),
    "a byte-order mark": (with_header(b"\xef\xbb\xbf{}"), "header"),
    "no UTF-8": (with_header(b'{"\xff": 1}'), "header"),
    "NaN": (with_header(b'{"t": NaN}'), "header"),
    "deep nesting": (with_header(b'{"t":' + b"[" * 50_000 + b"]" * 50_000 + b"}"), "header"),
    "a million lists": (with_header(b'{"t": [' + b"[]," * 1_100_000 + b"[]]}"), "header"),
    "a number of many digits": (with_header(b'{"t": ' + b"9" * 5000 + b"}"), "header"),
    "a name twice": (with_header(b'{"t": {}, "t": {}}'), "t"),
    "a key twice": (with_header(b'{"t": {"dtype": 1, "dtype": 2}}'), "dtype"),
    "metadata that are no texts": (with_header(b'{"__metadata__": {"a": 1}}'), "__metadata__"),
    "metadata that are a list": (with_header(b'{"__metadata__": []}'), "__metadata__"),
}
ENTRIES = {
    "no object": (with_header(b'{"t": 7}'), "tensor t"),
    "no type": (entry(dtype=None), "tensor t"),
    "no shape": (entry(shape=None), "tensor t"),
    "no place": (entry(data_offsets=None), "tensor t"),
    "a key too many": (entry(strides=[1]), "tensor t"),
    "a shape that is no list": (entry(shape=4), "tensor t: shape"),
    "a negative size": (entry(shape=[-4]), "tensor t: shape"),
    "a size that is no whole number": (entry(shape=[4.0]), "tensor t: shape"),
    "a size that is a truth value": (entry(shape=[True, 4]), "tensor t: shape"),
    "a size of 4,000 digits": (entry(shape=[10**4000]), "tensor t: shape"),
    "sizes whose product wraps": (entry(shape=[2**48 - 1, 2**48, 4]), "tensor t"),
    "nine sizes": (entry(shape=[1] * 8 + [4]), "tensor t: shape"),
    "another shape": (entry(shape=[5]), "tensor t"),
    "another type": (entry(dtype="F16"), "tensor t"),
    "an end past the data": (entry(data_offsets=[0, 17]), "tensor t: data_offsets"),
    "an end of 4,000 digits": (entry(data_offsets=[0, 10**4000]), "tensor t: data_offsets"),
    "a begin after the end": (entry(data_offsets=[16, 0]), "tensor t: data_offsets"),
    "a negative begin": (entry(data_offsets=[-16, 0]), "tensor t: data_offsets"),
    "three offsets": (entry(data_offsets=[0, 8, 16]), "tensor t: data_offsets"),
    "offsets that are no whole numbers": (entry(data_offsets=[0.0, 16.0]), "tensor t: data_offsets"),
    "a name that is no text": (with_header(b'{"\\ud800": 7}'), r"tensor '\ud800'"),
    "a name of 1,000 characters": (with_header(json.dumps({"n" * 1000: 7})), "tensor 'nnn"),
    "a name that looks like a path": (with_header(b'{"../../t": 7}'), "tensor ../../t"),
}
PLACES = {
    "overlapping data": (several((0, 32), (16, 48)), "tensor b"),
    "the same data twice": (several((0, 48), (0, 48)), "tensor b"),
    "an empty tensor inside another": (several((0, 48), (16, 16)), "tensor b"),
    "a hole": (several((0, 16), (32, 48)), "tensor b"),
    "a hole before the first": (several((16, 48)), "tensor a"),
    "bytes at the end": (several((0, 32)), "data"),
    "data without a tensor": (several(), "data"),
}


@pytest.mark.parametrize("case", HEADERS | ENTRIES | PLACES)
def test_a_lying_file_is_refused_by_name(case):
    data, field = (HEADERS | ENTRIES | PLACES)[case]
    assert field in refusal(data).field


@pytest.mark.parametrize("dtype", ["F64", "I64", "U8", "BOOL", "F8_E4M3", "f32", "", 7, None, ["F32"], "Q8_0"])
def test_a_type_that_is_not_read_is_refused_by_its_name_with_those_that_are(dtype):
    data = with_header(json.dumps({"t": {**ENTRY, "dtype": dtype}}), bytes(16))
    with pytest.raises(
        UnsupportedError, match=r"tensor t: dtype .* is not supported \(allowed: F32, F16, BF16\)"
    ) as error:
        open_file(data)
    assert repr(dtype) in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<Q", MAX_HEADER_BYTES + 1) + b"{",
        with_header(b'{"t": [' + b"[]," * 1_100_000 + b"[]]}"),
        with_header(b'{"t":' + b"[" * 1_000_000 + b"}"),
    ],
    ids=["a lying length", "a million lists", "a million levels"],
)
def test_a_hostile_header_costs_memory_in_proportion_to_its_size(data):
    tracemalloc.start()
    try:
        refusal(data)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(data) + 100_000
    finally:
        tracemalloc.stop()


def test_a_file_cut_anywhere_gives_nothing_but_a_format_error():
    whole = safetensors_bytes({"a": ("F32", (2, 4), bytes(32)), "b": ("BF16", (3,), bytes(6))}, {"format": "pt"})
    for length in range(len(whole)):
        refusal(whole[:length])
    assert open_file(whole).tensors.keys() == {"a", "b"}


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_a_file_with_any_byte_changed_gives_nothing_but_a_format_error(change):
    whole = bytearray(safetensors_bytes({"a": ("F32", (2, 4), bytes(32)), "b": ("BF16", (3,), bytes(6))}))
    for position in range(len(whole)):
        whole[position] ^= change
        with contextlib.suppress(FormatError):
            open_file(bytes(whole))
        whole[position] ^= change


def test_every_hostile_file_of_the_shared_corpus_is_refused_naming_its_field(shared):
    folder = shared / "corpus" / "malformed"
    entries = json.loads((folder / "MANIFEST.json").read_text())["entries"]
    entries = [case for case in entries if case["kind"] == "safetensors"]
    assert len(entries) == 20
    for case in entries:
        data = (folder / case["file"]).read_bytes()
        if case["expect"] == "ok":
            open_file(data, case["file"])
        else:
            error = refusal(data, case["file"])
            assert case["error_must_name"] in error.field or error.field == "header", case
