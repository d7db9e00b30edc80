import asyncio
import dataclasses
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.delivery.download import SourceError, fetch_model
from pyruntime.delivery.store import BytesChunk, MemoryStore, StoreEntry
from pyruntime.errors import DeliveryError, FormatError
from tests.delivery_fakes import BASE, ORIGINS, Network, PausingStore, file_of, interleave, manifest_of, run

DATA = bytes(range(35))
A, B = "https://page.example/seed/a", "https://page.example/seed/b"
DROPPED = SourceError("the connection failed")


def fetch(network, store, *files, on_progress=None, origins=ORIGINS):
    manifest = manifest_of(*(files or [file_of(DATA)]))
    return fetch_model(manifest, store, network, base_url=BASE, allowed_origins=origins, on_progress=on_progress)


def content(model, path="tiny.gguf"):
    source = model.files[path]
    return bytes(run(source.read(0, source.size)))


def held(store, file=None):
    """Chunk indices in the store, each checked to have the bytes it should."""
    file = file or file_of(DATA)
    found = run(store.chunks(file.sha256))
    for index in found:
        chunk = run(store.get_chunk(file.sha256, index))
        assert chunk.data == DATA[index * 10 : index * 10 + 10]
    return sorted(found)


def wrong(data, position):
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def test_a_model_is_fetched_in_one_request_and_read_back():
    network, store = Network({A: DATA}), MemoryStore()
    model = run(fetch(network, store))
    assert content(model) == DATA
    assert model.model_files().open("tiny.gguf") is model.files["tiny.gguf"]
    assert network.asked == [(A, 0, 35)]
    assert run(store.entries()) == [StoreEntry(file_of(DATA).sha256, 35, committed=True)]


def test_what_is_committed_is_not_fetched_again():
    network, store, seen = Network({A: DATA}), MemoryStore(), []
    run(fetch(network, store))
    model = run(fetch(network, store, on_progress=lambda done, total: seen.append((done, total))))
    assert content(model) == DATA
    assert len(network.asked) == 1
    assert seen == [(35, 35)]


def test_progress_counts_to_the_size_of_all_files():
    seen = []
    other = file_of(b"x" * 12, path="config.json", sources=["b"])
    network = Network({A: DATA, B: b"x" * 12})
    run(fetch(network, MemoryStore(), file_of(DATA), other, on_progress=lambda *step: seen.append(step)))
    assert seen[0] == (0, 47)
    assert seen[-1] == (47, 47)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert {total for _, total in seen} == {47}


def test_a_drop_in_the_middle_keeps_what_was_verified_and_the_next_attempt_fetches_only_the_rest():
    store = MemoryStore()
    with pytest.raises(DeliveryError, match="the connection failed"):
        run(fetch(Network({A: [(DATA, 2, DROPPED), DROPPED], B: DROPPED}), store))
    assert held(store) == [0, 1]
    assert not run(store.entries())[0].committed
    network = Network({A: DATA})
    assert content(run(fetch(network, store))) == DATA
    assert network.asked == [(A, 20, 15)]


def test_a_source_that_drops_after_progress_is_asked_again():
    network = Network({A: [(DATA, 2, DROPPED), DATA]})
    assert content(run(fetch(network, MemoryStore(), file_of(DATA, sources=["a"])))) == DATA
    assert network.asked == [(A, 0, 35), (A, 20, 15)]


def test_progress_steps_back_when_a_chunk_is_lost_on_the_way():
    seen = []
    network = Network({A: (DATA, 1, DROPPED), B: DATA})
    run(fetch(network, MemoryStore(), on_progress=lambda done, total: seen.append(done)))
    assert seen == [0, 10, 10, 15, 10, 20, 20, 30, 30, 35, 35]


def test_a_failed_transfer_is_ended_before_the_next_begins():
    network = Network({A: wrong(DATA, 12), B: DATA})
    asyncio.run(fetch(network, MemoryStore()))
    assert (network.open, network.most_open, len(network.asked)) == (0, 1, 2)


def test_holes_are_filled_with_one_request_each():
    file, store = file_of(DATA), MemoryStore()
    for index in (1, 3):
        run(store.put_chunk(file.sha256, index, BytesChunk(DATA[index * 10 :][:10]), file.chunk_sha256[index]))
    network, seen = Network({A: DATA}), []
    assert content(run(fetch(network, store, on_progress=lambda *step: seen.append(step)))) == DATA
    assert network.asked == [(A, 0, 10), (A, 20, 10)]
    assert seen[-1] == (35, 35)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (SourceError("the server answered HTTP 500"), "HTTP 500"),
        (b"<html>" * 6, "chunk 0 has SHA-256"),
        (wrong(DATA, 17), "chunk 1 has SHA-256"),
        (DATA[:25], "ended too early"),
        ([(DATA, 1, DROPPED), DROPPED], "the connection failed"),
    ],
)
def test_the_next_source_goes_on_where_a_bad_one_failed(bad, reason):
    seen = []
    network = Network({A: bad, B: DATA})
    model = run(fetch(network, MemoryStore(), on_progress=lambda done, total: seen.append(done)))
    assert content(model) == DATA
    assert [url for url, _, _ in network.asked] == [A, B]
    assert seen[-1] == 35
    with pytest.raises(DeliveryError) as caught:
        run(fetch(Network({A: bad, B: SourceError("HTTP 404")}), MemoryStore()))
    assert str(caught.value).startswith("tiny.gguf: no source delivered it: ")
    assert reason in str(caught.value)
    assert "HTTP 404" in str(caught.value)


def test_two_sources_with_different_faults_make_one_whole_file():
    network = Network({A: wrong(DATA, 12), B: wrong(DATA, 32)})
    assert content(run(fetch(network, MemoryStore()))) == DATA
    assert [url for url, _, _ in network.asked] == [A, B, A]


def test_a_bad_chunk_is_named_with_both_hashes_and_is_not_stored():
    store, file = MemoryStore(), file_of(DATA, sources=["a"])
    bad = wrong(DATA, 12)
    with pytest.raises(DeliveryError) as caught:
        run(fetch(Network({A: bad}), store, file))
    found, expected = hashlib.sha256(bad[10:20]).hexdigest(), file.chunk_sha256[1]
    assert f"tiny.gguf: no source delivered it: 'a': chunk 1 has SHA-256 {found}, expected {expected}" in str(
        caught.value
    )
    assert held(store) == [0]


def test_a_source_on_another_origin_is_refused_without_being_asked():
    elsewhere = "https://elsewhere.example/tiny.gguf"
    file = file_of(DATA, sources=[elsewhere, "b"])
    network = Network({elsewhere: DATA, B: DATA})
    assert content(run(fetch(network, MemoryStore(), file))) == DATA
    assert [url for url, _, _ in network.asked] == [B]
    with pytest.raises(DeliveryError, match=r"https://elsewhere\.example', which is not an allowed origin"):
        run(fetch(network, MemoryStore(), file_of(DATA, sources=[elsewhere])))
    model = run(fetch(network, MemoryStore(), file, origins={"https://elsewhere.example"}))
    assert content(model) == DATA


def test_a_manifest_whose_chunks_do_not_add_up_leaves_nothing_behind():
    lying = dataclasses.replace(file_of(DATA), sha256="0" * 64)
    store = MemoryStore()
    with pytest.raises(FormatError, match=r"tiny: tiny\.gguf: sha256: every chunk matches, but .* nothing is kept"):
        run(fetch(Network({A: DATA}), store, lying))
    assert run(store.entries()) == []


def test_a_manifest_that_contradicts_a_verified_file_cannot_destroy_it():
    store, good = MemoryStore(), file_of(DATA)
    run(fetch(Network({A: DATA}), store))
    lying = dataclasses.replace(good, chunk_sha256=("0" * 64, *good.chunk_sha256[1:]))
    with pytest.raises(FormatError, match="chunk_sha256: differs from that of the verified file"):
        run(fetch(Network({A: DATA}), store, lying))
    assert held(store) == [0, 1, 2, 3]
    assert content(run(fetch(Network({}), store))) == DATA


def test_chunks_that_another_manifest_left_are_not_taken_for_ours():
    file, store = file_of(DATA), MemoryStore()
    run(store.put_chunk(file.sha256, 0, BytesChunk(b"0123456789"), hashlib.sha256(b"0123456789").hexdigest()))
    network = Network({A: DATA})
    assert content(run(fetch(network, store))) == DATA
    assert network.asked == [(A, 0, 35)]


def test_a_file_is_not_whole_with_other_chunks_than_those_it_was_committed_with():
    good, store = file_of(DATA), MemoryStore()
    evil = dataclasses.replace(good, chunk_sha256=file_of(wrong(DATA, 12)).chunk_sha256)
    for index, digest in enumerate(evil.chunk_sha256):
        run(store.put_chunk(evil.sha256, index, BytesChunk(wrong(DATA, 12)[index * 10 :][:10]), digest))
    run(store.commit(good))
    assert run(store.open(evil)) is None
    assert run(store.open(good)) is None


def test_a_stored_chunk_that_was_damaged_is_fetched_anew():
    file, store = file_of(DATA), MemoryStore()
    for index in range(2):
        run(store.put_chunk(file.sha256, index, BytesChunk(b"damaged..."), file.chunk_sha256[index]))
    network = Network({A: DATA})
    assert content(run(fetch(network, store))) == DATA
    assert network.delivered == 35


def test_a_committed_file_that_lost_a_chunk_heals():
    store, file = MemoryStore(), file_of(DATA)
    run(fetch(Network({A: DATA}), store))
    del store._chunks[file.sha256, 2]
    assert run(store.open(file)) is None
    network = Network({A: DATA})
    assert content(run(fetch(network, store))) == DATA
    assert network.asked == [(A, 20, 10)]


def test_the_same_bytes_under_two_paths_are_fetched_once():
    network = Network({A: DATA})
    model = run(fetch(network, MemoryStore(), file_of(DATA), file_of(DATA, path="copy.bin")))
    assert content(model) == content(model, "copy.bin") == DATA
    assert network.delivered == 35


def test_too_little_room_is_told_with_numbers_before_anything_is_fetched():
    network, store = Network({A: DATA}), MemoryStore(quota=30)
    with pytest.raises(DeliveryError, match=r"storage: the model needs 0\.0 MB more and this device offers 0\.0 MB"):
        run(fetch(network, store))
    assert network.asked == []
    big = dataclasses.replace(file_of(DATA), size=98_362_432, chunk_size=98_362_432 // 4)
    with pytest.raises(
        DeliveryError, match=r"needs 98\.4 MB more and this device offers 50\.0 MB \(0\.0 MB of 50\.0 MB"
    ):
        run(fetch(network, MemoryStore(quota=50_000_000), big))


def test_room_is_needed_only_for_what_is_missing():
    file, store = file_of(DATA), MemoryStore(quota=35)
    run(store.put_chunk(file.sha256, 0, BytesChunk(DATA[:10]), file.chunk_sha256[0]))
    assert content(run(fetch(Network({A: DATA}), store))) == DATA


def test_a_store_that_refuses_ends_the_download_without_blaming_the_source():
    class FullStore(MemoryStore):
        async def space(self):
            return None

    network = Network({A: DATA, B: DATA})
    with pytest.raises(DeliveryError, match="memory store: 20 bytes used, 10 more do not fit"):
        run(fetch(network, FullStore(quota=25)))
    assert [url for url, _, _ in network.asked] == [A]


def test_a_fetcher_that_stops_without_a_word_counts_as_failed():
    class Silent(Network):
        async def fetch_chunks(self, url, **details):
            self.asked.append(url)
            return
            yield

    with pytest.raises(DeliveryError, match="ended before chunk 0"):
        run(fetch(Silent({}), MemoryStore()))


@given(st.integers(0, 60))
def test_cancelling_at_any_moment_leaves_verified_chunks_and_the_next_attempt_finishes(steps):
    store = PausingStore()
    coroutine = fetch(Network({A: DATA}), store)
    try:
        for _ in range(steps):
            coroutine.send(None)
        with pytest.raises(asyncio.CancelledError):
            coroutine.throw(asyncio.CancelledError())
    except StopIteration:  # it was faster
        pass
    before = held(store)
    network = Network({A: DATA})
    assert content(run(fetch(network, store))) == DATA
    assert network.delivered == 35 - sum(len(DATA[index * 10 :][:10]) for index in before)


# Who goes next, drawn beforehand: an example that is given up must not leave half-run downloads behind.
schedules = st.lists(st.integers(0, 2), max_size=150)


def by(schedule):
    """A choice for `interleave` that follows a schedule, and then always takes the first."""
    turns = iter(schedule)
    return lambda count: next(turns, 0) % count


@given(schedules)
def test_concurrent_downloads_of_one_file_all_end_whole_in_any_order(schedule):
    store = PausingStore()
    networks = [Network({A: DATA}), Network({A: wrong(DATA, 12), B: DATA}), Network({A: (DATA, 1, DROPPED), B: DATA})]
    models = interleave([fetch(network, store) for network in networks], by(schedule))
    assert [content(model) for model in models] == [DATA] * 3
    assert held(store) == [0, 1, 2, 3]
    assert run(store.entries()) == [StoreEntry(file_of(DATA).sha256, 35, committed=True)]


@given(schedules)
def test_a_hostile_manifest_beside_an_honest_one_never_makes_wrong_bytes_readable(schedule):
    store, good = PausingStore(), file_of(DATA)
    evil_data = wrong(DATA, 12)
    evil = dataclasses.replace(good, chunk_sha256=file_of(evil_data).chunk_sha256)
    honest, hostile = interleave(
        [fetch(Network({A: DATA}), store), fetch(Network({A: evil_data}), store, evil)],
        by(schedule),
    )
    assert isinstance(hostile, FormatError)
    if isinstance(honest, DeliveryError):
        assert "deleted by another tab" in str(honest)
    else:
        assert content(honest) == DATA
    assert content(run(fetch(Network({A: DATA}), store))) == DATA


@given(
    st.lists(
        st.one_of(
            st.just(DATA),
            st.integers(0, 34).map(lambda position: wrong(DATA, position)),
            st.integers(0, 34).map(lambda length: DATA[:length]),
            st.integers(0, 3).map(lambda good: (DATA, good, DROPPED)),
        ),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.sampled_from([DATA, b"", wrong(DATA, 5)]), min_size=1, max_size=3),
)
def test_whatever_the_sources_do_the_result_is_the_file_or_an_error_and_only_true_chunks_stay(first, second):
    store, outcome = MemoryStore(), None
    try:
        outcome = content(run(fetch(Network({A: [*first], B: [*second]}), store)))
    except DeliveryError as error:
        outcome = str(error)
    assert outcome == DATA or "no source delivered it" in outcome
    assert [entry.committed for entry in run(store.entries())] in ([], [outcome == DATA])
    held(store)


@pytest.mark.parametrize("position", [0, 12, 34])
def test_a_stored_chunk_that_was_damaged_since_is_noticed_and_fetched_again_alone(position):
    network, store = Network({A: DATA}), MemoryStore()
    run(fetch(network, store))
    sha256, index = file_of(DATA).sha256, position // 10
    digest, data = store._chunks[sha256, index]
    store._chunks[sha256, index] = (digest, wrong(data, position % 10))
    model = run(fetch(network, store))
    with pytest.raises(DeliveryError, match=rf"tiny.gguf: the stored copy is damaged \(chunk {index}\)"):
        run(model.verify())
    healed = run(fetch(network, store))
    assert content(healed) == DATA
    assert network.asked[1:] == [(A, index * 10, len(data))]
    run(healed.verify())


FOLDER = {
    name: bytes([n]) * 25
    for n, name in enumerate(("config.json", "tokenizer.json", "model-1.safetensors", "model-2.safetensors"))
}
FOLDER_FILES = [file_of(data, path=name, sources=(name,)) for name, data in FOLDER.items()]


def folder_network(**answers):
    """A network that has every file of the folder; `answers` replace some, with `_` for each dot and dash."""
    changed = {name: answers.get(name.replace(".", "_").replace("-", "_"), data) for name, data in FOLDER.items()}
    return Network({f"https://page.example/seed/{name}": answer for name, answer in changed.items()})


def test_every_file_of_a_model_is_fetched_once_and_counted():
    network, store, seen = folder_network(), MemoryStore(), []
    model = run(fetch(network, store, *FOLDER_FILES, on_progress=lambda *step: seen.append(step)))
    assert {name: content(model, name) for name in FOLDER} == FOLDER
    assert {name: source.name for name, source in model.model_files().sources.items()} == {n: n for n in FOLDER}
    assert [url.rpartition("/")[2] for url, _, _ in network.asked] == list(FOLDER)
    assert (seen[0][1], seen[-1]) == (100, (100, 100))


def test_a_model_of_several_files_goes_on_where_it_stopped():
    store = MemoryStore()
    broken = folder_network(model_1_safetensors=[(FOLDER["model-1.safetensors"], 1, DROPPED), DROPPED])
    with pytest.raises(DeliveryError, match=r"^model-1\.safetensors: no source delivered it"):
        run(fetch(broken, store, *FOLDER_FILES))
    assert sorted(entry.size for entry in run(store.entries()) if entry.committed) == [25, 25]
    network, seen = folder_network(), []
    model = run(fetch(network, store, *FOLDER_FILES, on_progress=lambda *step: seen.append(step)))
    assert {name: content(model, name) for name in FOLDER} == FOLDER
    asked = [(url.rpartition("/")[2], offset) for url, offset, _ in network.asked]
    assert asked == [("model-1.safetensors", 10), ("model-2.safetensors", 0)]
    assert seen[0] == (50, 100)
    assert [file.path for file in model.unverified] == ["config.json", "tokenizer.json"]


def test_the_damage_of_several_files_is_found_at_once_and_only_it_is_fetched_again():
    network, store = folder_network(), MemoryStore()
    run(fetch(network, store, *FOLDER_FILES))
    for file, index in ((FOLDER_FILES[1], 0), (FOLDER_FILES[3], 2)):
        digest, data = store._chunks[file.sha256, index]
        store._chunks[file.sha256, index] = (digest, wrong(data, 0))
    model = run(fetch(network, store, *FOLDER_FILES))
    words = r"^tokenizer\.json, model-2\.safetensors: the stored copies are damaged \(chunk 0, chunk 2\)"
    with pytest.raises(DeliveryError, match=words):
        run(model.verify())
    network.asked.clear()
    healed = run(fetch(network, store, *FOLDER_FILES))
    asked = [(url.rpartition("/")[2], offset, length) for url, offset, length in network.asked]
    assert asked == [("tokenizer.json", 0, 10), ("model-2.safetensors", 20, 5)]
    run(healed.verify())
    assert {name: content(healed, name) for name in FOLDER} == FOLDER


def test_too_little_room_is_counted_over_all_files():
    store = MemoryStore(quota=60)
    with pytest.raises(DeliveryError, match=r"^storage: the model needs 0\.0 MB more"):
        run(fetch(folder_network(), store, *FOLDER_FILES))
    assert run(store.entries()) == []


def test_what_was_fetched_on_this_visit_is_not_hashed_once_more():
    model = run(fetch(Network({A: DATA}), MemoryStore()))
    assert model.unverified == ()
