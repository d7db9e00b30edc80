"""From token ids to the parts of an answer: decode → marks → thinking → tool calls → stop strings.

One pipeline, for every token and for the flush at the end. Which part a token belongs to is decided by ids, never by text
that spells a mark. Costs time in proportion to the new bytes.

- Thinking: white space around it is not part of it; an empty block is no thinking; calls inside it are text.
- A tool call is surfaced whole, once its closing mark has come outside a JSON string; what is cut off is invalid.
- White space between an answer's text and a mark next to it belongs to neither.
- Stop strings are looked for in the answer's text only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pyruntime.chat.marks import Marks
from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall, parse_tool_call
from pyruntime.text.stops import StopFilter
from pyruntime.text.stream import StreamDecoder


@dataclass(frozen=True)
class ContentText:
    """More text of the answer."""

    text: str


@dataclass(frozen=True)
class ReasoningText:
    """More text of the thinking."""

    text: str


Part = ContentText | ReasoningText | ToolCall | InvalidToolCall
_State = Literal["content", "thinking", "call"]


class _Tokenizer(Protocol):
    def stream(self) -> StreamDecoder: ...


class OutputParser:
    """Reads one answer, token by token.

    Args:
        tokenizer: decodes ids.
        marks: the model's marks.
        stops: stop strings.
        known_tools: names of the tools offered.
        inside_thinking: the prompt ended inside thinking.
        continues: the prompt ended inside a text, which goes on.
    """

    def __init__(
        self,
        tokenizer: _Tokenizer,
        marks: Marks,
        *,
        stops: Sequence[str] = (),
        known_tools: Collection[str] = (),
        inside_thinking: bool = False,
        continues: bool = False,
    ) -> None:
        self._marks = marks
        self._known_tools = known_tools
        self._decoder = tokenizer.stream()
        self._stops = StopFilter(stops)
        self._state: _State = "thinking" if inside_thinking else "content"
        self._thinking = _Trimmed(drop_start=not continues)
        self._content = _Trimmed(drop_start=False)
        self._call = _CallText()

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found: nothing more will come."""
        return self._stops.matched is not None

    def push(self, token_id: int) -> list[Part]:
        """The parts that `token_id` completes."""
        if not self._is_mark(token_id):
            return self._text(self._decoder.push(token_id))
        parts = self._text(self._decoder.flush())
        return [*parts, *self._turn(token_id)]

    def finish(self) -> list[Part]:
        """The parts that were held back, at the end of the answer."""
        parts = self._text(self._decoder.flush())
        if self._state == "call":
            self._state = "content"
            return [*parts, InvalidToolCall("incomplete", self._call.take())]
        if self._state == "content":
            parts += self._released()
            text = self._content.rest()
            parts += [ContentText(text)] if text else []
        return parts

    def _is_mark(self, token_id: int) -> bool:
        """Whether the id means something in the present state; elsewhere it is its text."""
        think, call = self._marks.think, self._marks.call
        if self._state == "call":
            return call is not None and token_id == call[1] and not self._call.is_in_string
        if self._state == "thinking":
            return think is not None and token_id in think
        return (think is not None and token_id in think) or (call is not None and token_id == call[0])

    def _turn(self, mark: int) -> list[Part]:
        """Enter the state that `mark` leads to."""
        think, call = self._marks.think, self._marks.call
        if self._state == "call":
            self._state, self._content = "content", _Trimmed(drop_start=True)
            return [parse_tool_call(self._call.take(), self._known_tools)]
        parts: list[Part] = []
        if self._state == "content":
            # What a stop string might have needed is text; white space before a mark is neither text nor thinking.
            parts = self._released()
        if call is not None and mark == call[0] and self._state == "content":
            self._state = "call"
        elif think is not None and mark == think[0]:
            self._state, self._thinking = "thinking", _Trimmed(drop_start=True)
        else:
            self._state, self._content = "content", _Trimmed(drop_start=True)
        return parts

    def _text(self, text: str) -> list[Part]:
        if not text:
            return []
        if self._state == "call":
            self._call.add(text)
            return []
        if self._state == "thinking":
            shown = self._thinking.push(text)
            return [ReasoningText(shown)] if shown else []
        return self._content_parts(self._stops.push(text))

    def _released(self) -> list[Part]:
        """What the stop filter held, as text of the answer."""
        return self._content_parts(self._stops.flush())

    def _content_parts(self, text: str) -> list[Part]:
        # Only where a mark may follow is white space held back: elsewhere every token shows at once.
        can_turn = self._marks.think is not None or self._marks.call is not None
        shown = self._content.push(text) if can_turn else text
        return [ContentText(shown)] if shown else []


class _Trimmed:
    """Text whose white space at the end is held until more comes, and at the start dropped if so wished."""

    def __init__(self, *, drop_start: bool) -> None:
        self._dropping = drop_start
        self._held: list[str] = []

    def push(self, text: str) -> str:
        if self._dropping:
            text = text.lstrip()
            if not text:
                return ""
            self._dropping = False
        shown = text.rstrip()
        if not shown:
            self._held.append(text)
            return ""
        shown_before, self._held = "".join(self._held), [text[len(shown) :]]
        return shown_before + shown

    def rest(self) -> str:
        """What is still held: at the end of an answer it is part of it."""
        held, self._held = "".join(self._held), []
        return held


class _CallText:
    """The text of a call, and whether its end lies inside a JSON string."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.is_in_string = False
        self._is_escaped = False

    def add(self, text: str) -> None:
        self._texts.append(text)
        for character in text:
            if self._is_escaped:
                self._is_escaped = False
            elif character == '"':
                self.is_in_string = not self.is_in_string
            elif character == "\\":
                self._is_escaped = self.is_in_string

    def take(self) -> str:
        text = "".join(self._texts)
        self._texts, self.is_in_string, self._is_escaped = [], False, False
        return text
