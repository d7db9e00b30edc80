"""The date and the time of day, for models, which cannot know them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyruntime.tools.registry import Tool

# `strftime` would give the names of the host's language.
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def current_time_tool(now: Callable[[], datetime]) -> Tool:
    """The clock as a tool; it needs no approval.

    Args:
        now: the present moment in the user's own time zone.
    """

    async def run(arguments: dict[str, Any]) -> dict[str, str]:  # noqa: ARG001 - it takes none
        moment = now()
        return {
            "date": moment.strftime("%Y-%m-%d"),
            "weekday": _WEEKDAYS[moment.weekday()],
            "time": moment.strftime("%H:%M:%S"),
            "utc_offset": moment.strftime("%z") or "unknown",
        }

    return Tool(
        "current_time",
        "Tells the current date, weekday and time of day where the user is.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        run,
        needs_approval=False,
    )
