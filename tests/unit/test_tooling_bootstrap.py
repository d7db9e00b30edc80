"""How .venv is made and kept, and that two runs do not disturb each other."""

from __future__ import annotations

import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tooling import bootstrap, chromium
from tooling.console import ToolingError, human_size, run_command
from tooling.files import replace_folder, write_whole
from tooling.locking import exclusive


@pytest.fixture
def venv(tmp_path, monkeypatch):
    """A .venv of the test's own, with the commands that would be run written down instead."""
    folder = tmp_path / ".venv"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(bootstrap, "VENV", folder)
    monkeypatch.setattr(bootstrap, "STAMP", folder / "stamp.json")
    monkeypatch.setattr(bootstrap, "_inside", lambda: True)
    monkeypatch.setattr(os, "execv", lambda path, arguments: restarts.append(arguments))
    commands, restarts = [], []

    def run(command, what):
        commands.append(what)
        if what == "making .venv":
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "bin").mkdir(parents=True, exist_ok=True)
            (folder / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(bootstrap, "_run", run)
    run.commands, run.restarts = commands, restarts
    return run


def test_a_fresh_machine_gets_a_venv_and_a_second_run_does_nothing(venv):
    bootstrap.enter_venv(["build"])
    assert venv.commands == ["making .venv", "installing the Python packages"]
    assert len(venv.restarts) == 1
    bootstrap.enter_venv(["build"])
    assert len(venv.commands) == 2
    assert len(venv.restarts) == 1


def test_a_venv_that_others_made_is_kept_and_filled(venv):
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", bootstrap.VENV], check=True)
    bootstrap.enter_venv(["build"])
    assert venv.commands == ["installing the Python packages"]


def test_a_venv_whose_python_does_not_start_is_made_again(venv):
    bootstrap.enter_venv(["build"])
    python = bootstrap.VENV / "bin" / "python"
    python.unlink()
    python.symlink_to("a Python that was removed")
    bootstrap.enter_venv(["build"])
    assert venv.commands == ["making .venv", "installing the Python packages"] * 2


def test_more_extras_are_added_and_none_is_lost(venv, monkeypatch):
    wanted = []
    monkeypatch.setattr(bootstrap, "_install", wanted.append)
    for extras in (["build"], ["build", "test"], ["build"]):
        bootstrap.enter_venv(extras)
    assert wanted == [["build"], ["build", "test"]]


def test_changed_pins_install_again(venv, monkeypatch, tmp_path):
    bootstrap.enter_venv(["build"])
    (tmp_path / "constraints.txt").write_text("numpy==0\n")
    monkeypatch.setattr(bootstrap, "CONSTRAINTS", tmp_path / "constraints.txt")
    bootstrap.enter_venv(["build"])
    assert venv.commands[2:] == ["installing the Python packages"]


def test_an_interrupted_install_does_not_count_as_done(venv, monkeypatch):
    def interrupt(extras):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bootstrap, "_install", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bootstrap.enter_venv(["build"])
    bootstrap.enter_venv(["build"])
    assert venv.commands[-1] == "installing the Python packages"


def test_an_old_python_is_told_which_one_is_needed():
    with pytest.raises(ToolingError, match=r"Python 3\.10 .* is too old: 3\.11 or newer is needed.*python3\.11 "):
        bootstrap.check_python((3, 10))
    bootstrap.check_python((3, 11))


def test_a_python_without_the_venv_modules_is_told_the_package_to_install(venv, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(ToolingError, match=r"lacks the standard modules.*apt-get install python3\.\d+-venv"):
        bootstrap.enter_venv(["build"])


def test_a_failed_step_shows_the_end_of_its_output():
    command = [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(3)"]
    with pytest.raises(ToolingError, match=r"(?s)a step failed:.*one.*two.*start again"):
        bootstrap._run(command, "a step")


def test_the_commands_start_on_nothing_but_the_standard_library(repo_root):
    for command in ("build.py", "serve.py"):
        bare = [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import runpy, sys; sys.path.insert(0, '.'); runpy.run_path({command!r})",
        ]
        result = subprocess.run(bare, cwd=repo_root, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        code = "import sys; sys.path.insert(0, '.'); import tooling.bootstrap"
        subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=repo_root, check=True)


def test_a_second_run_waits_for_the_first_and_says_so(tmp_path, monkeypatch):
    waiting, order = threading.Event(), []
    monkeypatch.setattr("tooling.locking.say", lambda text: waiting.set())

    def second():
        with exclusive(tmp_path / "lock"):
            order.append("second")

    with exclusive(tmp_path / "lock"):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_a_file_written_whole_keeps_its_old_content_when_the_writing_fails(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write_and_fail():
        with write_whole(path) as file:
            file.write(b"half")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write_and_fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_takes_the_place_of_another(tmp_path):
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    replace_folder(tmp_path / "new", tmp_path / "old")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["old", "old/new"]


def test_a_failure_is_one_sentence_and_an_interrupt_is_no_traceback(capsys):
    def fail():
        raise ToolingError("numpy.whl: it is damaged; start again")

    def interrupt():
        raise KeyboardInterrupt

    assert run_command(fail) == 1
    assert capsys.readouterr().err == "error: numpy.whl: it is damaged; start again\n"
    assert run_command(interrupt) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_sizes_are_told_as_people_read_them():
    assert [human_size(size) for size in (0, 999, 12_345, 98_362_432)] == ["0 bytes", "999 bytes", "12 kB", "98.4 MB"]


def test_chromium_is_the_one_named_or_the_command_to_install_it_is_told(monkeypatch, tmp_path):
    program = tmp_path / "chromium"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CHROMIUM", str(program))
    assert chromium.find_or_install() == str(program)
    monkeypatch.setenv("CHROMIUM", "absent")
    with pytest.raises(ToolingError, match="CHROMIUM=absent: no such program"):
        chromium.find_or_install()
    monkeypatch.delenv("CHROMIUM")
    assert Path(chromium.find_or_install()).name == "chromium"
    program.unlink()
    with pytest.raises(
        ToolingError, match=r"Chromium was not found.*apt-get install -y --no-install-recommends chromium"
    ):
        chromium.find_or_install()


def test_what_runs_before_the_version_check_is_readable_to_an_old_python(repo_root):
    names = (
        "serve.py",
        "build.py",
        "tests/__main__.py",
        *(f"tooling/{name}.py" for name in ("bootstrap", "console", "locking", "paths")),
    )
    for name in names:
        ast.parse((repo_root / name).read_text(), filename=name, feature_version=(3, 8))
