import asyncio
import dataclasses
import json
from contextlib import asynccontextmanager, nullcontext

import pytest

from pyruntime.delivery.download import SourceError
from pyruntime.delivery.manifest import describe_file, manifest_bytes
from pyruntime.delivery.obtain import obtain
from pyruntime.delivery.store import MemoryStore
from pyruntime.errors import DeliveryError, FormatError
from tests.delivery_fakes import PAGE, Network, PausingStore, manifest_of, run
from tests.lock_fakes import FakeLocks

MANIFEST = "https://page.example/seed/tiny.json"
OFFLINE = SourceError("the connection failed")
DATA = b"GGUF and more"


@pytest.fixture
def tiny(tmp_path):
    """A manifest of a small file and the table of a network that has both."""
    path = tmp_path / "tiny.gguf"
    path.write_bytes(DATA)
    file = describe_file(path)
    manifest = manifest_of(file)
    return manifest, {MANIFEST: manifest_bytes(manifest), f"https://page.example/seed/{file.sources[0]}": DATA}


def visit(answers, store, **details):
    network = Network(answers)
    return run(obtain("seed/tiny.json", page_url=PAGE, store=store, fetcher=network, **details)), network


def test_a_first_visit_fetches_manifest_and_file(tiny):
    manifest, answers = tiny
    model, network = visit(answers, MemoryStore())
    assert model.manifest == manifest
    assert run(model.files["tiny.gguf"].read(0, len(DATA))) == DATA
    assert [url for url, _, _ in network.asked] == list(answers)


def test_a_second_visit_asks_for_the_manifest_only(tiny):
    _, answers = tiny
    store = MemoryStore()
    visit(answers, store)
    model, network = visit(answers, store)
    assert run(model.files["tiny.gguf"].read(0, len(DATA))) == DATA
    assert [url for url, _, _ in network.asked] == [MANIFEST]


@pytest.mark.parametrize("answer", [OFFLINE, b"<!doctype html><p>Log in to this network", b'{"seed": 2}'])
def test_a_second_visit_without_a_manifest_uses_the_stored_one_and_says_so(tiny, answer):
    _, answers = tiny
    store, notices = MemoryStore(), []
    visit(answers, store)
    model, _ = visit({MANIFEST: answer}, store, on_notice=notices.append)
    assert run(model.files["tiny.gguf"].read(0, len(DATA))) == DATA
    assert len(notices) == 1
    assert notices[0].startswith("Using the manifest stored for Tiny, because ")


@pytest.mark.parametrize(("answer", "error"), [(OFFLINE, DeliveryError), (b"<html>", FormatError)])
def test_a_first_visit_without_a_manifest_says_why(answer, error):
    with pytest.raises(error):
        visit({MANIFEST: answer}, MemoryStore())


def test_a_manifest_is_kept_only_when_its_model_is_whole(tiny):
    _, answers = tiny
    store = MemoryStore()
    with pytest.raises(DeliveryError):
        visit({MANIFEST: answers[MANIFEST]}, store)
    assert run(store.get_manifest(MANIFEST)) is None


def test_a_new_revision_replaces_the_stored_manifest(tiny):
    manifest, answers = tiny
    store = MemoryStore()
    visit(answers, store)
    newer = manifest_bytes(dataclasses.replace(manifest, revision="2"))
    visit({MANIFEST: newer}, store)
    assert json.loads(run(store.get_manifest(MANIFEST)))["revision"] == "2"


def test_a_manifest_elsewhere_is_asked_only_where_its_origin_is_allowed(tiny):
    _, answers = tiny
    elsewhere = {url.replace("page.example", "registry.example"): data for url, data in answers.items()}
    address = "https://registry.example/seed/tiny.json"
    network, store = Network(elsewhere), MemoryStore()
    with pytest.raises(DeliveryError, match="not an allowed origin"):
        run(obtain(address, page_url=PAGE, store=store, fetcher=network))
    assert network.asked == []
    allowed = ["https://registry.example"]
    model = run(obtain(address, page_url=PAGE, store=store, fetcher=network, more_origins=allowed))
    assert run(model.files["tiny.gguf"].read(0, 4)) == b"GGUF"


def test_a_manifest_without_a_model_file_is_refused_before_anything_is_fetched(tiny):
    manifest, answers = tiny
    file = dataclasses.replace(manifest.files[0], path="tiny.bin")
    network = Network({**answers, MANIFEST: manifest_bytes(manifest_of(file))})
    with pytest.raises(FormatError, match=r"^tiny: files: 0 files end in \.gguf"):
        run(obtain("seed/tiny.json", page_url=PAGE, store=MemoryStore(), fetcher=network))
    assert [url for url, _, _ in network.asked] == [MANIFEST]


def test_of_two_tabs_that_need_the_same_file_one_fetches_it_and_the_other_waits_and_finds_it(tiny):
    _, answers = tiny

    async def both(hold):
        store, network, told = PausingStore(), Network(answers), [[], []]
        visits = (
            obtain(
                "seed/tiny.json", page_url=PAGE, store=store, fetcher=network, hold=hold,
                on_progress=lambda done, total, seen=seen: seen.append((done, total)),
            )
            for seen in told
        )  # fmt: skip
        models = await asyncio.gather(*visits)
        fetched = [url for url, _, _ in network.asked if "/files/" in url]
        assert [await model.files["tiny.gguf"].read(0, len(DATA)) for model in models] == [DATA, DATA]
        assert [seen[-1] for seen in told] == [(len(DATA), len(DATA))] * 2
        assert [model.unverified for model in models] == [(), ()]
        return len(fetched)

    async def with_locks():
        locks = FakeLocks()

        @asynccontextmanager
        async def hold(name):
            release = await locks.hold(name)
            try:
                yield
            finally:
                release()

        return await both(hold)

    assert asyncio.run(with_locks()) == 1
    assert asyncio.run(both(lambda name: nullcontext())) == 2
