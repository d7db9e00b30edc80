"""Logits by llama.cpp, for `python -m benchmarks quality --llama PYTHON`: run by a Python that has llama-cpp-python.

    PYTHON llama_logits.py MODEL.gguf FOLDER < windows.json

Reads a JSON list of lists of token ids; each starts from an empty cache. Writes FOLDER/0.npy, 1.npy, … : float32
(tokens, vocab).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np


def main() -> int:
    """Compute and write; the exit code."""
    import llama_cpp  # noqa: PLC0415 - no dependency of this project

    model, folder = sys.argv[1:]
    windows = json.load(sys.stdin)
    longest = max(map(len, windows))
    llama = llama_cpp.Llama(model, n_ctx=longest, n_batch=longest, logits_all=True, verbose=False)
    for number, ids in enumerate(windows):
        llama.reset()
        llama.eval(ids)
        np.save(Path(folder) / f"{number}.npy", llama.scores[: len(ids)].astype(np.float32))
    return 0


if __name__ == "__main__":
    sys.exit(main())
