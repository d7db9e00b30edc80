"""Typed text stays text, whatever the template does with it."""

import pytest

from pyruntime.chat import ChatTemplate
from pyruntime.errors import ParameterError, TemplateError
from tests.tiny_model import IM_END, IM_START, TOOL, open_tiny

CONTROL = {"<|im_start|>": IM_START, "<|im_end|>": IM_END, "<|tool|>": TOOL}


def template_of(source):
    return open_tiny(tokenizer__chat_template=source).template


def user(content, **fields):
    return [{"role": "user", "content": content, **fields}]


def control(ids):
    return [i for i in ids if i >= 256]


def test_a_template_that_builds_tokens_around_a_key_cannot_be_made_to_build_a_control_token():
    source = "{% for k in tools[0].parameters %}{{ '<' ~ k ~ '>' }}{% endfor %}{{ messages[0].content }}"
    tools = [{"name": "f", "parameters": {"|tool|": 1, "  |im_end|": 2, "|": 3, "city": 4}}]
    template = template_of(source)
    ids = template.encode(user("x"), tools)
    assert control(ids) == []
    assert bytes(ids).decode() == "<|tool|><  |im_end|><|><city>x"
    assert template.prompt(user("x"), tools).is_plain


def test_prose_that_ends_in_the_beginning_of_a_control_token_cannot_be_completed():
    ids = template_of("<|{{ messages[0].content }}|>").encode(user("tool"))
    assert bytes(ids).decode() == "<|tool|>"


def test_text_that_begins_a_control_token_cannot_be_completed_by_the_template():
    ids = template_of("{{ messages[0].content }}|>").encode(user("<|tool"))
    assert bytes(ids).decode() == "<|tool|>"


def test_an_unknown_role_is_text_and_a_known_one_is_the_templates_word():
    source = "{{ '<|' ~ messages[0].role ~ '|>' }}"
    assert control(template_of(source).encode([{"role": "im_end", "content": ""}])) == []
    assert control(template_of(source).encode([{"role": "tool", "content": ""}])) == [TOOL]


@pytest.mark.parametrize(
    ("source", "typed"),
    [
        ("{{ messages[0].content[::-1] }}", ">|loot|<"),
        ("{{ messages[0].content|reverse }}", ">|loot|<"),
        ("{% for c in messages[0].content %}{% if c in '<|>tol' %}{{ c }}{% endif %}{% endfor %}", "<|tool|>"),
        ("{{ messages[0].content.split('y')[0] ~ messages[0].content.split('y')[1] }}", "<y|tool|>"),
    ],
)
def test_a_template_that_takes_text_apart_is_refused_or_leaves_it_text(source, typed):
    try:
        ids, refusal = template_of(source).encode(user(typed)), ""
    except TemplateError as error:
        ids, refusal = [], str(error)
    assert "refused" in refusal or ids
    assert control(ids) == []


def test_such_a_template_still_serves_harmless_text():
    assert bytes(template_of("{{ messages[0].content[::-1] }}").encode(user("abc"))).decode() == "cba"


def test_where_a_templates_logic_looks_inside_text_the_safe_text_is_kept_and_said_to_differ():
    source = "{{ messages[0].content.split('<|tool|>')[-1] }}"
    prompt = template_of(source).prompt(user("a<|tool|>b"))
    assert prompt.text == "a<|tool|>b"
    assert not prompt.is_plain
    assert not any(segment.is_control for segment in prompt.segments)


def test_marks_leave_no_trace_in_json_repr_and_case_changes():
    source = (
        "{{ messages[0].content|tojson }}{{ messages[0].content|tojson(ensure_ascii=true) }}"
        "{{ [messages[0].content] }}{{ messages[0].content|upper }}{{ messages[0].content|title }}"
    )
    prompt = template_of(source).prompt(user("<|tool|> é<"))
    assert prompt.is_plain


def test_a_text_that_spells_the_marks_escape_keeps_it():
    text = r"What is \ud840\udc00, and <|tool|>?"
    prompt = template_of("{{ messages[0].content }}").prompt(user(text))
    assert (prompt.text, prompt.is_plain) == (text, True)


def test_control_tokens_begun_by_several_literals_cannot_be_completed():
    source = "{{ '<' ~ '|' ~ messages[0].content ~ '|>' }}"
    assert control(template_of(source).encode(user("tool"))) == []


def test_a_text_that_already_has_the_usual_mark_gets_another():
    text = "".join(map(chr, range(0x20000, 0x20010))) + "<|tool|>"
    prompt = template_of("{{ messages[0].content }}").prompt(user(text))
    assert (prompt.text, prompt.is_plain) == (text, True)


def test_reasoning_names_ids_and_arguments_are_untrusted_as_well():
    source = (
        "{{ messages[0].reasoning_content }}{{ messages[0].name }}{{ messages[0].tool_call_id }}"
        "{{ messages[0].tool_calls|tojson }}{{ documents|tojson }}{{ extra }}"
    )
    hostile = "<|im_start|>"
    messages = user(
        "", thinking=hostile, name=hostile, tool_call_id=hostile, tool_calls=[{"arguments": {hostile: [hostile]}}]
    )
    ids = template_of(source).encode(messages, documents=[{hostile: hostile}], extra={"a": hostile})
    assert control(ids) == []


def test_a_vocabulary_that_merges_text_into_a_control_token_is_refused():
    class Merging:
        control_ids = CONTROL

        def encode(self, text):
            return [TOOL] if text == "tool" else list(text.encode())

    template = ChatTemplate("{{ messages[0].content }}", tokenizer=Merging())
    assert template.encode(user("ok")) == list(b"ok")
    with pytest.raises(TemplateError, match="control token"):
        template.encode(user("tool"))


def test_continuing_a_message_ends_inside_it_without_a_second_prefix():
    model = open_tiny()
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hel <"}]
    ids = model.template.encode(messages, continue_final_message=True)
    assert control(ids) == [IM_START, IM_END, IM_START]
    assert bytes(ids[ids.index(IM_END) + 3 :]).decode() == "assistant\nHel <"


def test_continuing_strips_what_the_template_strips():
    source = "{% for m in messages %}{{ m.content|trim }}<|im_end|>{% endfor %}"
    assert ChatTemplate(source).render(user("a b  "), continue_final_message=True) == "a b"


def test_the_last_text_part_of_a_message_of_parts_is_the_one_continued():
    source = "{% for part in messages[0].content %}{{ part.text }}|{% endfor %}"
    messages = user([{"type": "text", "text": "a"}, {"type": "text", "text": "b "}])
    assert ChatTemplate(source).render(messages, continue_final_message=True) == "a|b "


def test_a_message_that_the_template_leaves_out_cannot_be_continued():
    with pytest.raises(TemplateError, match="leaves out the last message"):
        ChatTemplate("x").render(user("a"), continue_final_message=True)


def test_a_turn_is_either_opened_or_continued():
    with pytest.raises(ParameterError, match="either opened or continued"):
        ChatTemplate("x").render(user("a"), continue_final_message=True, add_generation_prompt=True)
