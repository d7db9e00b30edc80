"""Runs one piece of code in the sandbox's Python and says what came of it.

Executed by `sandbox_worker.mjs` in a Python that nothing has run in before, and nothing will run in after. What the code
prints goes another way. The code can change everything here, and so lie about itself, but about nothing else.
"""

import ast
import linecache
import sys
import traceback
from types import ModuleType, SimpleNamespace

_FILE = "<python>"
_BRIDGE = ("js", "pyodide", "_pyodide", "_pyodide_core")


async def run(code, characters):
    """(how it ended, text): "done" with the `repr` of the last expression, or nothing if that is None or no expression;
    "error" or "memory" with the end of the traceback. The text is at most one character longer than `characters`.
    """
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
    try:
        value = await _value(code)
        return "done", "" if value is None else repr(value)[: characters + 1]
    except SystemExit as error:
        if error.code in (None, 0):
            return "done", ""
        return "error", _words(error, characters)
    except MemoryError as error:
        return "memory", _words(error, characters)
    except BaseException as error:  # noqa: BLE001 - the code may raise anything
        return "error", _words(error, characters)


async def _value(code):
    """Run the code as a module, where `await` is allowed; returns the value of its last line if that is an expression."""
    tree = ast.parse(code, _FILE)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    module = sys.modules["__main__"] = ModuleType("__main__")  # where dataclasses and pickle look for its classes
    names = vars(module)
    await _done(compile(tree, _FILE, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    if last is None:
        return None
    return await _done(compile(ast.Expression(last.value), _FILE, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)


async def _done(compiled, names):
    value = eval(compiled, names)  # noqa: S307 - running code is what this is for
    return await value if compiled.co_flags & 0x80 else value  # CO_COROUTINE: it has an `await` of its own


def _words(error, characters):
    """The end of the error's traceback, from the code on."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_filename != _FILE:
        place = place.tb_next
    return "".join(traceback.format_exception(error.with_traceback(place)))[-characters - 1 :]


def close_the_bridge():
    """Make JavaScript, and what of Pyodide leads there, no modules of this Python; `asyncio.run` goes on working."""
    for name in list(sys.modules):
        if name.partition(".")[0] in _BRIDGE:
            sys.modules[name] = None  # which is how Python writes that there is no such module
    for name in _BRIDGE:
        sys.modules[name] = None
    # Nor does importing find them anew where the code has cleared `sys.modules`.
    for finder in list(sys.meta_path):
        if hasattr(finder, "jsproxies"):
            finder.jsproxies.clear()
            sys.meta_path.remove(finder)
    # `asyncio.run` asks it whether it may wait.
    api = ModuleType("pyodide_js._api")
    api.config = SimpleNamespace(enableRunUntilComplete=True)
    sys.modules["pyodide_js"], sys.modules["pyodide_js._api"] = ModuleType("pyodide_js"), api
