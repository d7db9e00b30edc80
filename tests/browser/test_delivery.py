"""The browser's half of the delivery, in Chromium: real fetch against a misbehaving server, real IndexedDB."""

import contextlib
import dataclasses
import hashlib
import json
import random
from pathlib import Path

import pytest

from pyruntime.delivery.manifest import describe_file, manifest_bytes
from tests.browser.faulty_server import FaultyServer, cut, hang_up, ignore_ranges, redirect, send, serve, stall, status
from tests.delivery_fakes import file_of, manifest_of

LAB = Path(__file__).with_name("delivery_lab.py")
CHUNK = 100_000
DATA = random.Random(20).randbytes(3 * CHUNK + 50_000)
SHA = hashlib.sha256(DATA).hexdigest()
WRONG = DATA[:150_000] + bytes([DATA[150_000] ^ 1]) + DATA[150_001:]


EVALUATE = """
    ([code, patience]) => Promise.race([
        runPython(code, {}),
        new Promise((resolve) => setTimeout(() => resolve({ error: "no answer" }), patience)),
    ])
"""
PATIENCE_MS = 60_000


class Lab:
    """A server, and Python in Pyodide on a page of it; `delivery_lab` has what can be called there."""

    def __init__(self, server, context):
        self.server, self._context = server, context
        self.page = self.new_page()

    def new_page(self):
        """A new tab with a worker of its own."""
        page = self._context.new_page()
        page.goto(f"{self.server.url}harness/index.html")
        self.prepare(page)
        return page

    def prepare(self, page):
        """Define the lab's names in a page that was loaded."""
        outcome = page.evaluate(EVALUATE, [LAB.read_text() + "\nNone", PATIENCE_MS])
        assert "error" not in outcome, outcome["error"]

    def _evaluate(self, expression):
        return self.page.evaluate(EVALUATE, [expression, PATIENCE_MS])

    def python(self, expression):
        """The value of an expression; AssertionError with the traceback when it raises."""
        outcome = self._evaluate(expression)
        assert "error" not in outcome, outcome["error"]
        return json.loads(outcome["value"])

    def failure(self, expression):
        """The last line of the error that an expression ends in."""
        outcome = self._evaluate(expression)
        assert "error" in outcome, outcome
        return outcome["error"].strip().splitlines()[-1]

    @contextlib.contextmanager
    def changed(self, script, *, back):
        """Run JavaScript in the worker, and `back` at the end, which takes the change back."""
        self.python(f"script({script!r})")
        try:
            yield
        finally:
            self.python(f"script({back!r})")

    def serve(self, **behaviours):
        """Set what is served at /a, /b, …; earlier requests are forgotten."""
        self.server.answers = behaviours
        self.server.asked.clear()


@pytest.fixture(scope="module")
def shared_lab(site, browser):
    """One lab for all tests of this module: starting Python takes seconds."""
    with FaultyServer(site) as server, contextlib.closing(browser.new_context()) as context:
        yield Lab(server, context)


@pytest.fixture(scope="module")
def lawless_lab(site, browser):
    """A lab on a host that sends no Content-Security-Policy."""
    with FaultyServer(site, policy=False) as server, contextlib.closing(browser.new_context()) as context:
        yield Lab(server, context)


@pytest.fixture
def elsewhere(site):
    """A server on another origin, which lets every page read its file."""
    with FaultyServer(site) as server:
        cors = {"Access-Control-Allow-Origin": "*"}
        server.answers = {"tiny.gguf": serve(DATA, headers=cors)}
        yield server


@pytest.fixture
def fresh_lab(site, browser):
    """A lab in a browser that has not stored anything yet, and so has no idea of the room there is."""
    with FaultyServer(site) as server, contextlib.closing(browser.new_context()) as context:
        yield Lab(server, context)


@pytest.fixture
def lab(shared_lab):
    """The lab with nothing stored."""
    shared_lab.python("await forget_everything()")
    return shared_lab


def entry(*sources, data=DATA, **changes):
    """The manifest entry of `data`, as a Python expression."""
    file = dataclasses.replace(file_of(data, chunk_size=CHUNK, sources=sources), **changes)
    return repr(dataclasses.asdict(file))


@pytest.fixture
def large_seed(tmp_path):
    """A model file of three chunks of a real manifest, the last one short, and its manifest."""
    path = tmp_path / "large.gguf"
    path.write_bytes(random.Random(21).randbytes(2 * 8 * 2**20 + 12_345))
    file = describe_file(path)
    behaviours = {"seed/large.json": serve(manifest_bytes(manifest_of(file)), kind="application/json")}
    return file, {**behaviours, f"seed/{file.sources[0]}": serve(path.read_bytes())}


def test_a_model_is_obtained_once_and_survives_reload_and_loss_of_the_network(lab, large_seed):
    file, behaviours = large_seed
    weights = f"seed/{file.sources[0]}"
    lab.serve(**behaviours)
    first = lab.python("await obtain('seed/large.json')")
    assert (first["title"], first["name"], first["sha256"]) == ("Tiny", "large.gguf", file.sha256)
    assert first["progress"][0] == [0, file.size]
    assert first["progress"][-1] == [file.size, file.size]
    assert [done for done, _ in first["progress"]] == sorted(done for done, _ in first["progress"])
    assert lab.python("await entries()") == [[file.sha256, file.size, True]]
    assert lab.server.asked == [("seed/large.json", None), (weights, None)]

    lab.page.reload()
    lab.prepare(lab.page)
    lab.serve(**behaviours)
    again = lab.python("await obtain('seed/large.json')")
    assert again == {**first, "progress": [[file.size, file.size]]}
    assert lab.server.asked == [("seed/large.json", None)]

    lab.serve(**{"seed/large.json": hang_up})
    offline = lab.python("await obtain('seed/large.json')")
    assert offline["sha256"] == file.sha256
    assert "the connection failed" in offline["notices"][0]


FAULTS = {
    "missing": (status(404), "HTTP 404"),
    "server error": (status(500), "HTTP 500"),
    "no content": (status(204), "HTTP 204"),
    "web page": (ignore_ranges(b"<!doctype html>", kind="text/html"), "a web page (text/html)"),
    "web page in disguise": (ignore_ranges(b"<!doctype html>"), "offers 15 bytes, expected 350000"),
    "longer, announced": (ignore_ranges(DATA + b"!"), "offers 350001 bytes"),
    "longer": (ignore_ranges(DATA + b"!", length=""), "longer than its manifest says"),
    "shorter": (ignore_ranges(DATA[:-1], length=""), "ended too early"),
    "cut off": (cut(DATA, 250_000), "the connection failed"),
    "no answer": (hang_up, "the connection failed"),
    "stalled": (stall(DATA, 250_000), "nothing arrived for 0.5 seconds"),
    "wrong bytes": (ignore_ranges(WRONG), "chunk 1 has SHA-256"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_source_is_named_and_the_next_one_finishes_the_file(lab, fault):
    behaviour, reason = FAULTS[fault]
    download = f"await fetch({entry('a', 'b')}, stall_seconds=0.5, seen=200_000)"
    lab.serve(a=behaviour, b=status(410))
    words = lab.failure(download)
    assert words.startswith("pyruntime.errors.DeliveryError: tiny.gguf: no source delivered it: 'a': ")
    assert reason in words
    assert "HTTP 410" in words
    assert all(recorded == found for recorded, found in lab.python(f"await held({SHA!r})").values())
    assert not any(committed for _, _, committed in lab.python("await entries()"))

    lab.python("await forget_everything()")
    lab.serve(a=behaviour, b=serve(DATA))
    assert lab.python(download) == SHA
    assert lab.python("await entries()") == [[SHA, len(DATA), True]]


def test_a_download_resumes_with_a_range_where_it_was_cut(lab):
    lab.serve(a=[cut(DATA, 250_000), hang_up])
    lab.failure(f"await fetch({entry('a')}, seen=200_000)")
    assert sorted(lab.python(f"await held({SHA!r})")) == ["0", "1"]
    lab.serve(a=serve(DATA))
    assert lab.python(f"await fetch({entry('a')})") == SHA
    assert lab.server.asked == [("a", "bytes=200000-349999")]


def test_a_server_that_ignores_ranges_can_finish_a_download_too(lab):
    lab.serve(a=[cut(DATA, 250_000), ignore_ranges(DATA)])
    assert lab.python(f"await fetch({entry('a')}, seen=200_000)") == SHA
    assert lab.server.asked == [("a", None), ("a", "bytes=200000-349999")]


def test_another_part_than_the_one_asked_for_is_refused(lab):
    def wrong_part(handler):
        send(handler, DATA[:150_000], code=206, headers={"Content-Range": f"bytes 0-149999/{len(DATA)}"})

    lab.serve(a=[cut(DATA, 250_000), wrong_part])
    words = lab.failure(f"await fetch({entry('a')}, seen=200_000)")
    assert "asked for bytes 200000-349999 of 350000, got 'bytes 0-149999/350000'" in words


def test_a_compressed_answer_is_measured_after_decompression(lab):
    import gzip

    packed = gzip.compress(DATA)
    lab.serve(a=ignore_ranges(packed, headers={"Content-Encoding": "gzip"}))
    assert lab.python(f"await fetch({entry('a')})") == SHA


def test_the_page_s_own_origin_cannot_redirect_elsewhere(lawless_lab, elsewhere):
    lab = lawless_lab
    lab.serve(a=redirect(f"{elsewhere.url}tiny.gguf"))
    assert "the connection failed" in lab.failure(f"await fetch({entry('a')})")
    assert elsewhere.asked == []


def test_another_origin_cannot_redirect_to_a_third(lawless_lab, elsewhere):
    third = f"http://localhost:{elsewhere.port}"
    elsewhere.answers["moved.gguf"] = redirect(f"{third}/tiny.gguf")
    download = f"await fetch({entry(f'{elsewhere.url}moved.gguf')}, more_origins=%r)"
    words = lawless_lab.failure(download % [elsewhere.origin])
    assert f"redirected to {third}, which is not an allowed origin" in words
    assert lawless_lab.python(download % [elsewhere.origin, third]) == SHA


def test_an_allowed_origin_still_obeys_the_page_s_policy(lab, elsewhere):
    file = entry(f"{elsewhere.url}tiny.gguf")
    words = lab.failure(f"await fetch({file}, more_origins=[{elsewhere.origin!r}])")
    assert "the connection failed" in words
    assert elsewhere.asked == []


def test_cancelling_hangs_up_and_keeps_verified_chunks_for_the_next_attempt(lab):
    lab.serve(a=stall(DATA, 250_000))
    assert lab.python(f"await fetch_and_cancel({entry('a')}, 200_000)") is True
    assert lab.server.hung_up.wait(timeout=20)
    assert sorted(lab.python(f"await held({SHA!r})")) == ["0", "1"]
    lab.serve(a=serve(DATA))
    assert lab.python(f"await fetch({entry('a')})") == SHA
    assert lab.server.asked == [("a", "bytes=200000-349999")]


def test_downloads_of_one_file_at_the_same_time_all_end_whole(lab):
    lab.serve(a=serve(DATA), b=ignore_ranges(WRONG))
    assert lab.python(f"await fetch_many([{entry('a')}, {entry('b', 'a')}, {entry('a')}])") == [SHA] * 3
    assert lab.python("await entries()") == [[SHA, len(DATA), True]]


def test_chunks_that_do_not_add_up_are_deleted(lab):
    lab.serve(a=serve(DATA))
    assert "every chunk matches, but the whole file has SHA-256" in lab.failure(
        f"await fetch({entry('a', sha256='0' * 64)})"
    )
    assert lab.python("await entries()") == []


def test_deleting_one_file_leaves_the_others(lab):
    other = DATA[::-1]
    lab.serve(a=serve(DATA), b=serve(other))
    lab.python(f"await fetch_many([{entry('a')}, {entry('b', data=other)}])")
    lab.python(f"await delete({SHA!r})")
    assert lab.python(f"await IndexedDBStore().committed({SHA!r})") is None
    assert lab.python("await entries()") == [[hashlib.sha256(other).hexdigest(), len(other), True]]


def test_an_open_file_can_be_read_although_it_was_deleted_meanwhile(lab, large_seed):
    file, behaviours = large_seed
    lab.serve(**behaviours)
    lab.python("await obtain('seed/large.json', keep='source')")
    lab.python("await forget_everything()")
    assert lab.python("await kept_sha256('source')") == file.sha256
    assert lab.python("await entries()") == []


def test_a_stored_copy_that_the_browser_lost_in_part_is_told_and_heals(lab, large_seed):
    file, behaviours = large_seed
    lab.serve(**behaviours)
    lab.python("await obtain('seed/large.json', keep='source')")
    # The last chunk is the only blob that is shorter than a chunk and no slice of one.
    lose = """
        self.readBlob = Blob.prototype.arrayBuffer;
        Blob.prototype.arrayBuffer = async function () {
            if (this.size === 12345) throw new DOMException("lost", "NotReadableError");
            return readBlob.call(this);
        };
    """
    with lab.changed(lose, back="Blob.prototype.arrayBuffer = readBlob"):
        words = lab.failure(f"len(await kept['source'].read({file.size - 12345}, 12345))")
        assert "browser storage: reading large.gguf failed with NotReadableError: lost. The stored copy is dam" in words
        lab.server.asked.clear()
        assert lab.python("await obtain('seed/large.json')")["sha256"] == file.sha256
    assert lab.server.asked == [
        ("seed/large.json", None),
        (f"seed/{file.sources[0]}", f"bytes={file.size - 12345}-{file.size - 1}"),
    ]


def test_reading_past_the_end_is_refused(lab, large_seed):
    file, behaviours = large_seed
    lab.serve(**behaviours)
    lab.python("await obtain('seed/large.json', keep='source')")
    words = lab.failure(f"len(await kept['source'].read({file.size - 1}, 2))")
    assert words.startswith("pyruntime.errors.FormatError: large.gguf: bytes ")


def test_too_little_room_is_told_with_numbers_before_anything_is_fetched(lab):
    lab.serve(a=serve(DATA))
    little = "navigator.storage.estimate = async () => ({ usage: 123e6, quota: 123.2e6 })"
    with lab.changed(little, back="delete navigator.storage.estimate"):
        words = lab.failure(f"await fetch({entry('a')})")
    assert "storage: the model needs 0.3 MB more and this device offers 0.2 MB (123.0 MB of 123.2 MB used)" in words
    assert lab.server.asked == []


def test_a_disk_that_fills_up_while_storing_is_told_in_words(fresh_lab):
    lab = fresh_lab
    lab.serve(a=serve(DATA))
    devtools = lab.page.context.new_cdp_session(lab.page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": lab.server.url.rstrip("/"), "quotaSize": 250_000})
    words = lab.failure(f"await fetch({entry('a')})")
    assert "DeliveryError: browser storage: writing failed with QuotaExceededError: no more room beside the 0." in words
    assert "Delete stored models or free disk space" in words
    assert not any(committed for _, _, committed in lab.python("await entries()"))
    assert all(recorded == found for recorded, found in lab.python(f"await held({SHA!r})").values())


def test_without_a_secure_context_hashing_and_storing_still_work(lab):
    lab.serve(a=ignore_ranges(WRONG), b=serve(DATA))
    insecure = """
        self.secure = [[Crypto.prototype, "subtle"], [WorkerNavigator.prototype, "storage"]].map(
            ([owner, name]) => [owner, name, Object.getOwnPropertyDescriptor(owner, name)]);
        secure.forEach(([owner, name]) => delete owner[name]);
        if (crypto.subtle || navigator.storage) throw new Error("still there");
    """
    back = "secure.forEach(([owner, name, property]) => Object.defineProperty(owner, name, property))"
    with lab.changed(insecure, back=back):
        assert lab.python(f"await fetch({entry('a', 'b')})") == SHA


def test_a_browser_that_forbids_storage_is_told_in_words(lab):
    forbid = "indexedDB.open = () => { throw new DOMException('denied', 'SecurityError') }"
    with lab.changed(forbid, back="delete indexedDB.open"):
        words = lab.failure(f"await fetch({entry('a')})")
    assert "browser storage: opening failed with SecurityError: denied. Allow this site to store data" in words


def test_a_database_of_a_newer_version_is_told_in_words(lab):
    lab.page.evaluate(
        """() => new Promise((resolve, reject) => {
            const request = indexedDB.open("tinypylm-models", 99);
            request.onsuccess = () => resolve(request.result.close());
            request.onerror = reject;
        })"""
    )
    words = lab.failure("await entries()")
    assert "browser storage: opening failed with VersionError: " in words
    assert "A newer version of this app was used here" in words


def test_a_database_of_the_first_version_keeps_its_models_and_gains_a_place_for_tables(fresh_lab):
    fresh_lab.page.evaluate(
        """() => new Promise((resolve, reject) => {
            const request = indexedDB.open("tinypylm-models", 1);
            request.onupgradeneeded = () => ["chunks", "files", "manifests"].forEach(
                (store) => request.result.createObjectStore(store));
            request.onsuccess = () => {
                const writing = request.result.transaction("manifests", "readwrite");
                writing.objectStore("manifests").put("kept", "https://page.example/");
                writing.oncomplete = () => resolve(request.result.close());
            };
            request.onerror = reject;
        })"""
    )
    assert fresh_lab.python("await keep_tables('0' * 64, 'tables')") == "tables"
    assert fresh_lab.python("(await IndexedDBStore().get_manifest('https://page.example/')).decode()") == "kept"
    fresh_lab.python("await delete('0' * 64)")
    assert fresh_lab.python("await kept_tables('0' * 64)") is None


def test_two_tabs_that_fetch_one_file_end_with_one_whole_copy(lab):
    lab.serve(a=serve(DATA))
    with contextlib.closing(lab.new_page()) as other:
        other.evaluate("code => { window.outcome = runPython(code, {}) }", f"await fetch({entry('a')})")
        assert lab.python(f"await fetch({entry('a')})") == SHA
        assert json.loads(other.evaluate("outcome")["value"]) == SHA
    assert lab.python("await entries()") == [[SHA, len(DATA), True]]
