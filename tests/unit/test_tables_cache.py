import hashlib

import pytest

from pyruntime.delivery.download import SourceError
from pyruntime.delivery.store import MemoryStore
from pyruntime.formats.source import BytesSource, run_without_waiting
from pyruntime.opening import read_model
from pyruntime.tables_cache import StoredTables
from pyruntime.text.tables import compile_tables
from pyruntime.text.tables_index import index_bytes, make_entry
from tests.delivery_fakes import PAGE, Network, run
from tests.tiny_model import open_tiny, tiny_gguf

MODEL = tiny_gguf()
SHA256 = hashlib.sha256(MODEL).hexdigest()
TABLES = compile_tables(open_tiny().tokenizer.spec, SHA256)
ENTRY = make_entry("tiny.gguf", SHA256, TABLES)
INDEX, FILE = f"{PAGE}tokenizers/index.json", f"{PAGE}tokenizers/{ENTRY.file}"


def cache(network, store=None):
    return StoredTables(store or MemoryStore(), network, site=PAGE, source_sha256=SHA256)


def opened(tables):
    return run(read_model(BytesSource(MODEL, "tiny.gguf"), tables=tables))


def test_the_sites_tables_are_used_and_kept_so_that_they_are_asked_for_once():
    store, network = MemoryStore(), Network({INDEX: index_bytes([ENTRY]), FILE: TABLES})
    for _ in range(2):
        assert opened(cache(network, store)).tokenizer.encode("Hi") == list(b"Hi")
    assert [url for url, *_ in network.asked] == [INDEX, FILE]
    assert run(store.get_tables(SHA256)) == TABLES


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {INDEX: b"<!doctype html>"},
        {INDEX: index_bytes([])},
        {INDEX: index_bytes([ENTRY]), FILE: SourceError("HTTP 404")},
        {INDEX: index_bytes([ENTRY]), FILE: TABLES[:-1]},
        {INDEX: index_bytes([ENTRY]), FILE: compile_tables(open_tiny().tokenizer.spec, "0" * 64)},
    ],
    ids=["no site list", "a page for a list", "not listed", "missing", "cut", "of another file"],
)
def test_without_good_tables_they_are_made_from_the_model_and_kept(answers):
    store = MemoryStore()
    assert opened(cache(Network(answers), store)).tokenizer.encode("Hi") == list(b"Hi")
    assert run(store.get_tables(SHA256)) == TABLES


def test_damaged_tables_on_the_device_are_made_anew():
    store = MemoryStore()
    run(store.put_tables(SHA256, TABLES[:100] + b"\xff" + TABLES[101:]))
    assert opened(cache(Network({}), store)).tokenizer.encode("Hi") == list(b"Hi")
    assert run(store.get_tables(SHA256)) == TABLES


def test_a_device_without_room_only_costs_the_time():
    class Full(MemoryStore):
        async def put_tables(self, sha256, data):
            raise SourceError("no room")

    assert opened(cache(Network({}), Full())).tokenizer.encode("Hi") == list(b"Hi")


def test_tables_are_deleted_with_their_model():
    store = MemoryStore()
    run(store.put_tables(SHA256, TABLES))
    run(store.delete(SHA256))
    assert run(store.get_tables(SHA256)) is None


def test_a_model_opens_alike_with_and_without_tables():
    with_tables = opened(cache(Network({INDEX: index_bytes([ENTRY]), FILE: TABLES})))
    without = run_without_waiting(read_model(BytesSource(MODEL, "tiny.gguf")))
    assert with_tables.generation == without.generation
    assert with_tables.tokenizer.special_tokens == without.tokenizer.special_tokens
    assert dict(with_tables.tokenizer.control_ids) == dict(without.tokenizer.control_ids)


def test_a_model_with_tables_does_not_hold_its_vocabulary_a_second_time():
    with_tables = opened(cache(Network({INDEX: index_bytes([ENTRY]), FILE: TABLES})))
    without = open_tiny()
    vocabulary = {f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges")}
    assert set(without.metadata) - set(with_tables.metadata) == vocabulary
    assert set(with_tables.metadata) <= set(without.metadata)
