"""The page's modules under the MicroPython that runs them in the browser, here in Node."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "page"


@pytest.fixture(scope="module")
def micropython(node_modules, repo_root):
    """A function that runs scripts in MicroPython and returns what they print."""
    package = node_modules / "@micropython" / "micropython-webassembly-pyscript"

    def run(*scripts):
        command = ["node", HERE / "micropython.mjs", package, repo_root / "web", *scripts]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
        return result.stdout

    return run


def test_every_module_of_the_page_is_in_the_subset_that_micropython_runs(micropython, repo_root):
    assert micropython(HERE / "imports.py").split() == sorted(path.name for path in (repo_root / "web/ui").glob("*.py"))


def test_the_page_names_every_one_of_its_modules(repo_root):
    """PyScript copies the modules that the configuration names into the interpreter's file system, and no others."""
    page = (repo_root / "web/index.html").read_text()
    for path in (repo_root / "web/ui").glob("*.py"):
        named = f'"./ui/{path.name}": "./ui/{path.name}"' if path.name != "main.py" else 'src="./ui/main.py"'
        assert named in page, path.name


def test_a_visit_goes_the_same_way_on_micropython_as_on_cpython(micropython, repo_root):
    scenario = HERE / "scenario.py"
    command = [sys.executable, scenario]
    native = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": str(repo_root / "web")}
    )
    assert micropython(scenario).splitlines() == native.stdout.splitlines()
