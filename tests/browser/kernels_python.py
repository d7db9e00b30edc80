"""What the tests of the kernels in Pyodide have in common: names that are defined there, and the kernels' workers."""

from __future__ import annotations

SETUP = """
import gc, hashlib
from functools import partial
from pathlib import Path

import js
import numpy as np
from pyodide.code import run_js
from pyodide.http import pyfetch

from pyruntime.delivery.indexeddb_browser import BlobSource
from pyruntime.delivery.obtain_browser import obtain_model
from pyruntime.engine import Engine
from pyruntime.errors import StoppedError, TinyPyLMError
from pyruntime.formats.source import BytesSource
from pyruntime.model import wasm_executor_browser, wasm_host_browser
from pyruntime.model.kernel_executor import KernelSettings

def digest(logits):
    return hashlib.sha256(logits.tobytes()).hexdigest()

async def refusal(loading):
    try:
        await loading
    except TinyPyLMError as error:
        return [type(error).__name__, str(error)]

ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5] * 9
"""


def helpers(python):
    """The kernels' workers; no others are started from a blob here."""
    return [worker for worker in python.page.workers if worker.url.startswith("blob:")]
