"""Running source as notebooks and `python -m asyncio` do: with `await` where there is no function."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import doctest
import io
import json
import types

_CONTINUES = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


async def run_source(source, names, mode="exec"):
    """Run source with these names; returns what it printed."""
    code = compile(source, "<example>", mode, flags=_CONTINUES, dont_inherit=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = types.FunctionType(code, names)()
        if isinstance(result, types.CoroutineType):
            await result
    return printed.getvalue()


def notebook_cells(path, **parameters):
    """(id, source) of a notebook's code cells; that with the tag "parameters" gets other values."""
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    given = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    return [
        (cell["id"], given if "parameters" in cell["metadata"].get("tags", ()) else "".join(cell["source"]))
        for cell in cells
    ]


def failures(examples, names):
    """Run doctest's examples in one event loop; what they printed where it was not what stands there."""

    async def run():
        found = []
        for example in examples:
            printed = await run_source(example.source, names, "single")
            if not doctest.OutputChecker().check_output(example.want, printed, doctest.ELLIPSIS):
                found.append(f"line {example.lineno + 1}: {example.source}printed {printed!r}")
        return found

    return asyncio.run(run())
