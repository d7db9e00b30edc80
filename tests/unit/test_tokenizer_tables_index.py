"""The list of compiled tables, and loading a tokenizer with them or without."""

from __future__ import annotations

import json

import pytest

from pyruntime.errors import FormatError
from pyruntime.formats.source import run_without_waiting
from pyruntime.text.tables import compile_tables, read_tables
from pyruntime.text.tables_index import Loaded, index_bytes, load_spec, make_entry, read_index
from pyruntime.text.tokenizer_json import spec_from_tokenizer_json
from tests.unit.test_tokenizer_json import tokenizer_file

SHA256 = "ab" * 32


@pytest.fixture(scope="module")
def spec():
    return spec_from_tokenizer_json(tokenizer_file(), "tokenizer.json")


def reader_of(spec):
    async def read():
        return spec

    return read


def test_the_list_is_read_as_it_was_written(spec):
    entry = make_entry("model.gguf", SHA256, compile_tables(spec, SHA256))
    assert read_index(index_bytes([entry]), "index.json") == {SHA256: entry}
    assert read_index(index_bytes([]), "index.json") == {}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sha256": "ab"}, "tables[0].sha256"),
        ({"source_sha256": "AB" * 32}, "tables[0].source_sha256"),
        ({"file": "../x"}, "tables[0].file"),
        ({"bytes": "1"}, "tables[0].bytes"),
        ({"source": None}, "tables[0].source"),
    ],
)
def test_a_list_with_a_wrong_entry_is_refused_naming_it(spec, change, field):
    listed = json.loads(index_bytes([make_entry("model.gguf", SHA256, compile_tables(spec, SHA256))]))
    listed["tables"][0] |= change
    with pytest.raises(FormatError) as caught:
        read_index(json.dumps(listed).encode(), "index.json")
    assert caught.value.field == field


@pytest.mark.parametrize(
    "data", [b"[]", b'{"version": 2, "tables": []}', b'{"version": 1}', b'{"version": 1, "tables": [1]}']
)
def test_a_list_that_is_none_is_refused(data):
    with pytest.raises(FormatError):
        read_index(data, "index.json")


def test_good_tables_need_no_source(spec):
    tables = compile_tables(spec, SHA256)

    async def read():
        pytest.fail("the source was read")

    assert run_without_waiting(load_spec(tables, SHA256, read)) == Loaded(read_tables(tables, SHA256))


def test_without_tables_they_are_made_from_the_source(spec):
    loaded = run_without_waiting(load_spec(None, SHA256, reader_of(spec)))
    assert (loaded.spec, loaded.made, loaded.problem) == (spec, compile_tables(spec, SHA256), "")


def test_tables_that_are_not_good_are_made_anew_and_the_reason_is_told(spec):
    tables = compile_tables(spec, SHA256)
    for bad in (b"", tables[:-1], compile_tables(spec, "cd" * 32)):
        loaded = run_without_waiting(load_spec(bad, SHA256, reader_of(spec)))
        assert loaded.made == tables
        assert "tokenizer tables: " in loaded.problem
