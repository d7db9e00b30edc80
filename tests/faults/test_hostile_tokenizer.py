"""Tokenizer files that lie, and compiled tables that are not what they were: refused by name, quickly, in little memory."""

from __future__ import annotations

import hashlib
import json
import struct
import time
import tracemalloc
from functools import partial

import pytest

from pyruntime.errors import FormatError
from pyruntime.text import Tokenizer
from pyruntime.text.tables import TablesError, compile_tables, read_tables
from pyruntime.text.tokenizer_config import read_tokenizer_config
from tests.unit.test_tokenizer_json import BYTE_LEVEL, added, tokenizer_file

SECONDS = 2.0
MEMORY = 256 << 20
SHA256 = hashlib.sha256(b"the file").hexdigest()


def quickly(work, *, memory=MEMORY):
    """What `work` gives, or its FormatError, after checking its time and, unless None, its memory."""
    if memory is not None:
        tracemalloc.start()
    started = time.perf_counter()
    try:
        return work()
    except FormatError as error:
        return error
    finally:
        assert time.perf_counter() - started < SECONDS
        if memory is not None:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < memory


def opened(data, text=None):
    """The ids of `text` by the tokenizer in `data`; or the error."""

    def work():
        tokenizer = Tokenizer.from_tokenizer_json(data)
        return None if text is None else tokenizer.encode_with_control(text)

    return quickly(work)


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "JSON"),
        (b"{}" * 1000, "JSON"),
        (tokenizer_file(model_vocab={"a": 10**9}), "model.vocab"),
        (tokenizer_file(model_vocab={"a": 2**63}), "model.vocab"),
        (tokenizer_file(model_vocab={"\udcff": 1}), "model.vocab"),
        (tokenizer_file(added_tokens=[added("")]), "added_tokens[0].content"),
        (tokenizer_file(added_tokens=[added("x" * 2000)]), "added_tokens[0].content"),
        (tokenizer_file(added_tokens=[added("<" * (i + 1), id=258 + i) for i in range(1, 100)]), "added_tokens[0].id"),
        (tokenizer_file(added_tokens=[added("<" * (i + 2), id=258 + i) for i in range(100)]), "added_tokens"),
        (tokenizer_file(added_tokens=[added(f"<{i}>", id=258 + i) for i in range(16_385)]), "added_tokens"),
        (
            tokenizer_file(pre_tokenizer={"type": "Split", "pattern": {"Regex": "x*"}, "behavior": "Isolated", "invert": False}),
            "pre_tokenizer.pattern.Regex",
        ),
        (tokenizer_file(pre_tokenizer={"type": "Sequence", "pretokenizers": [BYTE_LEVEL] * 1000}), "pre_tokenizer.pretokenizers[1].type"),
    ],
    ids=["deep", "two values", "sparse id", "huge id", "half a pair", "empty", "long", "gap", "nested", "many", "nothing", "many steps"],
)  # fmt: skip
def test_a_hostile_file_is_refused_naming_the_place(data, field):
    error = opened(data)
    assert isinstance(error, FormatError)
    assert error.field == field
    assert len(str(error)) < 600


def test_a_file_of_millions_of_values_costs_no_memory():
    error = opened(b'{"model": [' + b"[]," * 5_000_000 + b"[]]}")
    assert (error.field, error.problem) == ("JSON", "about 10000003 values")


def test_a_token_inside_another_is_found_quickly_in_what_almost_spells_it():
    tokens = ["<" * length + "|" for length in range(1, 60)]
    data = tokenizer_file(added_tokens=[added(token, id=258 + index) for index, token in enumerate(tokens)])
    ids = opened(data, "<" * 20_000)
    assert ids == [ord("<")] * 20_000


def test_every_hostile_tokenizer_of_the_shared_corpus_behaves_as_its_list_says(shared):
    folder = shared / "corpus" / "malformed"
    entries = json.loads((folder / "MANIFEST.json").read_text())["entries"]
    seen = 0
    for entry in entries:
        if entry["kind"] != "tokenizer.json":
            continue
        seen += 1
        probe = entry.get("probe", {"text": "abc"})
        text = probe.get("text") or "".join(part * times for part, times in probe["text_parts"])
        outcome = opened((folder / entry["file"]).read_bytes(), text)
        if isinstance(outcome, FormatError):
            assert entry["expect"] != "ok", entry
            assert (entry["error_must_name"] or "") in f"{outcome.field}", entry
        else:
            assert entry["expect"] != "error", entry
            assert outcome == entry.get("expect_ids", outcome), entry
    assert seen == 20


def test_the_files_of_configurations_in_the_shared_corpus_are_read_or_refused(shared):
    folder = shared / "corpus" / "malformed"
    entries = json.loads((folder / "MANIFEST.json").read_text())["entries"]
    configs = {
        entry["file"]: quickly(partial(read_tokenizer_config, (folder / entry["file"]).read_bytes(), "c.json"))
        for entry in entries
        if entry["kind"] == "tokenizer_config.json"
    }
    assert len(configs) == 16
    refused = {name: outcome.field for name, outcome in configs.items() if isinstance(outcome, FormatError)}
    assert refused == {"cfg_09_number.tokenizer_config.json": "chat_template"}
    assert configs["cfg_10_list_default.tokenizer_config.json"].chat_templates == {
        "default": "d{{ messages|length }}",
        "tool_use": "t",
    }
    assert configs["cfg_11_eos_object.tokenizer_config.json"].special_tokens == {"eos_token": "<|end|>"}
    assert configs["cfg_13_no_template.tokenizer_config.json"].chat_templates == {}


@pytest.fixture(scope="module")
def tables():
    """Tables of a tokenizer with something in every part."""
    data = tokenizer_file(
        normalizer={
            "type": "Sequence",
            "normalizers": [
                {"type": "NFC"},
                {"type": "Replace", "pattern": {"Regex": r"\p{N}"}, "content": "0"},
                {"type": "Strip", "strip_left": True, "strip_right": False},
            ],
        },
        pre_tokenizer={
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "add_prefix_space": True}],
        },
        added_tokens=[added("<|end|>", lstrip=True), added("  ", id=259, special=False)],
    )
    return compile_tables(Tokenizer.from_tokenizer_json(data).spec, SHA256), Tokenizer.from_tokenizer_json(data)


def test_tables_give_the_tokenizer_they_were_made_from(tables):
    data, source = tables
    again = Tokenizer.from_tables(data, SHA256)
    text = "  ab 12  abc<|end|>\u1e69s\u0307\u0323"
    assert again.encode_with_control(text) == source.encode_with_control(text)
    assert again.encode(text) == source.encode(text)
    assert (again.vocab_size, again.control_ids) == (source.vocab_size, source.control_ids)
    assert compile_tables(again.spec, SHA256) == data
    assert again.spec.vocabulary == source.spec.vocabulary
    assert again.spec.merges == source.spec.merges


def test_tables_cut_anywhere_are_refused(tables):
    data, _ = tables
    for length in [*range(120), *range(120, len(data), 37)]:
        with pytest.raises(TablesError):
            read_tables(data[:length], SHA256)
    with pytest.raises(TablesError):
        read_tables(data + b"\0", SHA256)


def test_tables_with_any_byte_changed_are_refused(tables):
    data, _ = tables
    for place in [*range(120), *range(120, len(data), 23)]:
        changed = bytearray(data)
        changed[place] ^= 0x41
        with pytest.raises(TablesError):
            read_tables(bytes(changed), SHA256)


def signed(body):
    return body + hashlib.sha256(body).digest()


def test_tables_of_another_file_or_version_are_refused(tables):
    data, _ = tables
    with pytest.raises(TablesError, match="made from the file with SHA-256"):
        read_tables(data, "0" * 64)
    later = signed(data[:7] + b"\x63" + data[8:-32])
    with pytest.raises(TablesError, match="of version 99"):
        read_tables(later, SHA256)


def with_rest(data, **changes):
    """The tables with parts of their JSON changed and a hash that fits: as somebody could write them."""
    n_merges, text_bytes, rest_bytes = struct.unpack_from("<3I", data, 40)
    start = 52 + 12 * n_merges + text_bytes
    rest = json.dumps(json.loads(data[start : start + rest_bytes]) | changes).encode()
    return signed(data[:40] + struct.pack("<3I", n_merges, text_bytes, len(rest)) + data[52:start] + rest)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 10**9},
        {"size": "x"},
        {"size": 3},
        {"base": 2},
        {"base": 10**12},
        {"missing": [10**9]},
        {"missing": [1.5]},
        {"odd": [[10**9, "00"]]},
        {"odd": [[0, "zz"]]},
        {"unreachable": [10**9]},
        {"unreachable": None},
        {"mixed": ["zz"]},
        {"added": [["x", 10**9, True, False, False, False, False]]},
        {"added": [["x", 1]]},
        {"added": [[5, 1, True, False, False, False, False]]},
        {"normalizer": [["Form", "NFX"]]},
        {"normalizer": [["Anything", 1]]},
        {"normalizer": [["Strip", True]]},
        {"pre_tokenizer": [["Split", "(a+)+$", "Isolated", False]]},
        {"pre_tokenizer": [["Split", "a", "Eaten", False]]},
        {"pre_tokenizer": ["Split"]},
        {"special_ids": {"eos_token": 10**9}},
        {"special_ids": []},
        {"fallback_ids": [10**9]},
        {"prefix_ids": [10**9]},
        {"unknown_id": 10**9},
        {"unknown_id": "a"},
        {"byte_level": "yes"},
        {"decoding": []},
        {"decoding": [[["a"]], False, ["", 0]]},
        {"decoding": [[], 1, ["", 0]]},
        {"decoding": [[], False, ["ab", -1]]},
    ],
)
def test_tables_that_somebody_else_signed_are_still_checked(tables, changes):
    """They are written by this program alone; but a store can hold anything."""
    data, _ = tables
    assert Tokenizer.from_tables(with_rest(data), SHA256).encode("ab") == [32, 256]
    with pytest.raises(TablesError):
        read_tables(with_rest(data, **changes), SHA256)


def test_merges_of_ids_that_there_are_not_are_refused(tables):
    data, _ = tables
    body = bytearray(data[:-32])
    struct.pack_into("<I", body, 52, 10**9)
    with pytest.raises(TablesError, match="an id that the vocabulary does not have"):
        read_tables(signed(bytes(body)), SHA256)
