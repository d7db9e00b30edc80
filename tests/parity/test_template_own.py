"""Templates and conversations of our own, rendered by the runtime and by the reference in the same run."""

from __future__ import annotations

import copy

import pytest
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from pyruntime.chat import ChatTemplate
from pyruntime.errors import TemplateError
from tests.parity.own_chats import CONVERSATIONS, TEMPLATES, now


class Clock:
    """Stands in for the reference's `datetime`."""

    now = staticmethod(now)


@pytest.fixture(params=TEMPLATES)
def template(request, monkeypatch):
    """(source, special tokens, a function that gives the reference's rendering of a conversation or None)."""
    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
    source, special_tokens = TEMPLATES[request.param]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **special_tokens)

    def reference(conversation):
        arguments = copy.deepcopy(conversation)
        messages = arguments.pop("messages")
        try:
            return tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **arguments)
        except Exception:  # noqa: BLE001 - whatever it raises, it renders nothing
            return None

    return source, special_tokens, reference


def rendering(compiled, conversation):
    """(text, None) or (None, error)."""
    try:
        return compiled.render(**conversation), None
    except TemplateError as error:
        return None, str(error)


def test_a_conversation_is_rendered_as_the_reference_does(template):
    source, special_tokens, reference = template
    compiled = ChatTemplate(source, special_tokens, now=now, undefined="reference")
    found = {name: rendering(compiled, conversation)[0] for name, conversation in CONVERSATIONS.items()}
    assert found == {name: reference(conversation) for name, conversation in CONVERSATIONS.items()}
    assert sum(text is not None for text in found.values()) >= 12


def test_the_strict_rendering_is_the_same_or_names_what_is_undefined(template):
    source, special_tokens, reference = template
    compiled = ChatTemplate(source, special_tokens, now=now)
    rendered = 0
    for name, conversation in CONVERSATIONS.items():
        text, error = rendering(compiled, conversation)
        if error is None or "undefined" not in error:
            assert text == reference(conversation), name
            rendered += text is not None
    assert rendered >= 12
