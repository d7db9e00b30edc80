"""Whether a model can be told to think or not to think before it answers, found by asking its template."""

from __future__ import annotations

from pyruntime.chat.template import ChatTemplate
from pyruntime.errors import TemplateError

_QUESTION = [{"role": "user", "content": "question"}]


def thinks_by_default(template: ChatTemplate) -> bool | None:
    """What the template takes `enable_thinking` to be when it is not told; None where it does not know that word."""
    try:
        untold = template.render(_QUESTION, add_generation_prompt=True)
        told = {on: template.render(_QUESTION, add_generation_prompt=True, enable_thinking=on) for on in (True, False)}
    except TemplateError:
        return None
    return None if told[True] == told[False] else untold != told[False]
