"""npm packages of the page: the committed lock, and what happens when Node, npm or a file is not as it should be."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from tooling import npm
from tooling.console import ToolingError
from tooling.pins import NpmFile, NpmPackage, read_npm_pins, read_pins

CONTENT = b"export {}\n"


@pytest.fixture
def package():
    file = NpmFile("lib/toy.js", "lib/toy.js", hashlib.sha256(CONTENT).hexdigest())
    return NpmPackage("toy", "1.0.0", "MIT", "a test", (file,))


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """An empty PATH to which a test adds stand-ins for `node` and `npm`, and a cache of its own."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def add(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return add


@pytest.fixture
def toy_npm(programs, tmp_path):
    """An npm that installs the toy package, writing down that it was asked to."""
    calls = tmp_path / "calls"

    def put(content=CONTENT, version="1.0.0"):
        programs("node", "echo v20.1.0")
        programs(
            "npm",
            f'PATH=/usr/bin:/bin\necho "$@" >> {calls}\nmkdir -p node_modules/toy/lib\n'
            f"printf '%s' '{json.dumps({'version': version})}' > node_modules/toy/package.json\n"
            f"printf '%s\\n' '{content.decode().strip()}' > node_modules/toy/lib/toy.js",
        )

    put()
    put.calls = lambda: calls.read_text().splitlines() if calls.exists() else []
    return put


def test_packages_are_installed_once_without_running_their_scripts(toy_npm, package):
    for _ in range(2):
        ((file, path),) = npm.obtain([package]).items()
        assert (file, path.read_bytes()) == (package.files[0], CONTENT)
    (call,) = toy_npm.calls()
    assert call.startswith("ci ")
    assert "--ignore-scripts" in call


def test_a_damaged_cached_file_is_named_and_installed_again(toy_npm, package, capsys):
    ((_, path),) = npm.obtain([package]).items()
    path.write_bytes(b"damaged")
    ((_, path),) = npm.obtain([package]).items()
    assert path.read_bytes() == CONTENT
    assert "toy/lib/toy.js: SHA-256 is " + hashlib.sha256(b"damaged").hexdigest() in capsys.readouterr().out


def test_a_file_with_another_hash_than_pinned_is_refused_by_name_and_not_kept(toy_npm, package):
    toy_npm(content=b"changed\n")
    with pytest.raises(ToolingError) as refusal:
        npm.obtain([package])
    for words in ("toy/lib/toy.js", hashlib.sha256(b"changed\n").hexdigest(), package.files[0].sha256):
        assert words in str(refusal.value)
    assert not npm.node_modules().exists()


def test_another_version_than_pinned_is_refused_by_name(toy_npm, package):
    toy_npm(version="1.0.1")
    with pytest.raises(ToolingError, match=r"toy: version is 1\.0\.1, expected 1\.0\.0"):
        npm.obtain([package])


def test_a_failed_install_shows_the_words_of_npm_and_keeps_nothing(programs, package):
    programs("node", "echo v22.0.0")
    programs("npm", "PATH=/usr/bin:/bin\nmkdir node_modules\necho 'npm error EINTEGRITY toy' >&2\nexit 1")
    with pytest.raises(ToolingError, match="npm error EINTEGRITY toy"):
        npm.obtain([package])
    assert not npm.node_modules().exists()


@pytest.mark.parametrize(
    ("have", "words"),
    [
        ({}, "node was not found on PATH. Install Node 20 or newer"),
        ({"node": "echo v20.0.0"}, "npm was not found on PATH. Install Node 20 or newer"),
        ({"node": "echo v18.19.0", "npm": "exit 1"}, "version v18.19.0, which is too old. Install Node 20"),
        ({"node": "exit 1", "npm": "exit 1"}, "version unknown, which is too old"),
    ],
)
def test_a_missing_or_old_program_is_named_with_what_to_do(programs, package, have, words):
    for name, script in have.items():
        programs(name, script)
    with pytest.raises(ToolingError) as refusal:
        npm.obtain([package])
    assert words in str(refusal.value)


def test_the_committed_lock_names_no_registry_and_has_an_integrity_hash_for_every_package(repo_root):
    lock = json.loads((repo_root / "package-lock.json").read_text())
    installed = {path: package for path, package in lock["packages"].items() if path}
    assert len(installed) >= 7
    for path, package in installed.items():
        assert "resolved" not in package, path
        assert package["integrity"].startswith("sha512-"), path


def test_every_pinned_package_is_asked_for_in_exactly_that_version(repo_root):
    asked = json.loads((repo_root / "package.json").read_text())["dependencies"]
    assert asked == {package.package: package.version for package in read_pins().npm}


def test_npm_is_told_to_run_no_scripts_and_to_write_no_addresses(repo_root):
    settings = (repo_root / ".npmrc").read_text().splitlines()
    assert {"ignore-scripts=true", "omit-lockfile-registry-resolved=true"} <= set(settings)


def test_the_real_packages_are_as_pinned(node_modules):
    for package in read_pins().npm:
        for file in package.files:
            path = node_modules / package.package / file.source
            assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256, os.fspath(path)


def test_another_project_has_its_own_lock_and_may_keep_what_is_pinned_only(
    toy_npm, programs, package, tmp_path, capsys
):
    project = tmp_path / "suite"
    project.mkdir()
    for name in ("package.json", "package-lock.json"):
        (project / name).write_text("{}")
    programs("npm", "PATH=/usr/bin:/bin\nmkdir -p node_modules/toy/lib node_modules/other\necho x > node_modules/toy/more.js\n"
             "printf '{\"version\": \"1.0.0\"}' > node_modules/toy/package.json\n"
             f"printf '%s\\n' '{CONTENT.decode().strip()}' > node_modules/toy/lib/toy.js")  # fmt: skip
    assert npm.node_modules(project) != npm.node_modules()
    ((_, path),) = npm.obtain([package], project, only_pinned=True).items()
    assert "suite/package-lock.json" in capsys.readouterr().out
    kept = {file.relative_to(npm.node_modules(project)).as_posix() for file in npm.node_modules(project).rglob("*.*")}
    assert kept == {"toy/package.json", "toy/lib/toy.js"}
    assert path.read_bytes() == CONTENT


def test_the_suites_lock_has_the_versions_that_are_pinned_for_it(repo_root):
    lock = json.loads((repo_root / "tests" / "package-lock.json").read_text())["packages"]
    for pinned in read_npm_pins(repo_root / "tests" / "tokenizers.toml"):
        assert lock[f"node_modules/{pinned.package}"]["version"] == pinned.version
