"""A benchmark measures the real page: one round of it, with a model that costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.tiny_model import tiny_gguf


@pytest.fixture(scope="module")
def tiny_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="the machine is read from Linux")
def test_one_round_of_a_benchmark_measures_the_page_and_says_so(repo_root, site, chromium_path, tiny_file):
    command = [sys.executable, "-m", "benchmarks", "ttft", "--model", str(tiny_file), "--rounds", "1"]
    done = subprocess.run(command, cwd=repo_root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout[done.stdout.index("\n{") :])
    assert result["command"] == "python -m benchmarks ttft --model tiny.gguf --rounds 1"
    assert result["model"] == "tiny.gguf"
    states = result["figures"]["send → first-token, ms"]
    assert list(states) == ["TinyPyLM, first visit", "TinyPyLM, reload", "TinyPyLM, warm"]
    assert all(state["median"] > 0 and len(state["rounds"]) == 1 for state in states.values())
