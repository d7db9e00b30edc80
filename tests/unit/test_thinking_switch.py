"""Whether a template knows the switch for thinking, and how it stands when nobody touches it."""

from __future__ import annotations

import pytest

from pyruntime.chat import ChatTemplate
from pyruntime.chat.thinking_switch import thinks_by_default
from pyruntime.engine import Engine
from tests.conversation_lab import open_model
from tests.tiny_model import TEMPLATE, ScriptedExecutor, open_tiny

TURN = "{% for m in messages %}{{ m.content }}{% endfor %}"


@pytest.mark.parametrize(
    ("source", "thinks"),
    [
        (TURN, None),
        (TURN + "{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}", True),
        (TURN + "{% if enable_thinking %}<think>{% endif %}", False),
        ("{% set on = enable_thinking | default(true) %}" + TURN + "{{ '/think' if on else '/no_think' }}", True),
        ("{{ raise_exception('never') }}", None),
    ],
)
def test_the_switch_is_found_by_asking_the_template(source, thinks):
    assert thinks_by_default(ChatTemplate(source)) is thinks


@pytest.mark.parametrize(("name", "thinks"), [("Qwen-Qwen3-0.6B", True), ("HuggingFaceTB-SmolLM3-3B", True)])
def test_real_templates_think_unless_they_are_told_not_to(shared, name, thinks):
    found = [*(shared / "templates").glob(f"{name}.jinja")]
    assert found, name
    assert thinks_by_default(ChatTemplate(found[0].read_text(encoding="utf-8"))) is thinks


def test_an_engine_tells_what_its_model_can_be_asked_for():
    able = Engine(open_model(), ScriptedExecutor([]))
    assert (able.can_call, able.thinks_by_default) == (True, True)
    plain = Engine(open_tiny(tokenizer__chat_template=TEMPLATE), ScriptedExecutor([]))
    assert (plain.can_call, plain.thinks_by_default) == (False, None)
    mute = Engine(open_tiny(tokenizer__chat_template=None), ScriptedExecutor([]))
    assert (mute.can_call, mute.thinks_by_default) == (False, None)
