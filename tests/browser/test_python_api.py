"""The Python interfaces where there is no CPython: a notebook's Pyodide, which knows nothing of pyruntime, and PyScript."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from pyruntime import __version__
from tests.async_source import notebook_cells
from tests.browser.pyodide_harness import copy_site, open_harness

PARIS = "The capital of France is Paris."


@pytest.fixture(scope="module")
def notebook(browser, site, tmp_path_factory):
    """A Harness in which micropip is there and nothing else."""
    with open_harness(browser, site, tmp_path_factory.mktemp("notebook") / "site", ["micropip"]) as harness:
        yield harness


def test_the_notebook_runs_in_pyodide_when_micropip_has_installed_the_wheel(notebook, repo_root, default_model):
    asked = []
    notebook.page.context.on("request", lambda request: asked.append(request.url))
    address = notebook("page_url")
    assert notebook("import importlib.util; importlib.util.find_spec('pyruntime') is None")
    cells = notebook_cells(
        repo_root / "docs" / "notebook.ipynb",
        MODEL=notebook.serve(default_model, "model.gguf"),
        WHEEL=f"{address}pyodide/pyruntime-{__version__}-py3-none-any.whl",
    )
    printed = {}
    notebook("import io, sys; plain = sys.stdout; None")
    for name, source in cells:
        notebook(f"sys.stdout = io.StringIO()\n{source}\nNone")
        printed[name] = notebook("printed, sys.stdout = sys.stdout.getvalue(), plain; printed")
    assert ": wasm, 4096 tokens of context" in printed["load"]
    assert printed["chat"].startswith(PARIS)
    assert printed["client"].startswith(f"{PARIS}\n'The' [('The', -")
    assert printed["client-stream"] == PARIS
    assert printed["prompt"].count("<|im_end|> ") == 2
    assert "' Paris'" in printed["logits"].splitlines()[0]
    assert [url for url in asked if not url.removeprefix("blob:").startswith(address)] == []


def test_a_wheel_beside_the_notebook_is_installed_from_there(browser, site, tmp_path, repo_root):
    """In JupyterLite the files beside a notebook are in Python's current folder."""
    cells = dict(notebook_cells(repo_root / "docs" / "notebook.ipynb"))
    with open_harness(browser, site, tmp_path / "site", ["micropip"]) as python:
        python(
            f"""
            from pathlib import Path
            from pyodide.http import pyfetch
            WHEEL = "pyruntime-{__version__}-py3-none-any.whl"
            Path(WHEEL).write_bytes(await (await pyfetch(page_url + "pyodide/" + WHEEL)).bytes())
            None
            """
        )
        python(f"{cells['install']}\nNone")
        assert python("from pyruntime import openai; openai.AsyncOpenAI.__name__") == "AsyncOpenAI"


def test_the_documented_page_answers_with_pyscript(page, site, server, tmp_path, repo_root):
    text = (repo_root / "docs" / "python-api.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"^`(example\.\w+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL | re.MULTILINE))
    assert set(files) == {"example.html", "example.py"}
    folder = copy_site(site, tmp_path / "site", model=True)
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    running = server(site=folder)
    page.goto(f"{running.url}example.html")
    expect(page.locator("#answer")).to_have_text(PARIS, timeout=60_000)
    assert [url for url in asked if not url.removeprefix("blob:").startswith((running.url, "data:"))] == []
