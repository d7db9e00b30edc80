"""The control tokens by which a model marks thinking and tool calls, found by asking its template.

The template is rendered with an assistant message whose parts are known words; the control tokens around those words
are the marks. So no token is written here, and a model that uses others needs no change. What the template does not
show (it may drop earlier thinking, or write calls as plain text) has no marks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pyruntime.chat.provenance import Segment
from pyruntime.chat.template import ChatTemplate
from pyruntime.errors import TemplateError

_THOUGHT, _ANSWER, _TOOL = "thoughtprobe", "answerprobe", "toolprobe"


@dataclass(frozen=True)
class Marks:
    """Token ids that open and close parts of an answer; None where the template shows none.

    Attributes:
        think: around the thinking.
        call: around a tool call written as a JSON object.
        turn_end: behind an assistant's words.
    """

    think: tuple[int, int] | None = None
    call: tuple[int, int] | None = None
    turn_end: int | None = None


def find_marks(template: ChatTemplate, control_ids: Mapping[str, int]) -> Marks:
    """The marks of the model whose template this is.

    Args:
        template: with its tokenizer.
        control_ids: text → id of the control tokens.
    """
    plain = _probe(template, {"content": _ANSWER})
    thinking = _probe(template, {"content": _ANSWER, "reasoning_content": _THOUGHT})
    calling = _probe(template, {"content": "", "tool_calls": [_call()]})
    # What also opens a plain answer frames every part alike and marks none.
    opening = _before(plain, _ANSWER)
    think, call = _around(thinking, _THOUGHT), _around(calling, _TOOL)
    think = think if think and think[0] != opening else None
    call = call if call and call[0] != opening and _is_json_call(calling) else None
    turn_end = _behind(plain, _ANSWER)
    return Marks(
        think and (control_ids[think[0]], control_ids[think[1]]),
        call and (control_ids[call[0]], control_ids[call[1]]),
        None if turn_end is None else control_ids[turn_end],
    )


def ends_inside_thinking(prompt_ids: Sequence[int], marks: Marks) -> bool:
    """Whether the model's first token goes on inside thinking that the prompt opened and did not close."""
    if marks.think is None:
        return False
    opening, closing = marks.think
    last = next((token_id for token_id in reversed(prompt_ids) if token_id in (opening, closing)), None)
    if last != opening:
        return False
    # A turn that ended since then has ended the thinking with it.
    since = prompt_ids[len(prompt_ids) - 1 - list(reversed(prompt_ids)).index(opening) :]
    return marks.turn_end not in since


def _probe(template: ChatTemplate, fields: Mapping[str, Any]) -> Sequence[Segment]:
    messages = [{"role": "user", "content": "question"}, {"role": "assistant", **fields}]
    try:
        return template.prompt(messages).segments
    except TemplateError:
        return ()


def _call() -> dict[str, Any]:
    return {"type": "function", "id": "call00001", "function": {"name": _TOOL, "arguments": {}}}


def _around(segments: Sequence[Segment], word: str) -> tuple[str, str] | None:
    """The control tokens right before and right behind the text that holds `word`, if there are two different ones."""
    for before, text, behind in zip(segments, segments[1:], segments[2:], strict=False):
        if word in text.text and before.is_control and behind.is_control and before.text != behind.text:
            return before.text, behind.text
    return None


def _before(segments: Sequence[Segment], word: str) -> str | None:
    for before, text in pairwise(segments):
        if before.is_control and word in text.text:
            return before.text
    return None


def _behind(segments: Sequence[Segment], word: str) -> str | None:
    for text, behind in pairwise(segments):
        if text.text.rstrip().endswith(word) and behind.is_control:
            return behind.text
    return None


def _is_json_call(segments: Sequence[Segment]) -> bool:
    text = next(segment.text for segment in segments if _TOOL in segment.text)
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and value.get("name") == _TOOL
