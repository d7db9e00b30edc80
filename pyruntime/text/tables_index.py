"""Which compiled tables there are, and how a tokenizer is loaded with or without them.

A site lists the tables that it ships in `tokenizers/index.json`, each with its own hash and that of the file it was made
from:

    {"version": 1, "tables": [{"source": NAME, "source_sha256": HEX, "file": NAME, "bytes": N, "sha256": HEX}]}

The source of a GGUF tokenizer is the whole GGUF file: its hash is in the model's manifest and has been checked when the
file was stored, so that nothing need be hashed again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from pyruntime.errors import FormatError, shorten
from pyruntime.formats.strict_json import parse_json
from pyruntime.text.json_fields import Fields
from pyruntime.text.spec import TokenizerSpec
from pyruntime.text.tables import TablesError, compile_tables, read_tables

VERSION = 1
_MAX_BYTES = 1 << 20
_MAX_DEPTH = 4
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class TablesEntry:
    """Tables in a list of them.

    Attributes:
        source: name of the file that they were made from.
        source_sha256: its hash.
        file: their own file name, beside the list.
        bytes: their size.
        sha256: their own hash.
    """

    source: str
    source_sha256: str
    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Loaded:
    """A tokenizer, and how it came to be.

    Attributes:
        spec: the tokenizer.
        made: new tables to keep, when there were none or none to be trusted; otherwise None.
        problem: why the tables that were given could not be used; "" when there were none, or they could.
    """

    spec: TokenizerSpec
    made: bytes | None = None
    problem: str = ""


def make_entry(source: str, source_sha256: str, tables: bytes) -> TablesEntry:
    """The entry of tables made from the file called `source`."""
    return TablesEntry(source, source_sha256, f"{source_sha256}.bin", len(tables), hashlib.sha256(tables).hexdigest())


def index_bytes(entries: Sequence[TablesEntry]) -> bytes:
    """The list of tables, as it is served."""
    return json.dumps({"version": VERSION, "tables": [asdict(entry) for entry in entries]}, indent=1).encode() + b"\n"


def read_index(data: bytes, name: str) -> Mapping[str, TablesEntry]:
    """The tables in a list, by the hash of their source.

    Args:
        data: the list.
        name: its name, for errors.

    Raises:
        FormatError: it is damaged, or of another version.
    """
    parsed = parse_json(data, name=name, max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH)
    if not isinstance(parsed, dict):
        raise FormatError(name, "JSON", shorten(parsed), allowed="an object")
    file = Fields(parsed, "", name)
    if file.get("version", int) != VERSION:
        raise file.unsupported("version", str(parsed["version"]), allowed=str(VERSION))
    found: dict[str, TablesEntry] = {}
    for fields in file.objects("tables"):
        source_sha256, sha256 = (_matching(fields, key, _SHA256, "a SHA-256") for key in ("source_sha256", "sha256"))
        own_file = _matching(fields, "file", _FILE, "a file name")
        size = fields.get("bytes", int)
        found[source_sha256] = TablesEntry(fields.get("source", str), source_sha256, own_file, size, sha256)
    return found


def _matching(fields: Fields, key: str, form: re.Pattern[str], what: str) -> str:
    value = fields.get(key, str)
    if not form.fullmatch(value):
        raise fields.error(key, shorten(value), allowed=what)
    return value


async def load_spec(
    tables: bytes | None, source_sha256: str, read_source: Callable[[], Awaitable[TokenizerSpec]]
) -> Loaded:
    """A tokenizer from its tables, or else from its source, and then with new tables.

    Args:
        tables: what is kept or served for this source, if anything; it is not trusted.
        source_sha256: hash of the source.
        read_source: reads the source, which is only needed when the tables are not good. Its errors pass.
    """
    problem = ""
    if tables is not None:
        try:
            return Loaded(read_tables(tables, source_sha256))
        except TablesError as error:
            problem = str(error)
    spec = await read_source()
    return Loaded(spec, compile_tables(spec, source_sha256), problem)
