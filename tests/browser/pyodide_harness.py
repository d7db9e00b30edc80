"""Python in the site's own Pyodide, driven from outside: the built site with a page beside it that runs what it is told."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from urllib.parse import urlencode

from tooling.files import link_or_copy
from tooling.server import Server

HERE = Path(__file__).parent


def copy_site(site, target, *, model=False):
    """A copy of the built site (hard links where possible), by default without the model's bytes."""
    ignored = shutil.ignore_patterns("*.gguf", ".built.json") if not model else shutil.ignore_patterns(".built.json")
    shutil.copytree(
        site, target, copy_function=lambda source, copy: link_or_copy(Path(source), Path(copy)), ignore=ignored
    )
    return target


class Harness:
    """`harness(code, **values)` runs Python in the page's worker and gives its last value, by way of JSON.

    `values` become variables; `page_url` is the site's address; `await` works;
    names stay defined. A Python exception is an AssertionError with its traceback. `page` is Playwright's.
    """

    def __init__(self, page, folder, url):
        self.page, self._folder, self._url = page, folder, url

    def __call__(self, code, **values):
        outcome = self.page.evaluate("([code, values]) => runPython(code, values)", [code, values])
        assert "error" not in outcome, outcome["error"]
        return json.loads(outcome["value"])

    def serve(self, path, name):
        """Serve a file of this machine under a name; returns its address."""
        target = self._folder / "harness" / "files" / name
        target.parent.mkdir(exist_ok=True)
        target.unlink(missing_ok=True)
        link_or_copy(path, target)
        return f"{self._url}harness/files/{name}"


@contextlib.contextmanager
def open_harness(browser, site, folder, packages=()):
    """A Harness in a page of its own, for as long as the block lasts; `folder` must not exist yet.

    `packages` are there from the start, or else numpy, minijinja and pyruntime.
    """
    copy_site(site, folder, model=True)
    shutil.copytree(HERE / "harness", folder / "harness")
    with Server(folder).running() as server, contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(f"{server.url}harness/index.html?{urlencode([('package', name) for name in packages])}")
        yield Harness(page, folder, server.url)
