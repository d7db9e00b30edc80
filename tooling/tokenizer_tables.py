"""Compiled tokenizer tables that the site ships: those of the default model, made from its own file."""

from __future__ import annotations

from pathlib import Path

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.text.gguf_reader import spec_from_gguf
from pyruntime.text.tables import compile_tables
from pyruntime.text.tables_index import index_bytes, make_entry

FOLDER = "tokenizers"


def tables_of_models(models: dict[str, Path]) -> dict[str, bytes]:
    """The tables and their list, by their place in the site.

    Args:
        models: GGUF files by their SHA-256.
    """
    files = {}
    entries = []
    for sha256, path in models.items():
        metadata = run_without_waiting(read_gguf(FileSource(path))).metadata
        tables = compile_tables(spec_from_gguf(metadata, path.name), sha256)
        entry = make_entry(path.name, sha256, tables)
        entries.append(entry)
        files[f"{FOLDER}/{entry.file}"] = tables
    return {**files, f"{FOLDER}/index.json": index_bytes(entries)}
