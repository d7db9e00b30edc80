"""SHA-256 of files and folders, and marks that say a file was checked and has not changed since."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Iterable


def sha256_of(path: pathlib.Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_parts(parts: Iterable[tuple[str, bytes]]) -> str:
    """One hash of named byte strings, in the order given; names and lengths count too."""
    digest = hashlib.sha256()
    for name, data in parts:
        digest.update(f"{name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()


def fingerprint(path: pathlib.Path) -> list[int]:
    """`[size, modification time in ns]`: what changes when a file is written again."""
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def mark_path(path: pathlib.Path) -> pathlib.Path:
    """Where the mark of a checked file lies."""
    return path.with_name(path.name + ".checked")


def mark_checked(path: pathlib.Path) -> None:
    """Remember that `path`, as it is now, has the right hash."""
    mark_path(path).write_text(json.dumps(fingerprint(path)))


def is_marked(path: pathlib.Path) -> bool:
    """Whether `path` was checked and has not been written since."""
    try:
        mark: object = json.loads(mark_path(path).read_text())
        return mark == fingerprint(path)
    except (OSError, ValueError):
        return False
