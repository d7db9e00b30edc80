"""What the build makes of the page's Python files: which are compiled, what is left out, and that it is the same each time."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
import subprocess
import zipfile

import pytest

from tooling import cache, package
from tooling.compiled import Archive, compile_archives
from tooling.console import ToolingError
from tooling.page_python import STANDARD_LIBRARY, compiled_name, library_imports, python_of_page
from tooling.pins import read_pins

TOY = {
    "toy/__init__.py": b'"""A toy."""\nassert False, "never"\nNAMES = {"one", "two", "three"}\n',
    "toy/data.bin": b"\0" * 100,
    "toy/tests/__init__.py": b"",
    "toy-1.0.dist-info/licenses/LICENSE": b"free",
    "toy-1.0.dist-info/RECORD": b"toy/__init__.py,,\n",
}


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def pyodide(node_modules):
    return node_modules / "pyodide"


@pytest.fixture(scope="module")
def numpy():
    """The pinned wheel's pin and path."""
    (pin,) = (package for package in read_pins().packages if package.name == "numpy")
    return pin, cache.obtain([pin])["numpy"]


@pytest.fixture(scope="module")
def derive(numpy, pyodide):
    """A function that derives all of the page's archives: name → path."""
    pin, path = numpy
    return lambda: python_of_page([pin], {"numpy": path}, package.build_wheel(), pyodide)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_file_of_numpy_that_is_kept_is_the_pinned_one_or_compiled_from_it(derive, numpy):
    pin, path = numpy
    official, derived = members(path), members(derive()[pin.file])
    for name, data in derived.items():
        if name.endswith(".pyc"):
            assert name.removesuffix("c") in official
        elif not name.endswith("/RECORD"):
            assert data == official[name], name
    assert not [name for name in derived if name.endswith((".py", ".pyi", ".h"))]
    told = {name for name in official if ".dist-info/" in name}
    assert {name for name in told if "licenses" in name} != set()
    assert told <= set(derived)
    left_out = {name.split("/")[1] for name in official} - {name.split("/")[1].removesuffix("c") for name in derived}
    assert {"random", "f2py", "testing"} <= left_out
    assert not {"linalg", "lib", "_core", "typing"} & left_out


def test_the_derived_archives_have_the_same_bytes_when_they_are_derived_again(derive, own_cache, monkeypatch, tmp_path):
    again = {name: path.read_bytes() for name, path in derive().items()}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert {name: path.read_bytes() for name, path in derive().items()} == again


def test_archives_that_are_in_the_cache_start_no_program(derive, monkeypatch):
    derive()
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: pytest.fail("started"))
    derive()


def test_the_record_of_a_derived_wheel_tells_its_files(derive):
    for name, path in derive().items():
        if name == STANDARD_LIBRARY:
            continue
        files = members(path)
        (record,) = (file for file in files if file.endswith(".dist-info/RECORD"))
        rows = {file: (sha256, size) for file, sha256, size in csv.reader(io.StringIO(files.pop(record).decode()))}
        assert rows.pop(record) == ("", "")
        assert set(rows) == set(files)
        for file, data in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert rows[file] == (f"sha256={digest}", str(len(data)))


def test_the_standard_library_is_whole_and_what_a_start_imports_is_compiled(derive, pyodide):
    official, derived = members(pyodide / STANDARD_LIBRARY), members(derive()[STANDARD_LIBRARY])
    assert {re.sub(r"\.pyc$", ".py", name) for name in derived} == set(official)
    assert {"asyncio/events.pyc", "json/decoder.pyc", "typing.pyc"} <= set(derived)
    assert {"pdb.py", "email/parser.py", "encodings/cp1251.py"} <= set(derived)
    assert all(data == official[name] for name, data in derived.items() if not name.endswith(".pyc"))


def test_a_compiled_file_is_taken_without_a_look_at_its_source_and_names_its_place(derive):
    files = members(derive()[STANDARD_LIBRARY])
    assert int.from_bytes(files["typing.pyc"][4:8], "little") == 0b01  # by hash, not to be checked
    assert b"/lib/python314.zip/typing.py" in files["typing.pyc"]
    (name,) = (name for name in derive() if name.startswith("pyruntime-"))
    engine = members(derive()[name])["pyruntime/engine.pyc"]
    assert b"/lib/python3.14/site-packages/pyruntime/engine.py" in engine


def test_the_wheel_of_pyruntime_for_the_page_has_all_of_the_other(derive):
    source = package.build_wheel()
    compiled = members(derive()[compiled_name(source)])
    assert {re.sub(r"\.pyc$", ".py", name) for name in compiled} == set(members(source))


def test_docstrings_assertions_and_what_matches_are_left_out_of_a_derived_wheel(tmp_path, own_cache, pyodide):
    source = write_zip(tmp_path / "toy.whl", TOY)
    made = members(compile_archives([Archive(source, "small.whl", "/toys", ("*/tests/*",))], pyodide)["small.whl"])
    licence = "toy-1.0.dist-info/licenses/LICENSE"
    assert list(made) == ["toy/__init__.pyc", "toy/data.bin", licence, "toy-1.0.dist-info/RECORD"]
    assert b"A toy." not in made["toy/__init__.pyc"]
    assert b"never" not in made["toy/__init__.pyc"]
    assert (made["toy/data.bin"], made[licence]) == (TOY["toy/data.bin"], TOY[licence])


def test_a_file_that_cannot_be_compiled_is_told_by_its_name(tmp_path, own_cache, pyodide):
    source = write_zip(tmp_path / "toy.whl", {"toy/wrong.py": b"def :\n"})
    with pytest.raises(ToolingError, match=r"(?s)compiling with Pyodide failed.*/toys/toy/wrong\.py"):
        compile_archives([Archive(source, "toy.whl", "/toys")], pyodide)
    assert not list((tmp_path / "cache").rglob("toy.whl"))


def test_without_node_the_refusal_says_what_to_install(tmp_path, own_cache, pyodide, monkeypatch):
    source = write_zip(tmp_path / "toy.whl", TOY)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolingError, match=r"node was not found on PATH\. Install Node"):
        compile_archives([Archive(source, "toy.whl", "/toys")], pyodide)


def test_modules_imported_at_the_top_of_a_file_count_and_those_inside_functions_do_not(tmp_path):
    code = b"import json, toy\nfrom os import path\nfrom . import other\nif path:\n    from email import parser\n"
    code += b"try:\n    import re\nexcept ImportError:\n    pass\n\ndef late():\n    import pdb\n"
    source = write_zip(tmp_path / "toy.whl", {"toy/__init__.py": code, "toy/tests/test.py": b"import unittest\n"})
    names = ("json/__init__.py", "os.py", "email/__init__.py", "re/__init__.py", "pdb.py", "unittest/__init__.py")
    library = write_zip(tmp_path / "library.zip", dict.fromkeys(names, b""))
    archive = Archive(source, "toy.whl", "/toys", ("*/tests/*",))
    assert library_imports([archive], library) == ("email", "json", "os", "re")
