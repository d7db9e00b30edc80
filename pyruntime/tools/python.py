"""Python as a tool: what the model is told of it, and what the model reads of a run.

What runs the code is passed in, because it must be a place from which code that a model wrote reaches nothing. The page has
one (`web/sandbox.mjs`); CPython has none, so a terminal does not offer this tool.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from pyruntime.errors import SandboxError
from pyruntime.tools.registry import Tool


@dataclass(frozen=True)
class Limits:
    """What one run may use.

    Attributes:
        seconds: of time, from when Python is up.
        megabytes: of memory (2²⁰ bytes each), and as many of files.
        characters: of what it prints, and of its value or traceback.
    """

    seconds: int = 10
    megabytes: int = 256
    characters: int = 4_000


LIMITS = Limits()


@dataclass(frozen=True)
class Outcome:
    """What came of a run.

    Attributes:
        ended: "done"; "error", an exception; "memory", an exception for want of memory; "time", stopped when its time was
            over; "broken", the interpreter did not start or broke down.
        output: what it printed. Longer than the limit means that there was more.
        text: for "done" the `repr` of the last expression's value, empty for None or no expression; the traceback of an
            exception; for "broken" what went wrong. Longer than the limit means that there was more.
    """

    ended: Literal["done", "error", "memory", "time", "broken"]
    output: str
    text: str


def python_tool(run: Callable[[str], Awaitable[Outcome]], limits: Limits = LIMITS) -> Tool:
    """Python as a tool; it needs approval.

    Args:
        run: runs a piece of code within the limits, in an interpreter of its own that reaches nothing else.
        limits: those of `run`, for the words.
    """

    async def run_code(arguments: dict[str, Any]) -> str:
        return described(await run(arguments["code"]), limits)

    return Tool(
        "python",
        "Runs Python 3 code and tells what it prints and the value of its last expression. The standard library is there, "
        "no other packages, no network, no files of the user. Every call starts anew: nothing is kept from earlier calls. "
        f"A call may take {limits.seconds} seconds and {limits.megabytes} MB of memory.",
        {
            "type": "object",
            "properties": {"code": {"type": "string", "description": "For example sum(n * n for n in range(10))"}},
            "required": ["code"],
            "additionalProperties": False,
        },
        run_code,
        needs_approval=True,
    )


def described(outcome: Outcome, limits: Limits) -> str:
    """The outcome in words for the model.

    Raises:
        SandboxError: there is nothing to tell of the code, because its interpreter did not do its work.
    """
    if outcome.ended == "broken":
        raise SandboxError(outcome.text[: limits.characters])
    parts = []
    if outcome.output:
        parts.append(f"Output:\n{_beginning(outcome.output, limits.characters)}")
    if outcome.ended == "done" and outcome.text:
        parts.append(f"Value:\n{_beginning(outcome.text, limits.characters)}")
    elif outcome.ended in ("error", "memory"):
        parts.append(f"Error:\n{_end(outcome.text, limits.characters)}")
    if outcome.ended == "memory":
        parts.append(f"The code may use {limits.megabytes} MB of memory.")
    elif outcome.ended == "time":
        parts.append(f"The code was stopped because it ran longer than {limits.seconds} seconds.")
    return (
        "\n\n".join(part.rstrip("\n") for part in parts)
        or "The code ran to its end. It printed nothing and has no value."
    )


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[the rest is left out]"


def _end(text: str, most: int) -> str:
    return text if len(text) <= most else f"[the beginning is left out]\n{text[-most:]}"
