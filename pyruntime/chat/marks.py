"""The control tokens by which a model marks thinking and the end of its turn, found by asking its template.

The template is rendered with an assistant message whose parts are known words; the control tokens around those words
are the marks. So no token is written here, and a model that uses others needs no change. Where a template drops earlier
thinking, the marks are those of the empty block by which it keeps a model from thinking, if it does that. Calls are found
in the same way (`call_format`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from pyruntime.chat.call_format import CallFormat, find_call_format
from pyruntime.chat.provenance import Segment
from pyruntime.chat.template import ChatTemplate
from pyruntime.errors import TemplateError

_THOUGHT, _ANSWER = "thoughtprobe", "answerprobe"


@dataclass(frozen=True)
class Marks:
    """Token ids that open and close parts of an answer; None where the template shows none.

    Attributes:
        think: around the thinking.
        end_of_thinking: what the template writes from the last word of thinking to the first of the answer, as ids.
        call: how calls for tools are marked and written.
        turn_end: behind an assistant's words.
    """

    think: tuple[int, int] | None = None
    end_of_thinking: tuple[int, ...] = ()
    call: CallFormat | None = None
    turn_end: int | None = None


class _Tokenizer(Protocol):
    @property
    def control_ids(self) -> Mapping[str, int]: ...

    def encode(self, text: str) -> list[int]: ...


def find_marks(template: ChatTemplate, tokenizer: _Tokenizer) -> Marks:
    """The marks of the model whose template this is.

    Args:
        template: with its tokenizer.
        tokenizer: the model's.
    """
    control_ids = tokenizer.control_ids
    plain = _probe(template, {"content": _ANSWER})
    thinking = _probe(template, {"content": _ANSWER, "reasoning_content": _THOUGHT})
    # What also opens a plain answer frames every part alike and marks none.
    think = _around(thinking, _THOUGHT)
    think = think if think and think[0] != _before(plain, _ANSWER) else None
    end: tuple[int, ...] = ()
    if think:
        before, behind = _end_of_thinking(thinking)
        end = (*tokenizer.encode(before), control_ids[think[1]], *tokenizer.encode(behind))
    else:
        think = _closed_at_once(template)
        end = (control_ids[think[1]],) if think else ()
    turn_end = _behind(plain, _ANSWER)
    return Marks(
        think and (control_ids[think[0]], control_ids[think[1]]),
        end,
        find_call_format(template, control_ids),
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


def _closed_at_once(template: ChatTemplate) -> tuple[str, str] | None:
    """The marks of thinking where the template drops earlier thinking: what it writes to keep a model from thinking.

    Such a template opens an answer with an empty block when it is told so.
    """
    messages = [{"role": "user", "content": "question"}]
    try:
        segments = template.prompt(messages, add_generation_prompt=True, enable_thinking=False).segments
    except TemplateError:
        return None
    control = [segment for segment in segments[-4:] if segment.is_control or segment.text.strip()]
    opening, closing = control[-2:] if len(control) >= 2 else (None, None)
    if opening and closing and opening.is_control and closing.is_control and _is_pair(opening.text, closing.text):
        return opening.text, closing.text
    return None


def _is_pair(opening: str, closing: str) -> bool:
    """Whether two control tokens are written as an opening and its closing: alike but for a slash."""
    return closing != opening and closing.replace("/", "") == opening


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


def _end_of_thinking(segments: Sequence[Segment]) -> tuple[str, str]:
    """The text between the last word of thinking and its closing mark, and between that and the answer's first word."""
    place = next(i for i, segment in enumerate(segments) if _THOUGHT in segment.text)
    behind = segments[place + 2].text if place + 2 < len(segments) else ""
    return segments[place].text.partition(_THOUGHT)[2], behind.partition(_ANSWER)[0] if _ANSWER in behind else ""
