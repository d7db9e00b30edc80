"""The long conversation (`tests/soak.py`) in the site's Pyodide, on the WebAssembly kernels."""

from __future__ import annotations

import base64

from tests.soak import CONTEXT
from tests.tiny_model import tiny_gguf

TURNS, STRETCH, CHECKPOINTS = 1000, 200, 50
MODULES = ("soak.py", "conversation_lab.py", "tiny_model.py", "gguf_writer.py")

SETUP = """
import base64
import sys
from pathlib import Path

from pyodide_js import _module

Path("tests").mkdir(exist_ok=True)
for name, text in modules.items():
    (Path("tests") / name).write_text(text)
sys.path.insert(0, str(Path.cwd()))
from tests.soak import Soak

soak = await Soak.load(base64.b64decode(model), 17, "wasm", tolerance=0, threads=2)

def memory():
    "Bytes of Pyodide's memory and of the kernels'."
    return [_module.HEAP8.length, soak.engine._executor._host._memory.buffer.byteLength]

[soak.engine.executor_name, soak.engine._executor._host.threads]
"""


def test_a_thousand_turns_on_the_kernels_leave_the_cache_as_a_fresh_one_and_memory_flat(run_in_pyodide, repo_root):
    python = run_in_pyodide
    modules = {name: (repo_root / "tests" / name).read_text(encoding="utf-8") for name in MODULES}
    model = base64.b64encode(tiny_gguf(llama__context_length=CONTEXT)).decode()  # numpy has no random numbers there
    assert python(SETUP, modules=modules, model=model) == ["wasm", 2]
    # The tree holds every message, so it is forgotten after each stretch; Pyodide's memory grows by a fifth or not at all.
    sizes = python(
        f"""
        at = {{{STRETCH // 2}, *soak.random.sample(range({TURNS}), {CHECKPOINTS})}}
        sizes = []
        for start in range(0, {TURNS}, {STRETCH}):
            await soak.run({STRETCH}, {{n - start for n in at}}, [{STRETCH - 1}])
            sizes.append(memory())
        soak.check_all_happened()
        sizes
        """
    )
    assert sizes[1:] == [sizes[1]] * (TURNS // STRETCH - 1)
