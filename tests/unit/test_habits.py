"""The habits of this repository, checked: the rooms' import rule, linting, types, and what may be committed."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

# Which rooms of `pyruntime` a room may import; what those may import, it may as well. Every room may import `errors`.
ROOMS = {
    "errors": set(),
    "formats": set(),
    "sampling": set(),
    "text": {"formats"},
    "weights": {"formats"},
    "delivery": {"formats"},
    "model": {"weights"},
    "chat": {"text"},
    "tools": set(),
    "engine": {"chat", "delivery", "model", "sampling", "text", "weights"},
    "conversation": {"engine", "tools"},
    "openai": {"engine"},
    "cli": {"conversation"},
}
# Modules beside the rooms, and the room whose rights they have.
FRONT = {
    "__init__": "errors",
    "__main__": "cli",
    "answer": "engine",
    "events": "engine",
    "executors": "engine",
    "memory_share": "engine",
    "opening": "engine",
    "tables_cache": "engine",
    "terminal_chat": "cli",
    "turns": "engine",
}
OUTSIDE = {"numpy", "minijinja"}
BROWSER = {"js", "pyodide", "pyscript", "pyodide_js", "polyscript"}

LARGEST = 500_000
OTHERS_WORDS = "tests/unit/test_habits.py"  # the only file that may hold the words it looks for
FOREIGN = {
    "a path of one machine": re.compile(r"(?<![\w.])/(?:work|root|home)/\w|/tmp/\w"),
    "the host of a package registry": re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org"),
    "a personal address": re.compile(r"[\w.+-]+@(?:gmail|outlook|hotmail|proton)\w*\.\w+"),
}


def imports(path):
    """Every module a file imports, with the line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def reachable(room):
    """The rooms that `room` may import."""
    found, left = set(), [room]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += ROOMS[one]
    return found | {"errors"}


def room_of(parts):
    name = parts[0].removesuffix(".py")
    return FRONT.get(name, name)


def violations(package):
    """What the files of `package` import and may not."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        room = room_of(parts)
        if room not in ROOMS:
            yield f"{path}: {room} is no known room: say in this test what it may import"
            continue
        for module, line in imports(path):
            top, *rest = module.split(".")
            if top == "pyruntime":
                other = room_of([rest[0]])
                if rest[0] != "__version__" and other not in reachable(room):
                    yield f"{path}:{line}: {room} may not import {other}"
            elif top in BROWSER:
                if not path.stem.endswith("_browser"):
                    yield f"{path}:{line}: only adapters named *_browser.py may import {top}"
            elif top not in sys.stdlib_module_names | OUTSIDE:
                yield f"{path}:{line}: {top} is no dependency of pyruntime"


def test_the_rooms_know_each_other_in_one_direction_only(repo_root):
    assert list(violations(repo_root / "pyruntime")) == []


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [
        ("formats/gguf.py", "from pyruntime.text import Tokenizer", "formats may not import text"),
        ("sampling/draw.py", "import pyruntime.model.config", "sampling may not import model"),
        ("text/bpe.py", "def f():\n    from pyruntime import engine", "text may not import engine"),
        ("model/ops.py", "import js", "only adapters named *_browser.py may import js"),
        ("model/ops.py", "import requests", "requests is no dependency"),
        ("kitchen/sink.py", "import json", "kitchen is no known room"),
    ],
)
def test_the_import_rule_finds_each_kind_of_violation(tmp_path, place, code, words):
    path = tmp_path / "pyruntime" / place
    path.parent.mkdir(parents=True)
    path.write_text(code)
    (found,) = violations(tmp_path / "pyruntime")
    assert words in found


def run(repo_root, *arguments):
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=repo_root, capture_output=True, text=True, check=False
    )


def test_the_linter_has_no_complaint(repo_root):
    result = run(repo_root, "ruff", "check", "--no-cache", "--output-format=concise")
    assert result.returncode == 0, result.stdout


def test_the_formatter_has_nothing_to_change(repo_root):
    result = run(repo_root, "ruff", "format", "--no-cache", "--check")
    assert result.returncode == 0, result.stdout


def test_the_types_are_strict_and_right(repo_root):
    result = run(repo_root, "mypy")
    assert result.returncode == 0, result.stdout


def kept_files(repo_root):
    """Files that are committed or about to be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is no clone of the repository")
    return [path for path in (repo_root / name for name in listed.stdout.split("\0") if name) if path.is_file()]


def test_no_large_file_is_committed(repo_root):
    assert [str(path) for path in kept_files(repo_root) if path.stat().st_size > LARGEST] == []


def test_the_text_of_the_repository_speaks_of_the_project_alone(repo_root):
    found = []
    for path in kept_files(repo_root):
        name = path.relative_to(repo_root).as_posix()
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {what}" for what, words in FOREIGN.items() if name != OTHERS_WORDS and words.search(text)]
    assert found == []


def test_every_part_of_the_suite_and_the_tools_is_reached_by_one_command(repo_root):
    script = (repo_root / ".ci" / "run").read_text()
    assert script.rstrip().endswith("exec python3 tests")
    assert (repo_root / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize(
    ("code", "last", "status"),
    [
        ("def test_a(): pass\n", "1 passed, 0 failed", 0),
        ("def test_a(): assert 0\ndef test_b(): pass\n", "1 passed, 1 failed", 1),
        ("def test_a(nothing): pass\n", "0 passed, 1 failed", 1),
        ("import nothing_of_this_name\n", "0 passed, 1 failed", 2),
        ("import pytest\ndef test_a(): pytest.skip('why')\ndef test_b(): pass\n", "1 passed, 0 failed, 1 skipped", 0),
        ("", "0 passed, 1 failed", 5),
    ],
)
def test_the_last_line_of_the_suite_counts_what_passed_and_failed(repo_root, tmp_path, code, last, status):
    (tmp_path / "test_one.py").write_text(code)
    command = [sys.executable, "tests", "-p", "no:cacheprovider", str(tmp_path / "test_one.py")]
    result = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False)
    assert result.stdout.splitlines()[-1] == last, result.stdout
    assert result.returncode == status
