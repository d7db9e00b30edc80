"""What the text of a chat costs in the browser: `python -m benchmarks text [--runs N]`, with the site built. Prints JSON.

A conversation of 20 messages of prose, code and several scripts, with the tokenizers and templates of the default model and
of Qwen3. Times are milliseconds, medians over the runs, in the site's Pyodide (`browser`) and in this Python (`native`):

    load_file          the tokenizer, from the model's own file
    load_tables        the same, from compiled tables
    compile_template   the chat template
    find_marks         the model's marks of thinking and calls, found by asking its template
    render             the prompt's text
    render_checked     the same, cut at the control tokens that the template wrote, and compared
    render_and_encode  the prompt's ids: what a message costs before the model reads it, earlier ones being known
    stream_one_token   from an id to the parts of an answer
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
import tempfile
from pathlib import Path

from benchmarks.page import CHROMIUM_ARGUMENTS
from benchmarks.text_work import measure_files, measure_gguf
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from tests.browser.pyodide_harness import open_harness
from tests.parity.known_tokenizers import tokenizer_file
from tests.parity.texts import TEXTS
from tooling import cache
from tooling.chromium import find_or_install
from tooling.pins import read_pins
from tooling.site import build_site

_MESSAGES = 20

_LOAD = """
from pyodide.http import pyfetch
from pyruntime.delivery.obtain_browser import obtain_model
from pyruntime.formats.gguf import read_gguf

model = await obtain_model("seed/default.json", page_url=page_url)
metadata = (await read_gguf(*model.files.values())).metadata
files = [await (await pyfetch(address)).bytes() for address in addresses]
None
"""


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measures what the text of a chat costs, in Chromium; prints JSON.")
    parser.add_argument("--runs", type=int, default=15, help="how often each part is done (default: %(default)s)")
    runs = parser.parse_args().runs

    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `--help` needs no browser

    model = read_pins().model
    metadata = run_without_waiting(read_gguf(FileSource(cache.obtain([model])[model.name]))).metadata
    tokenizer = tokenizer_file("qwen3")
    config = tokenizer.with_name("tokenizer_config.json")
    roles = ("system", *(("user", "assistant")[index % 2] for index in range(_MESSAGES - 1)))
    chat = [{"role": role, "content": TEXTS[index % len(TEXTS)]} for index, role in enumerate(roles)]
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        contextlib.closing(
            playwright.chromium.launch(executable_path=find_or_install(), args=CHROMIUM_ARGUMENTS)
        ) as browser,
        open_harness(browser, build_site(), Path(folder) / "site") as harness,
    ):
        work = (Path(__file__).parent / "text_work.py").read_text(encoding="utf-8")
        harness(f"{work}\n{_LOAD}", addresses=[harness.serve(path, path.name) for path in (tokenizer, config)])
        in_browser = {
            "smollm2": harness("measure_gguf(metadata, chat, runs)", chat=chat, runs=runs),
            "qwen3": harness("measure_files(*files, chat, runs)"),
        }
        chromium = browser.version
    native = {
        "smollm2": measure_gguf(metadata, chat, runs),
        "qwen3": measure_files(tokenizer.read_bytes(), config.read_bytes(), chat, runs),
    }
    result = {
        "browser": in_browser,
        "native": native,
        "messages": len(chat),
        "runs": runs,
        "chromium": chromium,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, CPython {platform.python_version()}",
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0
