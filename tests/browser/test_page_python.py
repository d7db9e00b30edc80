"""The Python files that the build derives, in the site's own Pyodide."""

from __future__ import annotations

import re

import pytest

from tests.browser.pyodide_harness import open_harness

IMPORTS = """
import sys

import numpy
import minijinja
import pyruntime.conversation.shelf_browser
import pyruntime.delivery.obtain_browser
import pyruntime.engine
import pyruntime.model.wasm_executor_browser
import pyruntime.tables_cache

origins = {name: module.__spec__.origin for name, module in sys.modules.items() if getattr(module, "__spec__", None)}
{name: origin for name, origin in origins.items() if isinstance(origin, str)}
"""


@pytest.fixture
def python(run_in_pyodide):
    return run_in_pyodide


def test_nothing_that_the_page_imports_is_text_to_be_compiled(browser, site, tmp_path):
    with open_harness(browser, site, tmp_path / "site") as fresh:  # other tests import more
        origins = fresh(IMPORTS)
    ours = re.compile(r"/lib/python314.zip/|.*/site-packages/(numpy|pyruntime)/")
    assert [name for name, origin in origins.items() if ours.match(origin) and origin.endswith(".py")] == []
    assert {"numpy", "pyruntime.engine", "asyncio", "typing"} <= set(origins)


def test_the_files_of_loaded_libraries_are_emptied_and_numpy_computes_all_the_same(python):
    sizes = python(
        "from pathlib import Path; import numpy as np\n"
        "[path.stat().st_size for path in Path(np.__file__).parents[1].rglob('*.so')]"
    )
    assert len(sizes) >= 3
    assert set(sizes) == {0}
    assert python("np.linalg.solve(np.array([[2.0, 0.0], [0.0, 4.0]]), np.array([2.0, 2.0])).tolist()") == [1.0, 0.5]
    assert python("np.einsum('ij,j->i', np.eye(2), np.ones(2)).tolist()") == [1.0, 1.0]
    assert python("np.lib.stride_tricks.sliding_window_view(np.arange(4), 2).shape") == [3, 2]


def test_a_module_that_stays_text_is_there_too(python):
    assert python("import email.parser, difflib; difflib.get_close_matches('appel', ['apple'])") == ["apple"]
    assert python("b'\\xcf\\xf0'.decode('cp1251')") == "Пр"


def test_a_traceback_names_the_file_and_the_line(python):
    told = python(
        "import traceback\nfrom pyruntime.formats.gguf import parse_gguf\n"
        "try:\n    parse_gguf(b'', name='x', size=0)\nexcept Exception:\n    told = traceback.format_exc()\ntold"
    )
    assert re.search(r'File "/lib/python3.14/site-packages/pyruntime/formats/gguf.py", line \d+, in parse_gguf', told)
