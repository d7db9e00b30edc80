"""The seed manifest: what a model consists of, and how to know that the right bytes arrived.

`docs/seed-manifest.schema.json` is the contract; this module reads it (`parse_manifest`), and writes it for files on
disk (`describe_file`, `manifest_bytes`). A manifest is hostile until parsed: every field is checked, unknown keys are
refused, and nothing in a parsed `Manifest` can name a place outside the model's folder or a script address. It does
not know how bytes are fetched or stored, and a parsed manifest says nothing about who wrote it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyruntime.errors import FormatError, UnsupportedError, shorten
from pyruntime.formats.model_files import Layout, layout_of
from pyruntime.formats.strict_json import parse_json

VERSION = 1
CHUNK_SIZE = 8 * 2**20
MAX_MANIFEST_BYTES = 2**20
MAX_FILE_BYTES = 64 * 2**30
MAX_FILES = 64
MAX_SOURCES = 16
_MAX_DEPTH = 8  # a manifest is four levels deep; the rest is room for a clearer error about the field

_PATH_PART = r"[A-Za-z0-9_][A-Za-z0-9._+-]*"


@dataclass(frozen=True)
class _TextRule:
    """What a text field may hold. The patterns are those of the JSON Schema."""

    pattern: re.Pattern[str]
    longest: int
    allowed: str


_NAME = _TextRule(re.compile(r"[a-z0-9][a-z0-9._-]*"), 64, "lower-case letters, digits, '.', '_', '-'")
_TITLE = _TextRule(
    re.compile(r"[^\u0000-\u001F\u007F-\u009F\u200E\u200F\u2028-\u202E\u2066-\u2069\uD800-\uDFFF]+"),
    120,
    "one line without control characters",
)
_LICENSE = _TextRule(re.compile(r"[A-Za-z0-9][A-Za-z0-9.+:() -]*"), 120, "an SPDX licence expression")
_REVISION = _TextRule(re.compile(r"[!-~]+"), 120, "visible ASCII without spaces")
_PATH = _TextRule(
    re.compile(rf"{_PATH_PART}(/{_PATH_PART})*"),
    200,
    "a relative path of letters, digits, '.', '_', '+', '-' and '/', no part starting with a dot",
)
_SHA256 = _TextRule(re.compile(r"[0-9a-f]{64}"), 64, "64 lower-case hexadecimal digits")
_SOURCE = _TextRule(
    re.compile(
        r"(https://[A-Za-z0-9.-]+(:[0-9]{1,5})?/|http://(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?/"
        r"|/(?!/)|(?=[^/])(?![^/?]*:))[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*"
    ),
    2000,
    "a relative address, https, or http on a loopback host",
)


@dataclass(frozen=True)
class ManifestFile:
    """One file of a model: its place, its bytes' identity, and where to get it."""

    path: str
    size: int
    sha256: str
    chunk_size: int
    chunk_sha256: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def name(self) -> str:
        """The last part of the path, as errors and progress show it."""
        return self.path.rpartition("/")[2]

    def chunk_length(self, index: int) -> int:
        """Bytes of chunk `index`: `chunk_size`, or the rest for the last one."""
        return min(self.chunk_size, self.size - index * self.chunk_size)


@dataclass(frozen=True)
class Manifest:
    """A model: its names, licence, pinned revision and files."""

    name: str
    title: str
    license: str
    revision: str
    files: tuple[ManifestFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def layout(self) -> Layout:
        """Which file is what; FormatError when they are not what a model needs."""
        return layout_of([file.path for file in self.files], where=self.name)

    def tokenizer_file(self) -> ManifestFile:
        """The file that the tokenizer is made from; FormatError as `layout`."""
        path = self.layout().tokenizer
        return next(file for file in self.files if file.path == path)


def parse_manifest(data: bytes, *, name: str) -> Manifest:
    """The manifest that `data` (UTF-8 JSON) holds.

    Args:
        data: the whole text.
        name: what errors call it, usually its address.

    Raises:
        UnsupportedError: when it is of another version.
        FormatError: when a field is missing, unknown, or holds something that is not allowed; names the field.
    """
    reader = _Reader(name)
    top = parse_json(data, name=name, max_bytes=MAX_MANIFEST_BYTES, max_depth=_MAX_DEPTH)
    if isinstance(top, dict) and "seed" in top and (top["seed"] != VERSION or type(top["seed"]) is not int):
        raise UnsupportedError(
            name,
            "seed",
            f"{shorten(top['seed'])} is not a version this program reads",
            allowed=str(VERSION),
            advice="Update the program, or get a manifest of this version",
        )
    fields = reader.fields(top, "", ("seed", "name", "title", "license", "revision", "files"))
    files = reader.items(fields["files"], "files", MAX_FILES)
    manifest = Manifest(
        name=reader.text(fields["name"], "name", _NAME),
        title=reader.text(fields["title"], "title", _TITLE),
        license=reader.text(fields["license"], "license", _LICENSE),
        revision=reader.text(fields["revision"], "revision", _REVISION),
        files=tuple(_read_file(reader, value, f"files[{index}]") for index, value in enumerate(files)),
    )
    # Case-insensitive file systems would let one of two such files overwrite the other.
    reader.no_repeats((file.path.lower() for file in manifest.files), "files[{}].path")
    return manifest


def _read_file(reader: _Reader, value: object, where: str) -> ManifestFile:
    fields = reader.fields(value, where, ("path", "size", "sha256", "chunk_size", "chunk_sha256", "sources"))
    size = reader.integer(fields["size"], f"{where}.size", 1, MAX_FILE_BYTES)
    chunk_size = reader.integer(fields["chunk_size"], f"{where}.chunk_size", CHUNK_SIZE, CHUNK_SIZE)
    count = -(-size // chunk_size)
    chunks = reader.items(fields["chunk_sha256"], f"{where}.chunk_sha256", MAX_FILE_BYTES // CHUNK_SIZE)
    if len(chunks) != count:
        raise FormatError(
            reader.name, f"{where}.chunk_sha256", f"{len(chunks)} hashes", allowed=f"{count}, as the size says"
        )
    sources = reader.items(fields["sources"], f"{where}.sources", MAX_SOURCES)
    file = ManifestFile(
        path=reader.text(fields["path"], f"{where}.path", _PATH),
        size=size,
        sha256=reader.text(fields["sha256"], f"{where}.sha256", _SHA256),
        chunk_size=chunk_size,
        chunk_sha256=tuple(
            reader.text(chunk, f"{where}.chunk_sha256[{index}]", _SHA256) for index, chunk in enumerate(chunks)
        ),
        sources=tuple(
            reader.text(source, f"{where}.sources[{index}]", _SOURCE) for index, source in enumerate(sources)
        ),
    )
    reader.no_repeats(file.sources, where + ".sources[{}]")
    return file


@dataclass(frozen=True)
class _Reader:
    """Checks values of one manifest; every error names the manifest and the field."""

    name: str

    def fields(self, value: object, field: str, keys: tuple[str, ...]) -> dict[str, Any]:
        prefix = f"{field}." if field else ""
        if not isinstance(value, dict):
            raise FormatError(self.name, field or "JSON", f"{shorten(value)} is not an object")
        for key in keys:
            if key not in value:
                raise FormatError(self.name, prefix + key, "missing")
        for key in value:
            if key not in keys:
                raise FormatError(self.name, prefix + shorten(key), "unknown key", allowed=", ".join(keys))
        return value

    def items(self, value: object, field: str, longest: int) -> list[Any]:
        if not isinstance(value, list):
            raise FormatError(self.name, field, f"{shorten(value)} is not a list")
        if not 1 <= len(value) <= longest:
            raise FormatError(self.name, field, f"{len(value)} items", allowed=f"1 to {longest}")
        return value

    def text(self, value: object, field: str, rule: _TextRule) -> str:
        if not isinstance(value, str) or len(value) > rule.longest or not rule.pattern.fullmatch(value):
            allowed = f"{rule.allowed}; at most {rule.longest} characters"
            raise FormatError(self.name, field, f"{shorten(value)} is not allowed", allowed=allowed)
        return value

    def integer(self, value: object, field: str, lowest: int, highest: int) -> int:
        # `type(...) is int`: True is an int to Python and not to anybody else.
        if type(value) is not int or not lowest <= value <= highest:
            allowed = str(lowest) if lowest == highest else f"a whole number from {lowest} to {highest}"
            raise FormatError(self.name, field, f"{shorten(value)} is not allowed", allowed=allowed)
        return value

    def no_repeats(self, values: Iterable[str], field: str) -> None:
        """`field` has a `{}` for the index."""
        seen: set[str] = set()
        for index, value in enumerate(values):
            if value in seen:
                raise FormatError(self.name, field.format(index), f"{shorten(value)} occurs twice")
            seen.add(value)


def describe_file(path: Path, *, on_progress: Callable[[int], None] | None = None) -> ManifestFile:
    """The manifest entry of a file on disk, with one source: its place beside the manifest in a built site.

    That place is `files/<sha256>/<name>`, which can be cached for ever. Characters that a manifest does not allow
    in a path become `-`. Reads the file once, in chunks.

    Args:
        path: the file.
        on_progress: called with the bytes hashed so far.

    Raises:
        FormatError: when the file is empty or larger than a manifest can describe.
        OSError: when it cannot be read.
    """
    name = re.sub(r"[^A-Za-z0-9._+-]", "-", path.name)[-_PATH.longest :].lstrip(".+-") or "model"
    whole, chunks, size = hashlib.sha256(), [], 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_SIZE):
            whole.update(chunk)
            chunks.append(hashlib.sha256(chunk).hexdigest())
            size += len(chunk)
            if on_progress is not None:
                on_progress(size)
    if not 1 <= size <= MAX_FILE_BYTES:
        raise FormatError(name, "size", f"{size} bytes", allowed=f"1 to {MAX_FILE_BYTES}")
    sha256 = whole.hexdigest()
    return ManifestFile(name, size, sha256, CHUNK_SIZE, tuple(chunks), (f"files/{sha256}/{name}",))


def manifest_name(text: str) -> str:
    """A manifest's `name` made from any text: lower case, other characters than those allowed become `-`."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:64] or "model"


def manifest_bytes(manifest: Manifest) -> bytes:
    """The JSON text of a manifest: the same bytes for the same manifest.

    Raises:
        FormatError: when `parse_manifest` would refuse it.
    """
    data = (json.dumps({"seed": VERSION, **asdict(manifest)}, indent=1, ensure_ascii=True) + "\n").encode("ascii")
    parse_manifest(data, name=manifest.name)
    return data
