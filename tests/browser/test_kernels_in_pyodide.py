"""The kernels in the site's Pyodide: threads, memory, stopping, and what happens where they cannot be had."""

from __future__ import annotations

import re

import pytest

from tests.browser.kernels_python import SETUP, helpers
from tests.gguf_writer import gguf_bytes
from tests.tiny_model import LAYERS, metadata, tensors, tiny_gguf
from tooling import kernels

TINY = """
files = {name: await (await pyfetch(address)).bytes() for name, address in addresses.items()}

async def tiny(name="tiny", **options):
    return await Engine.load(BytesSource(files[name], f"{name}.gguf"), **options)
"""


def far_too_much():
    """A model whose cache alone may take 9 GB."""
    layers = tensors()
    for i in range(LAYERS, 8):
        layers |= {name.replace("blk.0.", f"blk.{i}."): layers[name] for name in tensors() if "blk.0." in name}
    return gguf_bytes(metadata(llama__block_count=8, llama__context_length=2**24), layers)


@pytest.fixture(scope="module")
def python(run_in_pyodide, tmp_path_factory):
    """`run_in_pyodide` with small models to load and the names of SETUP."""
    folder = tmp_path_factory.mktemp("models")
    addresses = {}
    for name, data in {"tiny": tiny_gguf(), "far_too_much": far_too_much()}.items():
        (folder / name).write_bytes(data)
        addresses[name] = run_in_pyodide.serve(folder / name, f"{name}.gguf")
    run_in_pyodide(SETUP + TINY + "None", addresses=addresses)
    return run_in_pyodide


@pytest.fixture
def started(python):
    """The workers that are started during the test."""
    found = []

    def note(worker):
        found.append(worker)

    python.page.on("worker", note)
    yield found
    python.page.remove_listener("worker", note)


def wait_for_end(python, workers):
    for worker in workers:
        if worker in python.page.workers:
            with worker.expect_event("close"):
                pass


# ------------------------------------------------------------------------------------------------------------- threads


def test_an_engine_that_is_closed_or_forgotten_ends_its_helpers(python):
    for ending in ("engine.close()", "del engine"):
        python("engine = await tiny(threads=4)\nNone")
        started = helpers(python)
        assert len(started) == 3
        python(f"{ending}\nNone")
        wait_for_end(python, started)
        assert helpers(python) == []


def test_a_load_that_fails_ends_its_helpers(python, started):
    """The file ends where its weights should begin: found when the helpers wait already."""
    found = python(
        "source = BytesSource(files['tiny'][:-1000], 'short.gguf')\nawait refusal(Engine.load(source, threads=4))"
    )
    assert found[0] == "FormatError"
    wait_for_end(python, started)
    assert helpers(python) == []


FEWER = {
    "no worker can be made": "self.Worker = class { constructor() { throw new Error('no more workers') } }",
    "no script runs": "self.Worker = class extends self.Worker { constructor() { super(scriptOf('throw 1')) } }",
    "none says that it runs": "self.Worker = class extends self.Worker { constructor() { super(scriptOf('onmessage = 1')) } }",
}


@pytest.mark.parametrize("fault", FEWER)
def test_where_workers_cannot_be_had_one_thread_computes_the_same(python, started, fault):
    python("engine = await tiny(threads=4)\nexpected = digest(engine.logits(ids))\nengine.close()")
    wait_for_end(python, helpers(python))
    found = python(
        """
        run_js("self.plainWorker = self.Worker; self.scriptOf = (text) => URL.createObjectURL(new Blob([text])); null")
        patience, wasm_host_browser._HELPER_PATIENCE_MS = wasm_host_browser._HELPER_PATIENCE_MS, 200
        try:
            run_js(fault)
            engine = await tiny(threads=4)
        finally:
            run_js("self.Worker = self.plainWorker")
            wasm_host_browser._HELPER_PATIENCE_MS = patience
        found = [engine.executor_name, engine._executor._host.threads, digest(engine.logits(ids)) == expected]
        engine.close()
        found
        """,
        fault=FEWER[fault] + "; null",
    )
    assert found == ["wasm", 1, True]
    wait_for_end(python, started)


def test_where_memory_cannot_be_shared_one_thread_computes_the_same(python):
    found = python(
        """
        engine = await tiny(threads=2)
        expected = digest(engine.logits(ids))
        engine.close()
        can_share, wasm_executor_browser.can_share = wasm_executor_browser.can_share, lambda: False
        try:
            engine = await tiny(threads=2)
        finally:
            wasm_executor_browser.can_share = can_share
        threads = engine._executor._host.threads
        [engine.executor_name, threads, engine.stop_word(), digest(engine.logits(ids)) == expected]
        """
    )
    assert found == ["wasm", 1, None, True]


def test_engines_side_by_side_do_not_disturb_each_other(python):
    found = python(
        """
        first = await tiny(threads=2)
        alone = [digest(first.logits(ids)), digest(first._executor.forward([1]))]
        second = await tiny(threads=3)
        one = [digest(first.logits(ids))]
        two = [digest(second.logits(ids))]
        one.append(digest(first._executor.forward([1])))
        two.append(digest(second._executor.forward([1])))
        first.close()
        three = [digest(second.logits(ids)), digest(second._executor.forward([1]))]
        second.close()
        [alone == one, alone == two, alone == three]
        """
    )
    assert found == [True, True, True]


# -------------------------------------------------------------------------------------------------------------- memory


def test_memory_and_helpers_that_were_given_back_can_be_had_again(python, started):
    """A browser has room for some hundred memories, whatever their size, and gives none back that a worker waits in."""
    for _ in range(130):
        threads = python(
            """
            module = await anext(wasm_host_browser.compiled_modules(shared=True))
            host = wasm_host_browser.WasmHost(module, shared=True, helpers=await wasm_host_browser.start_helpers(1))
            host.allocate(1 << 20)
            threads = host.threads
            host.close()
            threads
            """
        )
        assert threads == 2
        wait_for_end(python, started)  # browsers end workers in their own time
        started.clear()


def test_memory_that_cannot_be_had_is_told_with_the_numbers(python):
    words = python("await refusal(tiny('far_too_much', executor='wasm', context=2**24))")
    assert words[0] == "OutOfMemoryError"
    assert re.fullmatch(
        r"far_too_much\.gguf: no memory for 1\d,\d{3} MB of weights, cache and buffers\. "
        r"Choose a smaller model or less context",
        words[1],
    )


def test_memory_that_the_browser_refuses_is_told_the_same_way(python, started):
    words = python(
        """
        run_js(
            '''self.plainMemory = WebAssembly.Memory;
            WebAssembly.Memory = function (options) {
                if (options.initial > 16 && options.initial !== 17) throw new RangeError("could not allocate memory");
                return new plainMemory(options);
            }; null'''
        )
        try:
            found = await refusal(tiny(executor="wasm", context=256, threads=2))
        finally:
            run_js("WebAssembly.Memory = self.plainMemory; null")
        found
        """
    )
    assert words[0] == "OutOfMemoryError"
    assert words[1].startswith("tiny.gguf: no memory for ")
    wait_for_end(python, started)
    assert python("(await tiny(executor='wasm')).executor_name") == "wasm"


# ---------------------------------------------------------------------------------------------------------------- stop

WRITE_AT_ONCE = "addEventListener('posted', ({ detail }) => Atomics.store(detail.stopWord, 0, 1), { once: true })"


def test_another_thread_ends_a_computation_that_gives_nobody_a_turn(python):
    """The page writes the stop word when it hears of it; Python neither awaits nor returns meanwhile."""
    python.page.evaluate(WRITE_AT_ONCE)
    found = python(
        """
        engine = await tiny(threads=2)
        expected, executor = digest(engine.logits(ids)), engine._executor
        run_js("(stopWord) => postMessage({ stopWord })")(engine.stop_word())
        outcome = "never stopped"
        for _ in range(100_000):
            executor.reset()
            try:
                executor.prefill(ids * 2)
            except StoppedError:
                outcome = ["stopped", executor.length]
                break
        outcome += [digest(engine.logits(ids)) == expected]
        engine.close()
        outcome
        """
    )
    assert found == ["stopped", 0, True]


def test_a_stop_word_that_was_written_when_nothing_ran_stops_nothing(python):
    found = python(
        """
        engine = await tiny(threads=2)
        expected = digest(engine.logits(ids))
        engine.stop_word()[0] = 1
        same = digest(engine.logits(ids)) == expected
        engine.stop_word()[0] = 1
        async for event in engine.chat([{"role": "user", "content": "Hi"}]):
            pass
        engine.close()
        [same, event.reason != "cancelled"]
        """
    )
    assert found == [True, True]


# ------------------------------------------------------------------------------------------------------ the self-test


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Builds of the kernels by name: right ones, one whose products are wrong, one that breaks off, and what is none."""
    shared = next(v for v in kernels.WASM_VARIANTS if v.file == "kernels_simd_shared.wasm")
    sources = kernels._read_sources()

    def changed(file, old, new):
        text = sources[file].decode()
        assert text.count(old) == 1
        return kernels._compile(
            shared, {**sources, file: text.replace(old, new).encode()}, tmp_path_factory.mktemp("kernels")
        )

    return {
        "right": kernels.built(shared).read_bytes(),
        "wrong": changed(
            "linear_q8.c", "sum[t * groups + g] += dot_i16(w[g], x);", "sum[t * groups + g] = dot_i16(w[g], x);"
        ),
        "broken": changed(
            "machine.c", "case OP_LINEAR: linear_tile(", "case OP_LINEAR: __builtin_trap(); linear_tile("
        ),
        "empty": b"\0asm\x01\0\0\0",
        "no module": b"<!doctype html>",
    }


@pytest.mark.parametrize("relaxed", ["wrong", "broken", "empty", "no module", None])
@pytest.mark.parametrize("simd", ["right", "wrong"])
def test_the_first_build_that_computes_rightly_is_taken_and_numpy_where_there_is_none(
    python, builds, tmp_path, relaxed, simd
):
    offered = {"kernels_relaxed_shared.wasm": relaxed, "kernels_simd_shared.wasm": simd}
    addresses = {}
    for file, build in offered.items():
        if build:
            (tmp_path / file).write_bytes(builds[build])
            addresses[file] = python.serve(tmp_path / file, file)
    name, told, refused = python(
        """
        plain, tested = wasm_host_browser.MODULES, dict(wasm_executor_browser._found)
        wasm_host_browser.MODULES = Path("builds")
        wasm_executor_browser._found.clear()
        wasm_host_browser.MODULES.mkdir(exist_ok=True)
        for old in wasm_host_browser.MODULES.iterdir():
            old.unlink()
        for file, address in addresses.items():
            (wasm_host_browser.MODULES / file).write_bytes(await (await pyfetch(address)).bytes())
        told = []
        try:
            engine = await tiny(on_notice=told.append)
            name = engine.executor_name
            engine.close()
            refused = None if name == "wasm" else await refusal(tiny(executor="wasm"))
        finally:
            wasm_host_browser.MODULES = plain
            wasm_executor_browser._found.update(tested)
        [name, told, refused]
        """,
        addresses=addresses,
    )
    problem = "none of the kernels' WebAssembly modules runs in this browser and computes rightly"
    if simd == "right":
        assert (name, told, refused) == ("wasm", [], None)
    else:
        assert name == "numpy"
        assert told == [f"Computing with numpy, which is many times slower: {problem}"]
        assert refused == ["UnsupportedError", f"tiny.gguf: executor: wasm cannot be had: {problem}. Choose numpy"]
