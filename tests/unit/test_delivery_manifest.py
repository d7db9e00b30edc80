import contextlib
import hashlib
import json
import os
import re

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.delivery import manifest as module
from pyruntime.delivery.manifest import (
    CHUNK_SIZE,
    MAX_MANIFEST_BYTES,
    Manifest,
    ManifestFile,
    describe_file,
    manifest_bytes,
    manifest_name,
    parse_manifest,
)
from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.formats.model_files import Layout

SHA = "ab" * 32


def good():
    """A manifest with every field, as JSON values."""
    return {
        "seed": 1,
        "name": "tiny-1.0",
        "title": "Tiny 1.0 — ein Modell",
        "license": "Apache-2.0 OR MIT",
        "revision": "v1.0+abc",
        "files": [
            {
                "path": "weights/tiny.gguf",
                "size": CHUNK_SIZE + 1,
                "sha256": SHA,
                "chunk_size": CHUNK_SIZE,
                "chunk_sha256": [SHA, SHA],
                "sources": ["files/tiny.gguf", "https://models.example.org/tiny.gguf?x=a:b"],
            }
        ],
    }


def changed(place, value):
    """`good()` with the value at `place` (a list of keys) replaced, or removed for None."""
    top = good()
    target = top
    for key in place[:-1]:
        target = target[key]
    if value is None:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    return top


FILE = ["files", 0]
SOURCES = [*FILE, "sources"]

# (what is changed, to what, field that the error names, whether JSON Schema can see it)
BAD = [
    (["seed"], 2, "seed", True),
    (["seed"], "1", "seed", True),
    (["seed"], 1.0, "seed", False),
    (["seed"], True, "seed", True),
    (["seed"], None, "seed", True),
    (["name"], None, "name", True),
    (["name"], "", "name", True),
    (["name"], "Upper", "name", True),
    (["name"], "../x", "name", True),
    (["name"], "a" * 65, "name", True),
    (["name"], "tiny\n", "name", True),
    (["name"], 7, "name", True),
    (["title"], "", "title", True),
    (["title"], "two\nlines", "title", True),
    (["title"], "safe \u202e elif", "title", True),
    (["title"], "\ud800", "title", True),
    (["title"], "t" * 121, "title", True),
    (["license"], "<b>MIT</b>", "license", True),
    (["revision"], "has space", "revision", True),
    (["revision"], None, "revision", True),
    (["extra"], 1, "'extra'", True),
    (["files"], [], "files", True),
    (["files"], {}, "files", True),
    (["files"], [good()["files"][0]] * 65, "files", True),
    (FILE, "tiny.gguf", "files[0]", True),
    ([*FILE, "extra"], 1, "files[0].'extra'", True),
    ([*FILE, "path"], "../../etc/x", "files[0].path", True),
    ([*FILE, "path"], "/etc/x", "files[0].path", True),
    ([*FILE, "path"], "a/./b", "files[0].path", True),
    ([*FILE, "path"], "a//b", "files[0].path", True),
    ([*FILE, "path"], "a/", "files[0].path", True),
    ([*FILE, "path"], "a\\..\\x", "files[0].path", True),
    ([*FILE, "path"], "a\0b", "files[0].path", True),
    ([*FILE, "path"], "C:x", "files[0].path", True),
    ([*FILE, "path"], "javascript:alert(1)", "files[0].path", True),
    ([*FILE, "path"], ".hidden", "files[0].path", True),
    ([*FILE, "path"], "a" * 201, "files[0].path", True),
    ([*FILE, "size"], -1, "files[0].size", True),
    ([*FILE, "size"], 0, "files[0].size", True),
    ([*FILE, "size"], 2**63, "files[0].size", True),
    ([*FILE, "size"], 64 * 2**30 + 1, "files[0].size", True),
    ([*FILE, "size"], "10", "files[0].size", True),
    ([*FILE, "size"], True, "files[0].size", True),
    ([*FILE, "size"], float(CHUNK_SIZE + 1), "files[0].size", False),
    ([*FILE, "sha256"], "abc", "files[0].sha256", True),
    ([*FILE, "sha256"], SHA.upper(), "files[0].sha256", True),
    ([*FILE, "sha256"], SHA + "\n", "files[0].sha256", True),
    ([*FILE, "chunk_size"], 2**20, "files[0].chunk_size", True),
    ([*FILE, "chunk_size"], 0, "files[0].chunk_size", True),
    ([*FILE, "chunk_sha256"], [SHA], "files[0].chunk_sha256", False),
    ([*FILE, "chunk_sha256"], [SHA] * 3, "files[0].chunk_sha256", False),
    ([*FILE, "chunk_sha256"], [], "files[0].chunk_sha256", True),
    ([*FILE, "chunk_sha256"], [SHA, 5], "files[0].chunk_sha256[1]", True),
    (SOURCES, [], "files[0].sources", True),
    (SOURCES, ["a"] * 17, "files[0].sources", True),
    (SOURCES, ["a", "b", "a"], "files[0].sources[2]", True),
    (SOURCES, ["a", 5], "files[0].sources[1]", True),
] + [
    ([*SOURCES, 1], source, "files[0].sources[1]", True)
    for source in [
        "javascript:alert(1)",
        "JavaScript:alert(1)",
        "data:text/plain,x",
        "file:///etc/passwd",
        "blob:https://x.example/1",
        "http://models.example.org/x",
        "http://localhost.evil.example/x",
        "http://127.0.0.1.evil.example/x",
        "//evil.example/x",
        "https:evil.example/x",
        "https:/evil.example/x",
        "https://user@evil.example/x",
        "https://evil.example",
        "https://evil.example\\@good.example/x",
        "\\\\evil.example\\x",
        "/\\evil.example/x",
        "a#fragment",
        "a b",
        "a\tb",
        " a",
        "a\n",
        "\0",
        "ä",
        "",
        "a" * 2001,
    ]
]

GOOD = [
    (["name"], "a"),
    (["title"], "模型 🙂"),
    (["license"], "LicenseRef-gemma"),
    (["license"], "NOASSERTION"),
    ([*FILE, "path"], "model-00001-of-00003.safetensors"),
    (SOURCES, ["../tiny.gguf", "/models/tiny.gguf", "?file=tiny", "./a/b:c"]),
    (SOURCES, ["http://localhost:8000/x", "http://127.0.0.1/x", "http://[::1]:8000/x"]),
    ([*FILE, "chunk_sha256"], ["0" * 64, "f" * 64]),
]


@pytest.fixture(scope="module")
def schema(repo_root):
    text = (repo_root / "docs" / "seed-manifest.schema.json").read_text()
    # JSON Schema's patterns are ECMA-262's, where `$` is the end of the text; Python's also matches before a last \n.
    schema = json.loads(text.replace('$"', '\\\\Z"'))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def parse(value):
    return parse_manifest(json.dumps(value).encode(), name="tiny.json")


def test_a_manifest_is_read_field_for_field():
    manifest = parse(good())
    assert (manifest.name, manifest.title) == ("tiny-1.0", "Tiny 1.0 — ein Modell")
    assert (manifest.license, manifest.revision, manifest.size) == ("Apache-2.0 OR MIT", "v1.0+abc", CHUNK_SIZE + 1)
    assert manifest.tokenizer_file() is manifest.files[0]
    assert manifest.files[0].name == "tiny.gguf"
    assert [manifest.files[0].chunk_length(index) for index in range(2)] == [CHUNK_SIZE, 1]


@pytest.mark.parametrize(("place", "value"), GOOD)
def test_schema_and_parser_accept_the_same(schema, place, value):
    manifest = changed(place, value)
    schema.validate(manifest)
    parse(manifest)


@pytest.mark.parametrize(("place", "value", "field", "schema_sees"), BAD)
def test_what_is_wrong_is_refused_by_file_and_field_and_the_schema_agrees(schema, place, value, field, schema_sees):
    manifest = changed(place, value)
    with pytest.raises(FormatError) as caught:
        parse(manifest)
    assert str(caught.value).startswith(f"tiny.json: {field}: ")
    assert len(str(caught.value)) < 500
    assert schema.is_valid(manifest) is not schema_sees


def test_the_schema_has_the_parser_s_own_patterns_and_limits(schema):
    properties = schema.schema["properties"]
    file = schema.schema["$defs"]["file"]["properties"]
    rules = {
        "_NAME": properties["name"],
        "_TITLE": properties["title"],
        "_LICENSE": properties["license"],
        "_REVISION": properties["revision"],
        "_PATH": file["path"],
        "_SOURCE": file["sources"]["items"],
        "_SHA256": schema.schema["$defs"]["sha256"],
    }
    for name, field in rules.items():
        rule = getattr(module, name)
        assert re.compile(field["pattern"].removeprefix("^").removesuffix(r"\Z")) == rule.pattern
        assert field.get("maxLength", 64) == rule.longest
    assert file["size"]["maximum"] == module.MAX_FILE_BYTES
    assert file["chunk_size"]["const"] == CHUNK_SIZE
    assert file["chunk_sha256"]["maxItems"] * CHUNK_SIZE == module.MAX_FILE_BYTES
    assert file["sources"]["maxItems"] == module.MAX_SOURCES
    assert properties["files"]["maxItems"] == module.MAX_FILES


def test_another_version_is_told_apart_from_a_broken_manifest():
    with pytest.raises(
        UnsupportedError, match=r"tiny\.json: seed: 2 is not a version this program reads \(allowed: 1\)"
    ):
        parse({"seed": 2, "entirely": "different"})


def test_two_paths_that_differ_in_case_only_are_refused():
    manifest = good()
    manifest["files"].append({**manifest["files"][0], "path": "Weights/TINY.gguf"})
    with pytest.raises(FormatError, match=r"files\[1\]\.path: 'weights/tiny\.gguf' occurs twice"):
        parse(manifest)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b"<html>", "JSON"),
        (b"", "JSON"),
        (b"\xef\xbb\xbf" + json.dumps(good()).encode(), "JSON"),
        (json.dumps(good()).encode("utf-16"), "JSON"),
        (b'"\xff"', "JSON"),
        (b"[]", "JSON"),
        (b"null", "JSON"),
        (b'{"seed": NaN}', "JSON"),
        (b'{"seed": 1' + b"0" * 5000 + b"}", "JSON"),
        (b'{"files":' + b"[" * 100_000, "JSON"),
        (b'{"files":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "JSON"),
        (b'"' + b'\\"' * 200_000, "JSON"),
        (b" " * (MAX_MANIFEST_BYTES + 1), "JSON"),
        (json.dumps(good()).replace('"name"', '"seed": 1, "name"').encode(), "'seed'"),
    ],
)
def test_texts_that_are_not_a_manifest_are_refused(text, field):
    with pytest.raises(FormatError) as caught:
        parse_manifest(text, name="tiny.json")
    assert str(caught.value).startswith(f"tiny.json: {field}: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@given(st.sampled_from([place for place, *_ in BAD]), JSON)
def test_any_value_anywhere_is_accepted_or_refused_never_a_crash(place, value):
    with contextlib.suppress(FormatError):
        parse(changed(place, value if value is not None else []))


@given(st.binary(max_size=200))
def test_any_bytes_are_accepted_or_refused_never_a_crash(data):
    with pytest.raises(FormatError):
        parse_manifest(data, name="tiny.json")


def model_of(*paths):
    return Manifest(
        "tiny", "Tiny", "MIT", "1", tuple(ManifestFile(p, 1, SHA, CHUNK_SIZE, (SHA,), ("a",)) for p in paths)
    )


def test_a_gguf_file_is_the_whole_model_whatever_lies_beside_it():
    manifest = model_of("README.md", "config.json", "sub/a.gguf")
    assert manifest.layout() == Layout("sub/a.gguf", "sub/a.gguf")
    assert manifest.tokenizer_file().path == "sub/a.gguf"


@pytest.mark.parametrize("weights", ["model.safetensors", "model.safetensors.index.json"])
def test_a_folder_of_safetensors_has_its_tokenizer_in_a_file_of_its_own(weights):
    manifest = model_of("a.safetensors", "config.json", weights, "tokenizer.json", "spare.gguf")
    assert manifest.layout() == Layout(weights, "tokenizer.json")
    assert manifest.tokenizer_file().path == "tokenizer.json"


@pytest.mark.parametrize("paths", [(), ("a.gguf", "b.gguf"), ("model.bin", "config.json", "sub/model.safetensors")])
def test_without_one_set_of_weights_there_is_no_model(paths):
    found = sum(path.endswith(".gguf") for path in paths)
    with pytest.raises(FormatError, match=rf"^tiny: files: {found} files end in \.gguf and none in \.safetensors"):
        model_of(*paths).layout()


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_file_that_a_folder_needs_is_named_when_it_is_not_in_the_manifest(missing):
    paths = {"config.json", "tokenizer.json", "model.safetensors"} - {missing}
    with pytest.raises(FormatError, match=rf"^tiny: {missing}: the file is missing"):
        model_of(*paths).layout()


def test_a_file_on_disk_is_described_chunk_by_chunk(tmp_path):
    data = os.urandom(CHUNK_SIZE) + b"rest"
    path = tmp_path / ".My Modèl (1).gguf"
    path.write_bytes(data)
    hashed = []
    file = describe_file(path, on_progress=hashed.append)
    sha256 = hashlib.sha256(data).hexdigest()
    assert file == ManifestFile(
        path="My-Mod-l--1-.gguf",
        size=len(data),
        sha256=sha256,
        chunk_size=CHUNK_SIZE,
        chunk_sha256=(hashlib.sha256(data[:CHUNK_SIZE]).hexdigest(), hashlib.sha256(b"rest").hexdigest()),
        sources=(f"files/{sha256}/My-Mod-l--1-.gguf",),
    )
    assert hashed == [CHUNK_SIZE, len(data)]


def test_an_empty_file_cannot_be_described(tmp_path):
    path = tmp_path / "empty.gguf"
    path.touch()
    with pytest.raises(FormatError, match=r"empty\.gguf: size: 0 bytes"):
        describe_file(path)


def test_a_manifest_is_written_as_it_is_read():
    manifest = parse(good())
    assert parse_manifest(manifest_bytes(manifest), name="again") == manifest
    assert json.loads(manifest_bytes(manifest)) == good()


def test_a_manifest_that_could_not_be_read_is_not_written():
    with pytest.raises(FormatError, match="files: 0 items"):
        manifest_bytes(Manifest("tiny", "Tiny", "MIT", "1", ()))


@given(st.text())
def test_any_text_gives_a_manifest_name(text):
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", manifest_name(text))


def test_the_documented_example_is_what_the_documented_code_makes(repo_root, schema, tmp_path, monkeypatch):
    text = (repo_root / "docs" / "seed-manifest.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    schema.validate(json.loads(example))
    documented = parse_manifest(example.encode(), name="docs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / documented.files[0].path).write_bytes(bytes(CHUNK_SIZE) + b"abc")
    namespace = {}
    exec(code, namespace)
    made = json.loads(namespace["text"])
    made["files"][0]["sources"].append(documented.files[0].sources[1])
    assert made == json.loads(example)


def generic_as_ours(value):
    """The shared corpus' generic manifest {version, model, files: [{path, size, sha256}]}, field for field."""
    size_in_chunks = {"chunk_size": CHUNK_SIZE, "chunk_sha256": ["0" * 64], "sources": ["model"]}
    return {
        "seed": value["version"],
        "name": value["model"],
        "title": value["model"],
        "license": "NOASSERTION",
        "revision": "1",
        "files": [{**file, **size_in_chunks} for file in value["files"]],
    }


def test_every_manifest_of_the_shared_corpus_ends_as_expected(shared):
    folder = shared / "corpus" / "malformed"
    entries = [
        entry for entry in json.loads((folder / "MANIFEST.json").read_text())["entries"] if entry["kind"] == "manifest"
    ]
    assert len(entries) >= 12
    for entry in entries:
        data = (folder / entry["file"]).read_bytes()
        with contextlib.suppress(ValueError, RecursionError):  # not even JSON: passed on as it is
            data = json.dumps(generic_as_ours(json.loads(data))).encode()
        if entry["expect"] == "ok":
            assert parse_manifest(data, name=entry["file"]).name == "tiny"
            continue
        with pytest.raises(FormatError) as caught:
            parse_manifest(data, name=entry["file"])
        field = {"version": "seed"}.get(entry["error_must_name"], entry["error_must_name"])
        assert str(caught.value).startswith(f"{entry['file']}: {field}: "), entry["why"]
