"""The built site: what is in it, that it is built once, and that its parts agree with each other."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import zipfile

import jsonschema
import pytest

from pyruntime.delivery.manifest import parse_manifest
from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.text.gguf_reader import spec_from_gguf
from pyruntime.text.tables import compile_tables
from pyruntime.text.tables_index import read_index
from tests.gguf_writer import write_gguf
from tooling import csp, kernels, package
from tooling.console import ToolingError
from tooling.pins import read_pins
from tooling.pyodide_lock import make_lock
from tooling.seed import seed_for_file
from tooling.site import build_site

OWN_TEXTS = {".html", ".css", ".py", ".mjs", ".js", ".json"}
THIRD_PARTY = {"lib", "licences", "micropython", "pyscript"}


@pytest.fixture(scope="module")
def fresh_site(tmp_path_factory):
    """A site built anew in a folder of its own."""
    return build_site(tmp_path_factory.mktemp("built") / "dist")


@pytest.fixture
def nothing_may_start(monkeypatch):
    """Fail when a program is started or a connection opened."""

    def refuse(*arguments, **options):
        pytest.fail(f"started or connected: {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


def own_texts(site):
    for path in sorted(site.rglob("*")):
        parts = path.relative_to(site).parts
        third_party = parts[0] in THIRD_PARTY or (parts[0] == "pyodide" and parts[-1] != "shim.mjs")
        if path.suffix in OWN_TEXTS and not third_party and not parts[0].startswith("."):
            yield path


def test_a_second_build_starts_no_program_and_changes_no_file(fresh_site, nothing_may_start):
    before = {path: path.stat() for path in fresh_site.rglob("*")}
    assert build_site(fresh_site) == fresh_site
    assert {path: path.stat() for path in fresh_site.rglob("*")} == before


def test_a_build_with_a_full_cache_starts_no_program(fresh_site, tmp_path, nothing_may_start):
    again = build_site(tmp_path / "dist")
    names = sorted(path.relative_to(fresh_site) for path in fresh_site.rglob("*"))
    assert sorted(path.relative_to(again) for path in again.rglob("*")) == names
    for name in names:
        if (again / name).is_file() and name.name != ".built.json":
            assert (again / name).read_bytes() == (fresh_site / name).read_bytes(), name


@pytest.mark.parametrize("fault", ["changed", "missing"])
def test_a_site_with_a_changed_or_missing_file_is_built_again(tmp_path, fault):
    site = build_site(tmp_path / "dist")
    victim, content = site / "index.html", (site / "index.html").read_bytes()
    victim.write_bytes(content + b"changed") if fault == "changed" else victim.unlink()
    build_site(site)
    assert victim.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_what_an_interrupted_build_left_is_removed(tmp_path):
    (tmp_path / "dist.new-1" / "half").mkdir(parents=True)
    build_site(tmp_path / "dist")
    assert [path.name for path in tmp_path.iterdir()] == ["dist"]


def test_every_address_in_the_page_is_relative_and_leads_to_a_file(fresh_site):
    page = (fresh_site / "index.html").read_text()
    addresses = re.findall(r"""(?:src|href|"interpreter")\s*[=:]\s*["']([^"']+)""", page)
    addresses += re.findall(r'"(\./[^"]+)"', page)
    assert len(addresses) > 5
    for address in addresses:
        if not address.startswith("data:"):
            assert not re.match(r"/|[a-z]+:", address), address
            assert (fresh_site / address).is_file(), address


def test_no_own_file_of_the_site_names_another_origin_or_the_root(fresh_site):
    files = list(own_texts(fresh_site))
    assert {"index.html", "worker.py", "protocol.py", "shim.mjs", "default.json"} <= {path.name for path in files}
    for path in files:
        # Namespaces are names and never fetched; this machine's own address stands in examples.
        text = re.sub(r"http://(www\.w3\.org|127\.0\.0\.1)\S*", "", path.read_text())
        assert not re.search(r"""["'(]/[\w-]+[./][\w./-]*["')]""", text), path
        assert not re.search(r"""["'(](https?:)?//\w""", text), path


def test_the_page_carries_the_same_policy_as_the_header(fresh_site):
    page = (fresh_site / "index.html").read_text()
    (found,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert found == csp.meta()
    assert csp.header() == f"{csp.meta()}; frame-ancestors 'none'"


def test_the_one_inline_script_that_the_policy_allows_is_that_of_the_sandbox(fresh_site):
    sandbox = (fresh_site / "sandbox.mjs").read_text()
    (script,) = re.findall(r"const FRAME_SCRIPT = `(.*?)`;", sandbox, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert re.findall(r"'(sha256-[^']*)'", csp.header()) == [f"sha256-{digest}"]
    assert re.findall(r"'(sha256-[^']*)'", sandbox) == [f"sha256-{digest}"], "the frame's own policy names it too"


def test_the_default_seed_is_a_valid_manifest_of_the_bytes_beside_it(fresh_site, repo_root):
    data = (fresh_site / "seed" / "default.json").read_bytes()
    assert (fresh_site / "seed" / "smollm2-135m-instruct.json").read_bytes() == data
    jsonschema.validate(json.loads(data), json.loads((repo_root / "docs" / "seed-manifest.schema.json").read_text()))
    manifest = parse_manifest(data, name="default.json")
    assert manifest.name == "smollm2-135m-instruct"
    (file,) = json.loads(data)["files"]
    model = (fresh_site / "seed" / file["sources"][0]).read_bytes()
    assert (len(model), hashlib.sha256(model).hexdigest()) == (file["size"], file["sha256"])
    assert (len(model), file["sha256"]) == (read_pins().model.size, read_pins().model.sha256)
    size = file["chunk_size"]
    for index, expected in enumerate(file["chunk_sha256"]):
        assert hashlib.sha256(model[index * size : (index + 1) * size]).hexdigest() == expected
    assert len(file["chunk_sha256"]) == -(-len(model) // size)


@pytest.mark.parametrize(
    "name", ["My Model (1).gguf", "....gguf", "UPPER_case-v1.0.Q4_K.gguf", "模型.gguf", "x" * 150 + ".gguf"]
)
def test_a_model_file_of_any_name_gets_a_valid_manifest(tmp_path, repo_root, name):
    model = tmp_path / name
    write_gguf(model, {"general.architecture": "llama", "general.license": "mit"}, {})
    seed = seed_for_file(model)
    jsonschema.validate(
        json.loads(seed.manifest), json.loads((repo_root / "docs" / "seed-manifest.schema.json").read_text())
    )
    manifest = parse_manifest(seed.manifest, name=name)
    assert (manifest.name, manifest.license) == (seed.name, "mit")


def test_pyodide_is_given_exactly_the_pinned_wheels_with_their_hashes(fresh_site):
    packages = json.loads((fresh_site / "pyodide" / "pyodide-lock.json").read_text())["packages"]
    assert set(packages) == {"numpy", "regex", "micropip", "packaging", "minijinja", "pyruntime"}
    for entry in packages.values():
        data = (fresh_site / "pyodide" / entry["file_name"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
        assert set(entry["depends"]) <= set(packages)
    assert {"numpy", "minijinja"} == set(packages["pyruntime"]["depends"])


def test_a_pinned_wheel_that_pyodide_does_not_know_by_that_hash_is_refused_by_name(fresh_site):
    numpy = next(part for part in read_pins().packages if part.name == "numpy")
    entry = {"file_name": numpy.file, "sha256": "0" * 64}
    with pytest.raises(ToolingError, match=rf"{re.escape(numpy.file)}: pinned with SHA-256 {numpy.sha256}.*{'0' * 64}"):
        make_lock({"info": {}, "packages": {"numpy": entry}}, [numpy], fresh_site / "index.html", {})


@pytest.fixture
def sources(tmp_path, repo_root):
    """A copy of what the wheel is built from, with other times and permissions."""
    copy = tmp_path / "copy"
    shutil.copytree(repo_root / "pyruntime", copy / "pyruntime", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        if (repo_root / name).exists():
            shutil.copy(repo_root / name, copy / name)
    for path in copy.rglob("*"):
        if path.is_file():
            os.utime(path, (1_000_000_000, 1_000_000_000))
            path.chmod(0o600)
    return copy


def test_the_wheel_has_the_same_bytes_for_the_same_sources(fresh_site, sources, tmp_path, monkeypatch):
    built = [path.read_bytes() for path in (fresh_site / "pyodide").glob("pyruntime-*-py3-none-any.whl")]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert [package.build_wheel(sources).read_bytes()] == built


def test_the_wheel_has_every_module_and_table_of_the_package(fresh_site, repo_root):
    (wheel,) = (fresh_site / "pyodide").glob("pyruntime-*-py3-none-any.whl")
    wanted = {
        path.relative_to(repo_root).as_posix()
        for path in (repo_root / "pyruntime").rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".so"}  # libraries are built where they run
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wanted <= names
    assert all(name.startswith(("pyruntime/", "pyruntime-0.1.0.dist-info/")) for name in names)


def test_the_wheel_carries_the_kernels_for_browsers_and_no_library(fresh_site):
    (wheel,) = (fresh_site / "pyodide").glob("pyruntime-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        compiled = [name for name in archive.namelist() if name.endswith((".wasm", ".so", ".dylib", ".dll"))]
        modules = {name: archive.read(name) for name in compiled}
    expected = {f"pyruntime/model/kernels_wasm/{v.file}": kernels.built(v).read_bytes() for v in kernels.WASM_VARIANTS}
    assert len(expected) == 4
    assert modules == expected


def test_a_changed_source_gives_another_wheel(sources, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = package.sources_key(sources)
    with (sources / "pyruntime" / "errors.py").open("a") as file:
        file.write("# more\n")
    assert package.sources_key(sources) != before


def test_the_site_names_every_third_party_part_with_its_licence(fresh_site):
    notice = (fresh_site / "licences" / "index.txt").read_text()
    pins = read_pins()
    for name in (*(part.name for part in pins.artefacts), *(part.package for part in pins.npm)):
        assert f"\n{name} " in notice


def test_build_says_where_the_site_is(repo_root, site):
    result = subprocess.run([sys.executable, "build.py"], cwd=repo_root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == f"The site is in {site}"


def test_the_tables_of_the_default_tokenizer_are_what_its_file_gives_byte_for_byte(fresh_site, default_model):
    model = read_pins().model
    listed = read_index((fresh_site / "tokenizers/index.json").read_bytes(), "index.json")
    assert list(listed) == [model.sha256]
    entry = listed[model.sha256]
    shipped = (fresh_site / "tokenizers" / entry.file).read_bytes()
    assert (len(shipped), hashlib.sha256(shipped).hexdigest()) == (entry.bytes, entry.sha256)
    metadata = run_without_waiting(read_gguf(FileSource(default_model))).metadata
    assert shipped == compile_tables(spec_from_gguf(metadata, default_model.name), model.sha256)
    assert (fresh_site / "seed" / "files" / model.sha256 / entry.source).is_file(), "the source stays fetchable"
