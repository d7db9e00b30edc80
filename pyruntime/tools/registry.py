"""The tools of a conversation, by name: what the model is told of each, and how one is run.

A result is text from outside like any other: it reaches the model as the content of a message, where nothing in it can
become a control token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import ParameterError
from pyruntime.tools.schema import check_schema, fault

LONGEST_RESULT = 20_000  # characters; more would push the conversation out of a small model's context
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Tool:
    """Something a model may ask for.

    Attributes:
        name: letters, digits, `_` and `-`, at most 64.
        description: what it does, for the model.
        parameters: JSON Schema of its arguments, of type object.
        run: takes the arguments and gives the result: text, or any JSON value.
        needs_approval: whether a person is asked before each call.

    Raises:
        ParameterError: a name or schema that is not allowed.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[[dict[str, Any]], Awaitable[Any]]
    needs_approval: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ParameterError("tool name", self.name, "1 to 64 letters, digits, _ and -, no digit first")
        if not isinstance(self.parameters, Mapping) or self.parameters.get("type") != "object":
            raise ParameterError(f"tool {self.name}: parameters", self.parameters, 'a JSON Schema of "type": "object"')
        check_schema(self.parameters, f"tool {self.name}: parameters")

    def described(self) -> dict[str, Any]:
        """What templates expect of a tool."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class ToolRegistry:
    """Tools by name.

    Args:
        tools: each with a name of its own.

    Raises:
        ParameterError: two tools have one name.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ParameterError("tool name", tool.name, "a name that no other tool has")
            self._tools[tool.name] = tool

    @property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """Name → JSON Schema of the arguments, of all tools."""
        return {name: tool.parameters for name, tool in self._tools.items()}

    def descriptions(self) -> list[dict[str, Any]] | None:
        """What a template is told; None when there is no tool, which is how templates know."""
        return [tool.described() for tool in self._tools.values()] or None

    def needs_approval(self, name: str) -> bool:
        """Whether a person must be asked before a call of this tool."""
        return self._tools[name].needs_approval

    def fault(self, name: str, arguments: dict[str, Any]) -> str | None:
        """What is wrong with a call, or None."""
        tool = self._tools.get(name)
        return f"unknown tool {name!r}" if tool is None else fault(tool.parameters, arguments)

    async def run(self, name: str, arguments: dict[str, Any]) -> str:
        """The result of a faultless call, as text.

        Raises:
            ParameterError: the result is longer than 20,000 characters or is no JSON value.
            Exception: whatever the tool raises.
        """
        result = await self._tools[name].run(arguments)
        try:
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"result of {name}", type(result).__name__, "text or a JSON value") from error
        if len(text) > LONGEST_RESULT:
            allowed = f"at most {LONGEST_RESULT} characters"
            raise ParameterError(f"result of {name}", f"{len(text)} characters", allowed)
        return text
