"""How the kernels are compiled: the same bytes each time, and a build that checks itself while the tests run on it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tooling import kernels


@pytest.mark.parametrize("variant", [*kernels.WASM_VARIANTS, *kernels.native_variants()], ids=lambda v: v.file)
def test_the_same_sources_give_the_same_bytes(variant, tmp_path, monkeypatch):
    first = kernels.built(variant).read_bytes()
    sources = kernels._read_sources()
    monkeypatch.setattr(kernels, "cache_dir", lambda: tmp_path)  # zig's own cache must not answer
    (tmp_path / "elsewhere").mkdir()
    assert kernels._compile(variant, sources, tmp_path / "elsewhere") == first


def test_a_module_is_what_a_browser_can_load():
    for variant in kernels.WASM_VARIANTS:
        data = kernels.built(variant).read_bytes()
        assert data.startswith(b"\0asm")
        assert b"/" + b"tmp/" not in data
        assert len(data) < 100_000


def test_the_library_the_runtime_finds_is_the_one_of_these_sources():
    folder = kernels.build_native()
    for variant in kernels.native_variants():
        assert (folder / variant.file).read_bytes() == kernels.built(variant).read_bytes()


@pytest.mark.skipif("TINYPYLM_TEST_LIBRARY" in os.environ, reason="this is the run that is started here")
def test_nothing_is_touched_that_should_not_be_and_nothing_is_undefined(repo_root):
    """The tests of the kernels and of whole models once more, under AddressSanitizer and UBSan."""
    variant = kernels.sanitized_variant()
    if variant is None:
        pytest.skip("there is no system compiler with sanitizers here")
    compiler = variant.command[0]
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    if not Path(runtime.stdout.strip()).is_absolute():
        pytest.skip("the system compiler has no AddressSanitizer")
    environment = os.environ | {
        "TINYPYLM_TEST_LIBRARY": str(kernels.built(variant)),
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own
    }
    files = [
        str(repo_root / "tests" / "unit" / f"test_kernel_{name}.py") for name in ("ops", "repack", "executor", "types")
    ]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=repo_root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
