"""Assembles dist/: the page's sources, the pinned third-party files, the wheel of pyruntime, and the default model.

All addresses inside are relative, so the folder works under any path of any static host. It is built beside its place
and moved there when whole; a stamp tells the next build what went in, so that an unchanged site is no work.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from tooling import cache, npm, package
from tooling.console import ToolingError, human_size, say
from tooling.files import link_or_copy, replace_folder
from tooling.hashes import fingerprint, sha256_of_parts
from tooling.kernels import build_wasm
from tooling.locking import exclusive
from tooling.page_python import compiled_name, python_of_page
from tooling.paths import DIST, ROOT, cache_dir
from tooling.pins import Pins, read_pins
from tooling.pyodide_lock import make_lock
from tooling.seed import seed_for_artefact
from tooling.tokenizer_tables import tables_of_models

STAMP = ".built.json"
_RENAMED = {"pyodide_shim.mjs": "pyodide/shim.mjs"}  # Pyodide's loader expects its neighbours in the same folder


@dataclass(frozen=True)
class Inputs:
    """What a site is made of: files on disk by their place in the site, texts likewise, and the default model's files."""

    files: dict[str, Path]
    texts: dict[str, bytes]
    model: dict[str, Path]


def build_site(target: Path = DIST) -> Path:
    """The folder of the built site, made or found up to date."""
    begun = time.monotonic()
    with exclusive(cache_dir() / "lock"):
        build_wasm()
        pins = read_pins()
        key = _key(pins)
        if _is_current(target, key):
            return target
        _remove_leftovers(target)
        _assemble(target, _gather(pins), key)
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    say(f"Built {target.name}/: {human_size(size)} ({time.monotonic() - begun:.1f} s)")
    return target


def _key(pins: Pins) -> str:
    """A hash of everything the site depends on."""
    own = [*_web_sources().values(), *sorted((ROOT / "tooling").glob("*.py")), *(ROOT / "tooling").glob("*.mjs")]
    own += [ROOT / "package-lock.json", ROOT / "LICENSE"]
    parts = [(path.relative_to(ROOT).as_posix(), path.read_bytes()) for path in own]
    return sha256_of_parts([*parts, ("pins", repr(pins).encode()), ("pyruntime", package.sources_key().encode())])


def _is_current(target: Path, key: str) -> bool:
    """Whether the site was built from the same inputs and none of its files has changed since."""
    try:
        stamp = json.loads((target / STAMP).read_text())
        return stamp["key"] == key and all(fingerprint(target / name) == mark for name, mark in stamp["files"].items())
    except (OSError, ValueError, KeyError):
        return False


def _gather(pins: Pins) -> Inputs:
    """Obtain every input, downloading and building what is missing."""
    paths = cache.obtain(pins.artefacts)
    modules = npm.obtain(pins.npm)
    wheel = package.build_wheel()
    official = next(path for file, path in modules.items() if file.source == "pyodide-lock.json")
    files = {file.to: path for file, path in modules.items() if file.to is not None}
    files |= {f"pyodide/{artefact.file}": paths[artefact.name] for artefact in pins.packages}
    files[f"pyodide/{wheel.name}"] = wheel
    derived = python_of_page(pins.packages, paths, wheel, npm.node_modules() / "pyodide")
    files |= {f"pyodide/{name}": path for name, path in derived.items()}
    files |= _web_sources()
    files["licences/tinypylm.txt"] = ROOT / "LICENSE"
    texts = {
        "pyodide/pyodide-lock.json": make_lock(
            json.loads(official.read_bytes()), pins.packages, derived[compiled_name(wheel)], derived
        ),
        "licences/index.txt": _notice(pins),
    }
    model = paths[pins.model.name]
    seed = seed_for_artefact(pins.model, model)
    texts |= {f"seed/{name}.json": seed.manifest for name in ("default", seed.name)}
    texts |= tables_of_models({pins.model.sha256: model})
    return Inputs(files, texts, {f"seed/{address}": path for address, path in seed.files.items()})


def _web_sources() -> dict[str, Path]:
    """The page's own files by their place in the site."""
    web = ROOT / "web"
    files = (path for path in sorted(web.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    names = {path.relative_to(web).as_posix(): path for path in files}
    return {_RENAMED.get(name, name): path for name, path in names.items()}


def _notice(pins: Pins) -> bytes:
    """The third-party parts of the site with their licences, for readers."""
    lines = ["This site contains, beside TinyPyLM itself (Apache-2.0):", ""]
    lines += [f"{part.name} {part.version}: {part.licence}" for part in pins.artefacts]
    lines += [f"{part.package} {part.version}: {part.licence}" for part in pins.npm]
    changed = ["pyodide", *(part.name for part in pins.packages if part.left_out)]
    lines += [
        "",
        f"Python files of {', '.join(changed)} are compiled, and what is not used is left out. Their sources are in",
    ]
    lines += ["the packages of these names and versions on npm and PyPI, and at the projects themselves."]
    return ("\n".join(lines) + "\n").encode()


def _assemble(target: Path, inputs: Inputs, key: str) -> None:
    new = target.with_name(f"{target.name}.new-{os.getpid()}")
    for name, source in inputs.files.items():
        path = _place(new, name)
        shutil.copy2(source, path)
    for name, data in inputs.texts.items():
        _place(new, name).write_bytes(data)
    for name, source in inputs.model.items():
        link_or_copy(source, _place(new, name))
    marks = {path.relative_to(new).as_posix(): fingerprint(path) for path in sorted(new.rglob("*")) if path.is_file()}
    (new / STAMP).write_text(json.dumps({"key": key, "files": marks}))
    replace_folder(new, target)


def _place(folder: Path, name: str) -> Path:
    """The path of a new file of the site; raises ToolingError when two inputs want the same place."""
    path = folder / name
    if path.exists():
        raise ToolingError(f"{name}: two inputs of the site have this place; rename one of them")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _remove_leftovers(target: Path) -> None:
    """Remove what interrupted builds left beside the site."""
    for pattern in ("new", "old"):
        for path in target.parent.glob(f"{target.name}.{pattern}-*"):
            shutil.rmtree(path, ignore_errors=True)
