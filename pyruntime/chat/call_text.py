"""The text of one call while it comes, and where it ends if no token ends it."""

from __future__ import annotations

import re

from pyruntime.chat.call_format import CallFormat
from pyruntime.chat.tool_calls import FaultError, FieldBody, JsonBody, Schemas, read_json

_AFTER_BRACE = re.compile(r"\{\s*([^\s])")


class CallText:
    """A call that marks enclose.

    Args:
        calls: how the model writes calls.
    """

    def __init__(self, calls: CallFormat) -> None:
        self._closing = calls.closing if isinstance(calls.closing, str) else None
        self._has_strings = not isinstance(calls.body, FieldBody)
        self._texts: list[str] = []
        self._shown: list[str] = []
        self._end = ""  # the last characters outside strings, as many as the closing text has
        self._in_string = self._is_escaped = False

    @property
    def is_in_string(self) -> bool:
        """Whether its end lies inside a JSON string, where a mark is text."""
        return self._in_string

    @property
    def text(self) -> str:
        """What has come, for the parser."""
        return "".join(self._texts)

    @property
    def raw(self) -> str:
        """What has come, to be shown."""
        return "".join(self._shown)

    def add_control(self, stand_in: str, shown: str) -> None:
        """A control token that belongs to the call."""
        self._texts.append(stand_in)
        self._shown.append(shown)
        self._end = ""

    def add(self, text: str) -> str | None:
        """More text; the text behind the call if it ended by a text, otherwise None."""
        for place, character in enumerate(text):
            self._step(character)
            if self._closing and not self._in_string and self._end == self._closing:
                self._keep(text[: place + 1])
                self._texts = [self.text.removesuffix(self._closing)]
                self._shown = [self.raw.removesuffix(self._closing)]
                return text[place + 1 :]
        self._keep(text)
        return None

    def _keep(self, text: str) -> None:
        self._texts.append(text)
        self._shown.append(text)

    def _step(self, character: str) -> None:
        if self._has_strings:
            if self._is_escaped:
                self._is_escaped = False
            elif character == '"':
                self._in_string = not self._in_string
            elif character == "\\":
                self._is_escaped = self._in_string
        if self._closing:
            self._end = "" if self._in_string else (self._end + character)[-len(self._closing) :]


class BareCall(CallText):
    """A JSON object in an answer, which is a call if it looks like one: nothing else marks calls here.

    Args:
        calls: how the model writes calls.
        tools: the tools offered.
    """

    def __init__(self, calls: CallFormat, tools: Schemas) -> None:
        super().__init__(calls)
        assert isinstance(calls.body, JsonBody)  # noqa: S101 - only JSON can stand without a mark
        self._body, self._tools = calls.body, tools
        self._depth = 0
        self._is_plausible = False  # once its first character behind the bracket has come and fits

    def add(self, text: str) -> str | None:
        """More text; the text behind the object once its last bracket has come, or once it can be no object."""
        for place, character in enumerate(text):
            self._step(character)
            if not self._in_string and character in "{}":
                self._depth += 1 if character == "{" else -1
                if self._depth == 0:
                    self._keep(text[: place + 1])
                    return text[place + 1 :]
        self._keep(text)
        if not self._is_plausible:
            first = _AFTER_BRACE.match(self.text)
            if first and first.group(1) != '"':
                return ""
            self._is_plausible = first is not None
        return None

    def is_call(self, *, is_closed: bool) -> bool:
        """Whether the object is a call, well-formed or not, and not a part of the answer."""
        if is_closed:
            try:
                value, _ = read_json(self.text)
            except FaultError:
                value = None
            if isinstance(value, dict):
                return self._body.name in value and (
                    self._body.arguments in value or value[self._body.name] in list(self._tools)
                )
        name = re.search(rf'"{re.escape(self._body.name)}"\s*:\s*"([^"]*)', self.text)
        begins_a_tool = name is not None and any(tool.startswith(name.group(1)) for tool in self._tools)
        return begins_a_tool or (name is not None and f'"{self._body.arguments}"' in self.text)
