"""The static server: headers, types, ranges, caching, and what it refuses to hand out."""

from __future__ import annotations

import hashlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import pytest

from pyruntime.delivery.manifest import parse_manifest
from pyruntime.formats.model_files import Layout
from tests.gguf_writer import write_gguf
from tests.tiny_folder import SHARDS, sharded, write_folder
from tooling import csp
from tooling.console import ToolingError
from tooling.seed import seed_for_file, seed_for_model
from tooling.server import Server

HASH = "a" * 64
FILES = {
    "index.html": b"<!doctype html><title>site</title>",
    "app.css": b"p{}",
    "ui/page.py": b"x = 1",
    "pyodide/shim.mjs": b"export {}",
    "pyodide/pyodide.asm.wasm": b"\0asm",
    "pyodide/numpy.whl": b"PK",
    "seed/default.json": b"{}",
    f"seed/files/{HASH}/model.gguf": b"GGUF" + bytes(range(256)) * 20_000,
    ".built.json": b"{}",
}


@pytest.fixture(scope="module")
def small_site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside") / "site"
    (folder.parent / "secret.txt").parent.mkdir(exist_ok=True)
    (folder.parent / "secret.txt").write_text("secret")
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def ask(server, path, method="GET", **headers):
    """The answer to one request, with the path sent exactly as given, and its body."""
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_the_page_is_cross_origin_isolated_and_guarded_by_headers(server, small_site):
    for path in ("/", "/app.css", "/missing"):
        answer, _ = ask(server(site=small_site), path)
        assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["Content-Security-Policy"] == csp.header()
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert "Server" not in answer.headers


def test_without_isolation_only_the_isolating_headers_are_missing(server, small_site):
    answer, _ = ask(server(site=small_site, isolation=False), "/")
    assert "Cross-Origin-Opener-Policy" not in answer.headers
    assert "Cross-Origin-Embedder-Policy" not in answer.headers
    assert answer.headers["Content-Security-Policy"] == csp.header()


def test_the_policy_lets_no_inline_script_run_and_no_other_origin_in():
    policy = dict(directive.split(" ", 1) for directive in csp.header().split("; "))
    assert policy["default-src"] == "'none'"
    assert "'unsafe-inline'" not in policy["script-src"]
    for name, sources in policy.items():
        assert not any("*" in source or source.startswith("http") for source in sources.split()), name


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/app.css", "text/css; charset=utf-8"),
        ("/ui/page.py", "text/x-python; charset=utf-8"),
        ("/pyodide/shim.mjs", "text/javascript; charset=utf-8"),
        ("/pyodide/pyodide.asm.wasm", "application/wasm"),
        ("/pyodide/numpy.whl", "application/zip"),
        ("/seed/default.json", "application/json"),
        (f"/seed/files/{HASH}/model.gguf", "application/octet-stream"),
    ],
)
def test_every_kind_of_file_has_its_type(server, small_site, path, kind):
    answer, body = ask(server(site=small_site), path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, kind)
    assert body == FILES[path.lstrip("/") or "index.html"]


def test_a_range_is_answered_with_exactly_its_bytes(server, small_site):
    path = f"seed/files/{HASH}/model.gguf"
    running, data = server(site=small_site), FILES[f"seed/files/{HASH}/model.gguf"]
    for asked, first, last in (
        ("bytes=0-0", 0, 0),
        ("bytes=4-1500003", 4, 1500003),
        ("bytes=-7", len(data) - 7, len(data) - 1),
    ):
        answer, body = ask(running, "/" + path, Range=asked)
        assert answer.status == 206
        assert answer.headers["Content-Range"] == f"bytes {first}-{last}/{len(data)}"
        assert body == data[first : last + 1]


def test_a_range_past_the_end_is_refused_with_the_size(server, small_site):
    size = len(FILES["app.css"])
    answer, _ = ask(server(site=small_site), "/app.css", Range=f"bytes={size}-")
    assert (answer.status, answer.headers["Content-Range"]) == (416, f"bytes */{size}")


def test_head_tells_the_size_without_the_bytes(server, small_site):
    answer, body = ask(server(site=small_site), "/app.css", method="HEAD")
    assert (answer.status, answer.headers["Content-Length"], body) == (200, str(len(FILES["app.css"])), b"")


def test_only_addresses_with_a_hash_in_them_are_cached_for_ever(server, small_site):
    running = server(site=small_site)
    answer, _ = ask(running, f"/seed/files/{HASH}/model.gguf")
    assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    for path in ("/", "/app.css", "/seed/default.json", "/missing", f"/seed/files/{HASH}/missing.gguf"):
        answer, _ = ask(running, path)
        assert answer.headers["Cache-Control"] == "no-cache", path


def test_an_unchanged_file_is_not_sent_again_and_a_changed_one_is(server, tmp_path):
    (tmp_path / "index.html").write_text("one")
    running = server(site=tmp_path)
    first, _ = ask(running, "/")
    again, body = ask(running, "/", If_None_Match=first.headers["ETag"])
    assert (again.status, body) == (304, b"")
    (tmp_path / "index.html").write_text("other")
    changed, body = ask(running, "/", If_None_Match=first.headers["ETag"])
    assert (changed.status, body) == (200, b"other")


@pytest.mark.parametrize("path", ["/missing", "/ui", "/ui/", "/ui/missing.py", "/.built.json", "/a%00b"])
def test_what_is_not_a_file_of_the_site_is_a_short_404(server, small_site, path):
    answer, body = ask(server(site=small_site), path)
    while answer.status == 301:  # a folder's name without its slash
        answer, body = ask(server(site=small_site), answer.headers["Location"])
    assert answer.status == 404
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert body.startswith(b"404 ")
    assert len(body) < 100


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/ui/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "//etc/passwd",
        "/ui/..%5c..%5csecret.txt",
    ],
)
def test_no_address_reaches_outside_the_site(server, small_site, path):
    answer, body = ask(server(site=small_site), path)
    assert answer.status in {403, 404}
    assert b"secret\n" not in body.replace(b"secret.txt", b"")
    assert b"root:" not in body


def test_nothing_can_be_sent_to_the_server(server, small_site):
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer, _ = ask(server(site=small_site), "/app.css", method=method)
        assert answer.status == 405


def test_a_model_file_from_elsewhere_becomes_the_default_seed(server, small_site, tmp_path):
    model = tmp_path / "My Model.gguf"
    write_gguf(model, {"general.architecture": "llama"}, {})
    running = server(site=small_site, model=seed_for_file(model))
    _, body = ask(running, "/seed/default.json")
    manifest = json.loads(body)
    assert manifest["name"] == "my-model"
    assert ask(running, "/seed/my-model.json")[1] == body
    (file,) = manifest["files"]
    answer, data = ask(running, "/seed/" + file["sources"][0])
    assert data == model.read_bytes()
    assert hashlib.sha256(data).hexdigest() == file["sha256"]
    assert "immutable" in answer.headers["Cache-Control"]
    part, body = ask(running, "/seed/" + file["sources"][0], Range="bytes=0-3")
    assert (part.status, body) == (206, b"GGUF")


def test_a_model_folder_becomes_the_default_seed_with_the_files_it_needs(server, small_site, tmp_path):
    folder = write_folder(tmp_path / "Tiny Model", sharded())
    running = server(site=small_site, model=seed_for_model(folder))
    manifest = parse_manifest(ask(running, "/seed/default.json")[1], name="default.json")
    assert (manifest.name, manifest.title, manifest.license) == ("tiny-model", "Tiny Model", "NOASSERTION")
    assert manifest.layout() == Layout("model.safetensors.index.json", "tokenizer.json")
    assert {file.path for file in manifest.files} == set(sharded()) - {"README.md"}
    for file in manifest.files:
        assert ask(running, f"/seed/{file.sources[0]}")[1] == (folder / file.path).read_bytes(), file.path
    secret = ask(running, f"/seed/{manifest.files[0].sources[0].replace('config.json', 'README.md')}")[0]
    assert secret.status == 404, "no other file of the folder"


def test_the_revision_of_a_folder_changes_with_any_of_its_files(tmp_path):
    folder = write_folder(tmp_path / "tiny", sharded())
    before = json.loads(seed_for_model(folder).manifest)["revision"]
    (folder / "generation_config.json").write_bytes(b"{}")
    assert json.loads(seed_for_model(folder).manifest)["revision"] != before


def test_a_folder_with_one_gguf_file_is_served_as_that_file(tmp_path):
    write_gguf(tmp_path / "a.gguf", {"general.architecture": "llama"}, {})
    assert seed_for_model(tmp_path) == seed_for_file(tmp_path / "a.gguf")


def test_a_shard_whose_name_a_manifest_does_not_allow_is_named(tmp_path):
    files = sharded()
    odd = "model (2).safetensors"
    files[odd] = files.pop(SHARDS[1])
    index = files["model.safetensors.index.json"].replace(SHARDS[1].encode(), odd.encode())
    folder = write_folder(tmp_path / "tiny", files | {"model.safetensors.index.json": index})
    with pytest.raises(ToolingError, match=r"--model: model \(2\)\.safetensors: a manifest does not allow this name"):
        seed_for_model(folder)


def test_a_folder_without_a_shard_is_refused_by_name(tmp_path):
    files = sharded()
    del files[SHARDS[1]]
    with pytest.raises(ToolingError, match=rf"--model: .*the file {SHARDS[1]} is missing from tiny"):
        seed_for_model(write_folder(tmp_path / "tiny", files))


def test_a_folder_without_a_built_site_is_refused_by_name(tmp_path):
    with pytest.raises(ToolingError, match=r"no index\.html there.*build\.py"):
        Server(tmp_path)


def test_a_taken_port_is_named_with_what_to_do(small_site):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ToolingError, match=rf"127\.0\.0\.1 port {port}: .*in use.*--port"):
            Server(small_site, port=port)


def test_without_a_wish_the_next_free_port_is_taken(server, small_site, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr("tooling.server.DEFAULT_PORT", taken.getsockname()[1])
        with Server(small_site, port=None).running() as running:
            assert ask(running, "/")[0].status == 200
            assert urlsplit(running.url).port > taken.getsockname()[1]


def test_every_answer_is_told_to_the_listener(server, small_site):
    running = server(site=small_site)
    ask(running, "/app.css")
    ask(running, "/missing")
    ask(running, f"/seed/files/{HASH}/model.gguf", Range="bytes=0-9")
    assert [(request.status, request.path) for request in running.requests] == [
        (200, "/app.css"),
        (404, "/missing"),
        (206, f"/seed/files/{HASH}/model.gguf"),
    ]
    assert running.bytes_sent("seed/files") == 10
    assert str(running.requests[0]).startswith("200 GET /app.css ")


def start_serve(repo_root, *arguments):
    command = [sys.executable, "-u", "serve.py", "--port", "0", *arguments]
    return subprocess.Popen(
        command,
        cwd=repo_root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A suite that runs in the background has Ctrl-C switched off, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - one call, no locks
    )


def test_a_second_run_of_serve_has_nothing_to_do_before_it_is_ready(repo_root, site):
    with start_serve(repo_root) as process:
        first = process.stdout.readline()
        assert "TinyPyLM is at http://" in first, "something was said, so something was done, before it was ready"
        process.send_signal(signal.SIGINT)
        process.stdout.read()


def test_a_visitor_who_leaves_in_the_middle_of_a_file_disturbs_nobody(server, small_site, caplog):
    running = server(site=small_site)
    address = urlsplit(running.url)
    with socket.create_connection((address.hostname, address.port)) as visitor:
        visitor.sendall(f"GET /seed/files/{HASH}/model.gguf HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
        assert visitor.recv(1000)
    assert ask(running, "/app.css")[1] == FILES["app.css"]
    assert caplog.messages == []


def test_serve_prints_its_address_when_it_can_answer_and_stops_cleanly(repo_root, small_site):
    with start_serve(repo_root, "--site", str(small_site), "--no-isolation") as process:
        lines = iter(process.stdout.readline, "")
        line = next(line for line in lines if "http://" in line)
        url = next(word for word in line.split() if word.startswith("http://"))
        answer, body = ask(type("Running", (), {"url": url}), "/")
        assert (answer.status, body) == (200, FILES["index.html"])
        assert "Cross-Origin-Opener-Policy" not in answer.headers
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert "200 GET / " in rest


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.gguf", None, "missing.gguf: it cannot be read: No such file"),
        ("page.gguf", b"<html>", "page.gguf: magic: the file begins with b'<htm'"),
        ("empty.gguf", b"", "empty.gguf: "),
        ("", None, "files: 0 files end in .gguf and none in .safetensors"),
        ("model.safetensors", b"", "model.safetensors: "),
    ],
)
def test_serve_refuses_what_is_no_model_file_by_name(repo_root, small_site, tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with start_serve(repo_root, "--site", str(small_site), "--model", str(tmp_path / name)) as process:
        output = process.stdout.read()
    assert process.returncode == 1
    assert words in output
    assert "Traceback" not in output
