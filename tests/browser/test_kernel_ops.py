"""The kernels in Chromium: every operation against numpy, over random shapes, and repacking of every type of weights.

They are the tests of the native builds, once more.
"""

from __future__ import annotations

import contextlib
import inspect

import pytest

from tests.browser.kernel_page import PageBackend
from tests.unit import test_kernel_ops as natively
from tests.unit import test_kernel_repack as repacking
from tests.unit.test_kernel_ops import lab, random  # noqa: F401 - fixtures of those tests
from tooling.kernels import WASM_VARIANTS


@pytest.fixture(scope="module", params=[variant.file for variant in WASM_VARIANTS])
def backend(request, browser):
    with contextlib.closing(browser.new_context()) as context:
        yield PageBackend(context, request.param, natively.ARENA_BYTES)


for _name, _test in {**vars(natively), **vars(repacking)}.items():
    if _name.startswith("test_") and "lab" in inspect.signature(_test).parameters:
        globals()[_name] = _test
