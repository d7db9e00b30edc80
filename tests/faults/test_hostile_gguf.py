"""GGUF files that lie: each is refused by a FormatError that names the file and the field, quickly and in little memory."""

from __future__ import annotations

import contextlib
import json
import struct
import time
import tracemalloc

import pytest

from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.formats.gguf import GGUFFile, read_gguf
from pyruntime.formats.gguf_metadata import MAX_ITEMS
from pyruntime.formats.source import BytesSource, run_without_waiting
from pyruntime.formats.tensor_types import TENSOR_TYPES
from pyruntime.model.config import config_from_gguf
from pyruntime.text import Tokenizer
from pyruntime.weights.quantized import dequantize
from tests import gguf_writer as writer
from tests.gguf_writer import Typed, gguf_bytes, header, pair, string, tensor_info
from tests.tiny_tokenizer import tokenizer_metadata

ARCHITECTURE = {"general.architecture": "llama"}
PAIR = pair("general.architecture", "llama")
SECONDS = 2.0
HALF = (writer.UINT8, bytes(MAX_ITEMS // 2 + 1))  # array items


def open_everything(data: bytes, name: str) -> GGUFFile:
    """All that is read from a model file before it answers: header, tokenizer, tensors."""
    source = BytesSource(data, name)
    file = run_without_waiting(read_gguf(source))
    if "tokenizer.ggml.model" in file.metadata:
        Tokenizer.from_metadata(file.metadata, name)
    for tensor in file.tensors.values():
        raw = run_without_waiting(source.read(tensor.offset, tensor.nbytes))
        dequantize(raw, tensor.type, tensor.shape, file=name, tensor=tensor.name)
    return file


def refusal(data: bytes, name: str = "hostile.gguf") -> FormatError:
    """The error that opening gives, after checking that it came fast and named the file."""
    started = time.perf_counter()
    with pytest.raises(FormatError) as caught:
        open_everything(data, name)
    assert time.perf_counter() - started < SECONDS
    assert caught.value.file == name
    assert str(caught.value).startswith(f"{name}: ")
    return caught.value


def one_pair(value: bytes, key: str = "x.key") -> bytes:
    """A file with an architecture and one more pair, whose type and value are given as bytes."""
    return header(3, 0, 2) + PAIR + string(key) + value


def one_tensor(info: bytes, data: bytes = bytes(64), *, pairs: bytes = PAIR, n_pairs: int = 1) -> bytes:
    """A file with one tensor whose entry is given as bytes."""
    head = header(3, 1, n_pairs) + pairs + info
    return head + writer.padding(len(head), 32) + data


def two_tensors(first: bytes, second: bytes) -> bytes:
    head = header(3, 2, 1) + PAIR + first + second
    return head + writer.padding(len(head), 32) + bytes(128)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def array(item_type: int, count: int, items: bytes = b"") -> bytes:
    return u32(writer.ARRAY) + struct.pack("<IQ", item_type, count) + items


HEADERS = {
    "an empty file": (b"", "header"),
    "a file cut inside its first number": (b"GGUF\3\0", "version"),
    "a page instead of a file": (b"<!DOCTYPE html><html><body>404</body></html>", "magic"),
    "an unknown version": (header(4, 0, 1) + PAIR, "version"),
    "the first version": (header(1, 0, 1) + PAIR, "version"),
    "a byte-swapped version": (b"GGUF" + struct.pack(">I", 3) + bytes(16), "version"),
    "no counts": (b"GGUF" + u32(3), "counts"),
    "more tensors than bytes": (header(3, 2**63, 1) + PAIR, "tensor count"),
    "more pairs than bytes": (header(3, 0, 2**64 - 1) + PAIR, "metadata count"),
    "a million pairs": (header(3, 0, 1_000_000) + bytes(13_000_000), "metadata count"),
    "a million tensors": (header(3, 1_000_000, 0) + bytes(24_000_000), "tensor count"),
}
METADATA = {
    "a key of 2^63 bytes": (header(3, 0, 1) + struct.pack("<Q", 2**63) + bytes(64), "key length"),
    "a key longer than allowed": (header(3, 0, 1) + string("k" * 65_536) + u32(0) + b"\0", "key length"),
    "a key that is not UTF-8": (header(3, 0, 1) + string(b"\xff\xfe") + u32(0) + b"\0", "metadata 0: key"),
    "a key twice": (header(3, 0, 2) + PAIR + PAIR, "general.architecture"),
    "an unknown value type": (one_pair(u32(13) + bytes(8)), "x.key"),
    "a value cut short": (one_pair(u32(writer.UINT64) + b"\0\0"), "x.key"),
    "a string longer than the file": (one_pair(u32(writer.STRING) + struct.pack("<Q", 2**40)), "x.key"),
    "a string that is not UTF-8": (one_pair(u32(writer.STRING) + string(b"\xc3(")), "x.key"),
    "a boolean of 7": (one_pair(u32(writer.BOOL) + b"\7"), "x.key"),
    "a boolean of 2 in an array": (one_pair(array(writer.BOOL, 2, b"\1\2")), "x.key"),
    "an array longer than the file": (one_pair(array(writer.UINT64, 1000, bytes(80))), "x.key"),
    "an array whose bytes overflow 64 bits": (one_pair(array(writer.UINT64, 2**61 + 1, bytes(80))), "x.key"),
    "an array of strings longer than the file": (one_pair(array(writer.STRING, 1000, bytes(80))), "x.key"),
    "a string item longer than the file": (
        one_pair(array(writer.STRING, 2, string("a") + struct.pack("<Q", 2**63))),
        "x.key: item 1",
    ),
    "a string item that is not UTF-8": (
        one_pair(array(writer.STRING, 2, string("a") + string(b"\xff"))),
        "x.key: item 1",
    ),
    "more array items than allowed": (one_pair(array(writer.UINT8, MAX_ITEMS + 1, bytes(MAX_ITEMS + 1))), "x.key"),
    "arrays of arrays": (one_pair(array(writer.ARRAY, 1) * 1000), "x.key"),
    "an array of an unknown type": (one_pair(array(99, 1, bytes(8))), "x.key"),
    "no architecture": (header(3, 0, 1) + pair("general.name", "x"), "general.architecture"),
    "an architecture that is a number": (header(3, 0, 1) + pair("general.architecture", 5), "general.architecture"),
    "an empty architecture": (header(3, 0, 1) + pair("general.architecture", ""), "general.architecture"),
    "a template that is a number": (
        gguf_bytes({**ARCHITECTURE, "tokenizer.chat_template": 5}, {}),
        "tokenizer.chat_template",
    ),
    "an alignment that is a boolean": (
        gguf_bytes({**ARCHITECTURE, "general.alignment": True}, {}),
        "general.alignment",
    ),
    "more array items in all than allowed": (
        gguf_bytes({**ARCHITECTURE, "x": Typed(writer.ARRAY, HALF), "y": Typed(writer.ARRAY, HALF)}, {}),
        "y",
    ),
    "a part that is a boolean": (gguf_bytes({**ARCHITECTURE, "split.count": True}, {}), "split.count"),
    "the second part of who knows how many": (gguf_bytes({**ARCHITECTURE, "split.no": 1}, {}), "split.no"),
    "one part of three": (gguf_bytes({**ARCHITECTURE, "split.no": 1, "split.count": 3}, {}), "split.no"),
    "the first part of two": (gguf_bytes({**ARCHITECTURE, "split.no": 0, "split.count": 2}, {}), "split.no"),
    **{
        f"an alignment of {value}": (gguf_bytes({**ARCHITECTURE, "general.alignment": value}, {}), "general.alignment")
        for value in (0, 4, 48, 2**31, 131_072)
    },
}
TENSORS = {
    "a name of 2^31 bytes": (one_tensor(struct.pack("<Q", 2**31) + bytes(60)), "tensor 0: name length"),
    "a name longer than allowed": (one_tensor(tensor_info("n" * 257, "F32", (4,), 0)), "tensor 0: name length"),
    "a name that is not UTF-8": (one_tensor(tensor_info(b"\xff", "F32", (4,), 0)), "tensor 0: name"),
    "five dimensions": (one_tensor(tensor_info("t", "F32", (1, 1, 1, 1, 4), 0)), "tensor t"),
    "2^32 - 1 dimensions": (one_tensor(string("t") + u32(2**32 - 1) + bytes(64)), "tensor t"),
    "a dimension of zero": (one_tensor(tensor_info("t", "F32", (0, 4), 0)), "tensor t"),
    "a size that wraps 64 bits": (one_tensor(tensor_info("t", "F32", (2**33, 2**33, 4), 0)), "tensor t"),
    "an unknown type": (one_tensor(tensor_info("t", 200, (4,), 0)), "tensor t"),
    "a quantised row that is no whole block": (one_tensor(tensor_info("t", "Q4_0", (33,), 0)), "tensor t"),
    **{
        f"a row of {name} that is no whole block": (one_tensor(tensor_info("t", name, (8, 32), 0), bytes(256)), "tensor t")
        for name in ("Q4_K", "Q5_K", "Q6_K")
    },
    "K blocks cut short": (one_tensor(tensor_info("t", "Q6_K", (2, 256), 0), bytes(419)), "tensor t"),
    "data beyond the end": (one_tensor(tensor_info("t", "F32", (4,), 1 << 20)), "tensor t"),
    "an offset of 2^63": (one_tensor(tensor_info("t", "F32", (4,), 2**63)), "tensor t"),
    "an offset off the alignment": (one_tensor(tensor_info("t", "F32", (4,), 8)), "tensor t"),
    "data cut short": (one_tensor(tensor_info("t", "F32", (17,), 0)), "tensor t"),
    "an entry cut short": (header(3, 1, 1) + PAIR + string("t") + u32(2) + bytes(10), "tensor t"),
    "two tensors of one name": (two_tensors(tensor_info("t", "F32", (4,), 0), tensor_info("t", "F32", (4,), 32)), "tensor t"),
    "overlapping tensors": (two_tensors(tensor_info("a", "F32", (12,), 0), tensor_info("b", "F32", (4,), 32)), "tensor b"),
    **{
        f"a {name} block of bytes 0xFF, whose scales are no numbers": (
            one_tensor(tensor_info("t", name, (256,), 0), b"\xff" * (256 // size * n_bytes)), "t"
        )
        for name, (_, size, n_bytes) in TENSOR_TYPES.items()
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("data", "field"),
    [pytest.param(*case, id=name) for group in (HEADERS, METADATA, TENSORS) for name, case in group.items()],
)
def test_a_lying_file_is_refused_naming_the_field(data, field):
    assert field in refusal(data).field


@pytest.mark.parametrize("name", ["Q2_K", "IQ4_NL"])
def test_a_tensor_type_that_is_not_supported_is_refused_by_its_name(name):
    error = refusal(one_tensor(tensor_info("blk.0.ffn_up.weight", name, (256,), 0)))
    assert isinstance(error, UnsupportedError)
    assert "blk.0.ffn_up.weight" in error.field
    assert name in str(error)
    assert "Q8_0" in str(error), "the error says what is allowed"


def test_an_error_shows_a_strange_name_quoted_and_cut():
    error = refusal(one_tensor(tensor_info("\x1b[2Jcleared\n" + "x" * 200, 200, (4,), 0)))
    assert "\x1b" not in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 400


def test_a_tensor_named_like_a_path_is_only_a_name():
    file = open_everything(gguf_bytes(ARCHITECTURE, {"../../t": ("F32", (4,), bytes(16))}), "tiny.gguf")
    assert list(file.tensors) == ["../../t"]


@pytest.mark.parametrize(
    "value",
    [
        array(writer.UINT8, MAX_ITEMS, bytes(100)),
        array(writer.STRING, MAX_ITEMS, bytes(100)),
        u32(writer.STRING) + struct.pack("<Q", 2**34),
    ],
    ids=["numbers", "strings", "one string"],
)
def test_a_lying_length_costs_no_memory(value):
    tracemalloc.start()
    try:
        refusal(one_pair(value))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_largest_array_allowed_costs_bounded_time():
    """The item that is wrong comes last, so everything before it has been read."""
    items = struct.pack("<Q", 0) * (MAX_ITEMS - 1) + string(b"\xff")
    data = one_pair(array(writer.STRING, MAX_ITEMS, items))
    assert refusal(data).field == f"x.key: item {MAX_ITEMS - 1}"


def small_model() -> bytes:
    metadata = {
        **ARCHITECTURE,
        **tokenizer_metadata(["a b", "ab c"], added={"<|end|>": 3, "<think>": 4}, eos_token_id=258),
        "flag": True,
        "numbers": Typed(writer.ARRAY, (writer.INT16, [1, -2])),
        "tokenizer.chat_template": "{{ messages }}",
    }
    return gguf_bytes(metadata, {"a": ("Q5_K", (256,), bytes(176)), "b": ("Q4_1", (32,), bytes(20))})


def only_format_errors(data: bytes) -> None:
    """Anything else that comes out of opening `data` fails the test."""
    with contextlib.suppress(FormatError):
        file = open_everything(data, "mutated.gguf")
        config_from_gguf(file.metadata, file.tensors, "mutated.gguf")


def test_a_file_cut_anywhere_gives_nothing_but_a_format_error():
    whole = small_model()
    assert open_everything(whole, "whole.gguf").tensors.keys() == {"a", "b"}
    # Most of the file is 256 tokens of one character, each alike: every seventh cut is enough there.
    for length in (*range(0, len(whole), 7), *range(400), *range(len(whole) - 700, len(whole))):
        only_format_errors(whole[:length])
    assert "tensor b" in refusal(whole[:-1]).field


@pytest.mark.parametrize("change", [0x01, 0x80, 0xFF])
def test_a_file_with_any_byte_changed_gives_nothing_but_a_format_error(change):
    whole = bytearray(small_model())
    for position in (*range(0, len(whole), 5), *range(400), *range(len(whole) - 700, len(whole))):
        whole[position] ^= change
        only_format_errors(bytes(whole))
        whole[position] ^= change


def test_every_hostile_file_of_the_shared_corpus_is_refused_naming_its_field(shared):
    folder = shared / "corpus" / "malformed"
    entries = [
        entry for entry in json.loads((folder / "MANIFEST.json").read_text())["entries"] if entry["kind"] == "gguf"
    ]
    assert len(entries) == 35
    for entry in entries:
        data = (folder / entry["file"]).read_bytes()
        if entry["expect"] == "error":
            assert entry["error_must_name"] in refusal(data, entry["file"]).field, entry
        elif entry["expect"] == "ok":
            open_everything(data, entry["file"])
        else:
            try:
                open_everything(data, entry["file"])
            except FormatError as error:
                assert entry["error_must_name"] in error.field, entry  # noqa: PT017 - either outcome is right
