"""Questions whose prompts come to exactly so many tokens, whatever the model: `data/prompt.txt`, cut where it fits."""

from __future__ import annotations

from pathlib import Path

from pyruntime.opening import OpenedModel
from tooling.console import ToolingError

TEXT = Path(__file__).parent / "data" / "prompt.txt"
_REACH = 60  # characters around the likely place that are tried


def question(model: OpenedModel, n_tokens: int) -> str:
    """A message that, as the first of a chat, makes a prompt of `n_tokens`, template included.

    It begins with what is wanted and ends in the middle of a story, so that the model goes on for long.

    Raises:
        ToolingError: the template alone is longer, or the text too short.
    """
    text = TEXT.read_text(encoding="utf-8")

    def count(length: int) -> int:
        return len(prompt_ids(model, text[:length].strip()))

    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(middle) <= n_tokens else (low, middle - 1)
    near = range(min(len(text), low + _REACH), max(0, low - _REACH), -1)
    # Between words, if one of those places will do.
    for length in sorted(near, key=lambda place: not text[place - 1 : place + 1].endswith((" ", "\n"))):
        if count(length) == n_tokens:
            return text[:length].strip()
    shortest, longest = count(1), count(len(text))
    raise ToolingError(
        f"{model.file_name}: no prompt of {n_tokens} tokens can be made (allowed: {shortest} to {longest})"
    )


def prompt_ids(model: OpenedModel, text: str) -> list[int]:
    """The prompt's ids of a chat that begins with this message."""
    if model.template is None:
        raise ToolingError(f"{model.file_name}: it has no chat template; choose a model that can chat")
    return model.template.encode([{"role": "user", "content": text}], add_generation_prompt=True)
