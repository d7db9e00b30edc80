"""From token ids to the parts of an answer: decode → marks → thinking → tool calls → stop strings.

One pipeline, for every token and for the flush at the end. Which part a token belongs to is decided by ids, never by text
that spells a mark; by text only where the model's template marks calls by text. Costs time in proportion to the new bytes.

- Thinking: white space around it is not part of it; an empty block is no thinking; calls inside it are text.
- A tool call is surfaced whole, once its closing mark has come outside a JSON string; what is cut off is invalid. How calls
  are marked and written is the template's (`call_format`).
- White space between an answer's text and a mark next to it belongs to neither.
- Stop strings are looked for in the answer's text only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

from pyruntime.chat.call_text import BareCall, CallText
from pyruntime.chat.marks import Marks
from pyruntime.chat.tool_calls import InvalidToolCall, Schemas, ToolCall, parse_calls
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
_State = Literal["content", "thinking"]
_NO_TOOLS: Schemas = MappingProxyType({})


class _Tokenizer(Protocol):
    def stream(self) -> StreamDecoder: ...


class OutputParser:
    """Reads one answer, token by token.

    Args:
        tokenizer: decodes ids.
        marks: the model's marks.
        stops: stop strings.
        known_tools: the tools offered, by name, with the JSON Schema of their arguments.
        inside_thinking: the prompt ended inside thinking.
        continues: the prompt ended inside a text, which goes on.
    """

    def __init__(
        self,
        tokenizer: _Tokenizer,
        marks: Marks,
        *,
        stops: Sequence[str] = (),
        known_tools: Schemas = _NO_TOOLS,
        inside_thinking: bool = False,
        continues: bool = False,
    ) -> None:
        self._think = marks.think
        # Where a call is nothing but JSON, only an offer of tools tells it from an answer in JSON.
        self._format = None if marks.call and marks.call.opening == "" and not known_tools else marks.call
        self._known_tools = known_tools
        self._decoder = tokenizer.stream()
        self._stops = StopFilter(stops)
        self._state: _State = "thinking" if inside_thinking else "content"
        self._thinking = _Trimmed(drop_start=not continues)
        self._content = _Trimmed(drop_start=False)
        self._opening = _TextMark(self._opening_text())
        self._call: CallText | BareCall | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found: nothing more will come."""
        return self._stops.matched is not None

    @property
    def is_thinking(self) -> bool:
        """Whether the answer is inside thinking."""
        return self._state == "thinking"

    def push(self, token_id: int) -> list[Part]:
        """The parts that `token_id` completes."""
        if self._is_mark(token_id):
            parts = self._text(self._decoder.flush())
            return [*parts, *self._turn(token_id)]
        inner = self._format.inner.get(token_id) if self._format and self._call else None
        if inner is None:
            return self._text(self._decoder.push(token_id))
        parts = self._text(self._decoder.flush())
        if self._call is not None:
            self._call.add_control(*inner)
        return parts

    def finish(self) -> list[Part]:
        """The parts that were held back, at the end of the answer."""
        parts = self._text(self._decoder.flush())
        if self._call is not None:
            parts += self._end_call(is_closed=self._format is not None and self._format.closing is None)
        if self._state == "content":
            parts += self._released()
            text = self._content.rest()
            parts += [ContentText(text)] if text else []
        return parts

    def _opening_text(self) -> str | None:
        opening = self._format.opening if self._format else None
        return (opening or "{") if isinstance(opening, str) else None

    def _is_mark(self, token_id: int) -> bool:
        """Whether the id means something in the present state; elsewhere it is its text."""
        calls, is_think = self._format, self._think is not None and token_id in self._think
        if self._call is not None:
            ends = calls and (calls.opening if calls.closing is None else calls.closing)
            return token_id == ends and not self._call.is_in_string
        if self._state == "thinking" or calls is None:
            return is_think
        return is_think or token_id == calls.opening or token_id in calls.frame

    def _turn(self, mark: int) -> list[Part]:
        """Enter the state that `mark` leads to."""
        parts: list[Part] = []
        if self._call is not None:
            parts = self._end_call(is_closed=True)
            if self._format is None or mark != self._format.opening:
                return parts
        elif self._state == "content":
            # What a stop string might have needed is text; white space before a mark is neither text nor thinking.
            parts = self._released()
        if self._format is not None and mark == self._format.opening and self._state == "content":
            self._call = CallText(self._format)
        elif self._think is not None and mark == self._think[0]:
            self._state, self._thinking = "thinking", _Trimmed(drop_start=True)
        else:
            self._state, self._content = "content", _Trimmed(drop_start=True)
        return parts

    def _text(self, text: str) -> list[Part]:
        parts: list[Part] = []
        while text and not self.is_stopped:
            if self._state == "thinking":
                shown = self._thinking.push(text)
                return [*parts, ReasoningText(shown)] if shown else parts
            if self._call is not None:
                rest = self._call.add(text)
                if rest is None:
                    break
                parts += self._end_call(is_closed=True)
                text = rest
                continue
            before, rest = self._opening.push(text)
            parts += self._content_parts(self._stops.push(before))
            if rest is None or self.is_stopped or self._format is None:
                break
            parts += self._content_parts(self._stops.flush())
            is_bare = self._format.opening == ""
            self._call = BareCall(self._format, self._known_tools) if is_bare else CallText(self._format)
            text = "{" + rest if is_bare else rest
        return parts

    def _end_call(self, *, is_closed: bool) -> list[Part]:
        """What the call that was read is."""
        call, calls = self._call, self._format
        assert call is not None and calls is not None  # noqa: S101, PT018 - there is no call without a format
        self._call = None
        if isinstance(call, BareCall) and not call.is_call(is_closed=is_closed):
            return self._content_parts(self._stops.push(call.text))
        self._content = _Trimmed(drop_start=True)
        if not is_closed:
            return [InvalidToolCall("incomplete", call.raw)]
        return [*parse_calls(call.text, calls.body, self._known_tools, call.raw)]

    def _released(self) -> list[Part]:
        """What the search for a call's beginning and the stop filter held, as text of the answer."""
        shown = self._stops.push(self._opening.flush())
        return self._content_parts(shown + self._stops.flush())

    def _content_parts(self, text: str) -> list[Part]:
        # Only where a mark may follow is white space held back: elsewhere every token shows at once.
        can_turn = self._think is not None or self._format is not None
        shown = self._content.push(text) if can_turn else text
        return [ContentText(shown)] if shown else []


class _TextMark:
    """Looks for a text that begins a call; holds back what could be its beginning.

    Args:
        mark: the text; None for none, which is never found.
    """

    def __init__(self, mark: str | None) -> None:
        self._mark = mark
        self._held = ""

    def push(self, text: str) -> tuple[str, str | None]:
        """The text before the mark, as far as it is certain, and the text behind the mark, once it was found."""
        if self._mark is None:
            return text, None
        pending, self._held = self._held + text, ""
        at = pending.find(self._mark)
        if at >= 0:
            return pending[:at], pending[at + len(self._mark) :]
        longest = min(len(pending), len(self._mark) - 1)
        keep = next((n for n in range(longest, 0, -1) if self._mark.startswith(pending[-n:])), 0)
        self._held = pending[len(pending) - keep :]
        return pending[: len(pending) - keep], None

    def flush(self) -> str:
        """What is held back: no more will come."""
        held, self._held = self._held, ""
        return held


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
