"""How fast text becomes tokens: `python -m benchmarks tokenizer [--chinese FILE] [--json FILE]`, with Qwen3's tokenizer.

In the site's Pyodide (`browser`, headless Chromium) and in this Python (`native`); medians. The texts are varied and
nothing in them is repeated to make them longer:

    prose     documentation of Python's standard library: its topics and docstrings, ASCII
    code      modules of Python's standard library
    chinese   a file of the user's, in UTF-8; without one, words of another model's vocabulary, drawn by Zipf's law

`cold` means that no piece of text is remembered yet. `runs` are a quarter, half and one megabyte of one thing; `stream`
is microseconds a token, for short and long answers.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import itertools
import json
import os
import platform
import pydoc_data.topics
import random
import re
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks import tokenizer_work
from benchmarks.page import CHROMIUM_ARGUMENTS
from pyruntime.text.tables import compile_tables
from pyruntime.text.tokenizer_json import spec_from_tokenizer_json
from tests.browser.pyodide_harness import open_harness
from tests.parity.known_tokenizers import tokenizer_file
from tooling.chromium import find_or_install
from tooling.site import build_site

_SIZE = 400_000  # bytes of each text, about
_LENGTHS = [100, 1000, 20_000]

_LOAD = """
from pyodide.http import pyfetch

files = {name: await (await pyfetch(address)).bytes() for name, address in addresses.items()}
texts = {name: data.decode() for name, data in files.items() if not name.startswith("qwen3")}
tables = files["qwen3.tables"]
None
"""
_COMPILE = """
from pyruntime.text.tables import compile_tables
from pyruntime.text.tokenizer_json import spec_from_tokenizer_json
import hashlib

began = time.perf_counter()
made = compile_tables(spec_from_tokenizer_json(files["qwen3.json"], "tokenizer.json"), sha256)
[1000 * (time.perf_counter() - began), made == tables]
"""


def modules() -> list[str]:
    """The sources of the standard library, in an order that mixes its packages."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(path for path in folder.rglob("*.py") if not {"test", "tests", "site-packages"} & {*path.parts})
    random.Random(1).shuffle(paths)
    texts = (path.read_text(encoding="utf-8", errors="ignore") for path in paths)
    return list(itertools.islice((text for text in texts if len(text) > 1000), 200))


def docstrings(sources: list[str]) -> Iterator[str]:
    """The longer docstrings of modules."""
    for source in sources:
        with contextlib.suppress(SyntaxError):
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    text = ast.get_docstring(node)
                    if text and len(text) > 150:
                        yield text


def zipf_chinese() -> str:
    """Chinese words of DeepSeek-V3's vocabulary, the shorter and earlier ones more often, with full stops and commas."""
    vocab = json.loads(tokenizer_file("deepseek_v3").read_bytes())["model"]["vocab"]
    words = [token for data in map(_decoded, vocab) if (token := data) and re.fullmatch("[\u4e00-\u9fff]{1,4}", token)]
    generator = random.Random(2)
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    chosen = generator.choices(words, weights, k=_SIZE // 5)
    marks = generator.choices(["", "，", "。\n"], [12, 2, 1], k=len(chosen))
    return "".join(map(str.__add__, chosen, marks))


def _decoded(token: str) -> str:
    from pyruntime.text.byte_alphabet import to_bytes  # noqa: PLC0415 - only where no file is given

    return to_bytes(token).decode(errors="ignore")


def texts(chinese: Path | None) -> dict[str, str]:
    """The three texts, each cut at a line."""
    sources = modules()
    prose = "\n\n".join([*pydoc_data.topics.topics.values(), *docstrings(sources)])
    whole = {
        "prose": prose.encode("ascii", "ignore").decode(),
        "code": "\n".join(sources),
        "chinese": zipf_chinese() if chinese is None else chinese.read_text(encoding="utf-8"),
    }
    return {name: text.encode()[:_SIZE].decode(errors="ignore").rpartition("\n")[0] for name, text in whole.items()}


def measure(run: Callable[[str], Any], names: list[str], runs: int) -> dict[str, Any]:
    """Everything, by a function that evaluates an expression in one place or the other."""
    return {
        "load": run(f"measure_load(tables, sha256, {3 * runs})"),
        "encode": {name: run(f"measure_encode(tables, sha256, texts[{name!r}], {runs})") for name in names},
        "runs_s": run("measure_runs(tables, sha256, 1_000_000)"),
        "stream_us": run(f"measure_stream(tables, sha256, texts['prose'], {_LENGTHS})"),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measures how fast text becomes tokens, in Chromium; prints JSON.")
    parser.add_argument("--runs", type=int, default=5, help="how often each part is done (default: %(default)s)")
    parser.add_argument("--chinese", type=Path, default=None, metavar="FILE", help="a Chinese text")
    parser.add_argument("--about", default=None, metavar="TEXT", help="what that text is")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()

    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - `--help` needs no browser

    source = tokenizer_file("qwen3")
    data = source.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    tables = compile_tables(spec_from_tokenizer_json(data, source.name), sha256)
    inputs = texts(options.chinese)
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        contextlib.closing(
            playwright.chromium.launch(executable_path=find_or_install(), args=CHROMIUM_ARGUMENTS)
        ) as browser,
        open_harness(browser, build_site(), Path(folder) / "site") as harness,
    ):
        contents = {**{name: text.encode() for name, text in inputs.items()}, "qwen3.tables": tables}
        for name, content in contents.items():
            Path(folder, name).write_bytes(content)
        addresses = {name: harness.serve(Path(folder, name), name) for name in contents}
        addresses["qwen3.json"] = harness.serve(source, "qwen3.json")
        harness(
            f"{Path(tokenizer_work.__file__).read_text(encoding='utf-8')}\n{_LOAD}", addresses=addresses, sha256=sha256
        )
        in_browser = measure(harness, list(inputs), options.runs)
        took, same = harness(_COMPILE)
        in_browser["load"]["file_and_compile_ms"] = took
        chromium = browser.version
    names = {**vars(tokenizer_work), "tables": tables, "sha256": sha256, "texts": inputs}
    result = {
        "command": "python -m benchmarks tokenizer" + (" --chinese FILE" if options.chinese else ""),
        "chinese_is": options.about or ("a file" if options.chinese else "words of a vocabulary, drawn by Zipf's law"),
        "tokenizer": {"name": "Qwen3", "sha256": sha256, "tables_bytes": len(tables), "same_tables_in_browser": same},
        "browser": in_browser,
        "native": measure(lambda code: eval(code, names), list(inputs), options.runs),  # noqa: S307 - our own code
        "chromium": chromium,
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, CPython {platform.python_version()}",
    }
    text = json.dumps(
        json.loads(json.dumps(result), parse_float=lambda number: float(f"{float(number):.4g}")), indent=1
    )
    if options.json:
        options.json.write_text(text + "\n", encoding="ascii")
    sys.stdout.write(text + "\n")
    return 0
