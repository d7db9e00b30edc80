"""What becomes of the parameters and messages of a chat completion."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pyruntime.openai import AsyncOpenAI
from tests.call_lab import OWN as CALL_TEMPLATES
from tests.openai_lab import ADD, CALLING, USER, ask, call, client_of, tiny
from tests.tiny_model import TAG_TEMPLATE, THINK, UNTHINK

# ---------------------------------------------------------------------------------------------------------- parameters


@pytest.mark.parametrize(
    ("parameters", "content", "reason"),
    [
        ({"stop": "lo"}, "Hel", "stop"),
        ({"stop": ["xyz", "l"]}, "He", "stop"),
        ({"stop": []}, "Hello", "stop"),
        ({"stop": None}, "Hello", "stop"),
        ({"max_tokens": 2}, "He", "length"),
        ({"max_completion_tokens": 3}, "Hel", "length"),
        ({"max_completion_tokens": 3, "max_tokens": 3}, "Hel", "length"),
        ({"max_tokens": 5}, "Hello", "length"),
        ({"max_tokens": 6}, "Hello", "stop"),
    ],
)
def test_an_answer_ends_where_it_is_told(parameters, content, reason):
    (choice,) = ask(client_of("Hello")[0], **parameters).choices
    assert (choice.message.content, choice.finish_reason) == (content, reason)


@pytest.mark.parametrize(
    "parameters",
    [
        {"n": 1, "response_format": {"type": "text"}, "modalities": ["text"], "parallel_tool_calls": True},
        {"store": False, "service_tier": "auto", "tool_choice": "auto", "logprobs": False, "tools": []},
        {"n": None, "response_format": None, "seed": None, "top_p": None, "user": None, "extra_body": None},
        {"stream_options": None, "logit_bias": None, "tools": None, "audio": None, "functions": None},
    ],
)
def test_what_is_done_anyway_may_be_asked_for_and_none_is_not_given(parameters):
    assert ask(client_of("Hello")[0], **parameters).choices[0].message.content == "Hello"


def tokens_of(client, **parameters):
    return [token.bytes for token in ask(client, logprobs=True, **parameters).choices[0].logprobs.content]


def test_a_seed_makes_an_answer_reproducible():
    client = AsyncOpenAI(tiny())
    draws = [tokens_of(client, temperature=2.0, min_p=0.0, max_tokens=12, seed=seed) for seed in (7, 7, 8)]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("way", ["extra_body", "plain"])
def test_parameters_of_this_runtime_come_plainly_or_in_an_extra_body(way):
    parameters = {"top_k": 1, "temperature": 5.0, "max_tokens": 8}
    given = {"extra_body": parameters} if way == "extra_body" else parameters
    client = AsyncOpenAI(tiny())
    assert tokens_of(client, **given) == tokens_of(client, temperature=0, max_tokens=8)


@pytest.mark.parametrize("key", [65, "65"])
def test_a_bias_may_name_its_token_as_json_does(key):
    client = AsyncOpenAI(tiny())
    answer = ask(client, logit_bias={key: 1e6}, max_tokens=3, temperature=0)
    assert answer.choices[0].message.content == "AAA"


def test_penalties_reach_the_sampler():
    client = AsyncOpenAI(tiny())
    bias = {65: 1000, 66: 990}
    options = {"logit_bias": bias, "max_tokens": 4, "temperature": 0}
    assert ask(client, presence_penalty=20, **options).choices[0].message.content == "ABAA"
    assert ask(client, frequency_penalty=20, **options).choices[0].message.content == "ABAB"


def test_logprobs_are_those_of_the_models_own_distribution():
    engine = tiny()
    tilted = {"temperature": 1.7, "top_p": 0.9, "logit_bias": {70: 5}, "frequency_penalty": 1, "seed": 3}
    answer = ask(AsyncOpenAI(engine), logprobs=True, top_logprobs=4, max_tokens=6, **tilted)
    tokens = answer.choices[0].logprobs.content
    assert answer.usage.completion_tokens == len(tokens) > 0
    prompt = engine.prompt(USER)
    ids = [id_of(engine, token) for token in tokens]
    logits = engine.logits([*prompt, *ids])[len(prompt) - 1 : -1].astype(np.float64)
    logs = (
        logits
        - np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True))
        - logits.max(1, keepdims=True)
    )
    for token, token_id, row in zip(tokens, ids, logs, strict=True):
        assert token.logprob == pytest.approx(row[token_id], abs=1e-4)
        best = np.argsort(-row, kind="stable")[:4]
        assert [id_of(engine, top) for top in token.top_logprobs] == best.tolist()
        assert [top.logprob for top in token.top_logprobs] == pytest.approx(row[best].tolist(), abs=1e-4)


def id_of(engine, token):
    if token.bytes is None:
        return engine.model.tokenizer.control_ids[token.token]
    wanted = bytes(token.bytes)
    return next(i for i in range(264) if engine.model.tokenizer.token_bytes(i) == wanted)


def test_tokens_that_are_no_whole_characters_are_told_as_bytes():
    (choice,) = ask(client_of("é")[0], logprobs=True).choices
    assert [(token.token, token.bytes) for token in choice.logprobs.content] == [("\\xc3", [0xC3]), ("\\xa9", [0xA9])]
    assert [token.top_logprobs for token in choice.logprobs.content] == [[], []]
    assert ask(client_of("é")[0]).choices[0].logprobs is None


def test_thinking_is_apart_from_the_content_and_has_its_budget():
    answer = [THINK, *b"hmm", UNTHINK, *b"so"]
    message = ask(client_of(answer, **CALLING)[0]).choices[0].message
    assert (message.reasoning_content, message.content) == ("hmm", "so")
    client, _, _ = client_of([THINK, *b"hmso"], **CALLING)
    message = ask(client, thinking_budget=2).choices[0].message
    assert (message.reasoning_content, message.content) == ("hm", "so")


@pytest.mark.parametrize(
    "parameters",
    [
        {"enable_thinking": True},
        {"extra_body": {"enable_thinking": True}},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}},
        {"chat_template_kwargs": {"enable_thinking": True}},
    ],
)
def test_variables_of_the_template_can_be_given(parameters):
    template = TAG_TEMPLATE.replace("open_thinking", "enable_thinking")
    client, _, executor = client_of("hmm", tokenizer__chat_template=template)
    assert ask(client, **parameters).choices[0].message.reasoning_content == "hmm"
    assert THINK in executor.tokens


# --------------------------------------------------------------------------------------------------- messages and tools


def prompted(messages, **changes):
    """The prompt that the model was given."""
    client, engine, executor = client_of("ok", **changes)
    prompt = ask(client, messages).usage.prompt_tokens
    names = {token_id: text for text, token_id in engine.model.tokenizer.control_ids.items()}
    ids = executor.tokens[:prompt]
    return b"".join(names[i].encode() if i in names else bytes([i]) for i in ids).decode()


def test_a_content_in_parts_is_one_text():
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert "user\none\ntwo<|im_end|>" in prompted([{"role": "user", "content": parts}])


def test_developer_is_system_where_the_template_does_not_know_the_word():
    messages = [{"role": "developer", "content": "Be brief."}, *USER]
    assert prompted(messages).startswith("<|im_start|>system\nBe brief.")
    knowing = TAG_TEMPLATE.replace("{{ m.role }}", "{{ 'DEV' if m.role == 'developer' else m.role }}")
    assert prompted(messages, tokenizer__chat_template=knowing).startswith("<|im_start|>DEV\nBe brief.")


@pytest.mark.parametrize("back", ["as it came", "as plain data", "without what is none"])
def test_calls_come_as_json_text_and_are_given_back_with_their_results(back):
    client, _, executor = client_of(call(), "3", **CALLING)
    (choice,) = ask(client, tools=[ADD], tool_choice="auto").choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    (one,) = choice.message.tool_calls
    assert (one.id, one.type, one.function.name) == ("call2", "function", "add")
    assert json.loads(one.function.arguments) == {"a": 1, "b": "é"}
    message = choice.message
    if back != "as it came":
        message = message.model_dump(exclude_none=back == "without what is none")
    result = {"role": "tool", "tool_call_id": one.id, "content": "3"}
    assert ask(client, [*USER, message, result], tools=[ADD]).choices[0].message.content == "3"
    text = bytes(i for i in executor.tokens if i < 256).decode()
    assert 'assistant\n\n{"name": "add", "arguments": {"a": 1, "b": "é"}}\n' in text
    assert "tool\n3" in text


@pytest.mark.parametrize("as_text", [True, False])
def test_a_template_gets_arguments_as_it_wants_them_and_the_functions_name_with_a_result(as_text):
    shown = "{{ c.function.arguments + '' }}" if as_text else "{{ c.function.arguments|tojson }}"
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.name or '' }}\n{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}<|tool|>" + shown + "</call>{% endfor %}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant \n{% endif %}"
    )
    messages = [
        *USER,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "x", "type": "function", "function": {"name": "add", "arguments": '{"a":  1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "x", "content": "2"},
    ]
    text = prompted(messages, tokenizer__chat_template=template)
    assert ('<|tool|>{"a":  1}' if as_text else '<|tool|>{"a": 1}') in text
    assert "<|im_start|>tool add\n2<|im_end|>" in text


def test_what_is_no_valid_call_is_text():
    """There is no place for it elsewhere, and nothing of an answer may get lost."""
    client, _, _ = client_of([*b"Well: ", *call('{"name": "rm"}')], **CALLING)
    (choice,) = ask(client, tools=[ADD]).choices
    assert choice.message.tool_calls is None
    assert '{"name": "rm"}' in choice.message.content
    assert choice.finish_reason == "stop"


def test_an_answer_that_is_cut_off_behind_a_call_has_ended_by_its_length():
    client, _, _ = client_of([*call(), *b"and"], **CALLING)
    (choice,) = ask(client, tools=[ADD], max_tokens=len(call()) + 1).choices
    assert (len(choice.message.tool_calls), choice.finish_reason) == (1, "length")


def test_a_function_is_shown_to_the_model_without_what_is_none_of_its_business():
    template = "{% for t in tools or [] %}{{ t|tojson }}{% endfor %}" + TAG_TEMPLATE
    client, _, executor = client_of("ok", tokenizer__chat_template=template)
    ask(client, tools=[{**ADD, "function": {**ADD["function"], "strict": False}}])
    assert bytes(i for i in executor.tokens if i < 256).decode().startswith(json.dumps(ADD))


def test_an_answer_of_another_server_may_be_given_back_with_its_empty_fields():
    message = {"role": "assistant", "content": "Hm.", "refusal": None, "annotations": [], "tool_calls": None}
    assert "assistant\nHm.<|im_end|>" in prompted([*USER, message, *USER])


def test_where_no_function_may_be_called_none_is_offered():
    template = "{% if tools %}TOOLS {% endif %}" + TAG_TEMPLATE
    client, _, executor = client_of("ok", "ok", tokenizer__chat_template=template)
    ask(client, tools=[ADD], tool_choice="none")
    assert not bytes(i for i in executor.tokens if i < 256).startswith(b"TOOLS")
    ask(client, tools=[ADD])
    assert bytes(i for i in executor.tokens if i < 256).startswith(b"TOOLS")


def test_a_model_that_takes_one_call_at_a_time_is_not_given_two():
    bare = CALL_TEMPLATES["bare"].replace("<|turn|>", "<|im_start|>").replace("<|end|>", "<|im_end|>")
    one = '{"name": "add", "parameters": {}}'
    client, _, _ = client_of(f"{one}\n{one}", tokenizer__chat_template=bare)
    (choice,) = ask(client, tools=[ADD]).choices
    assert len(choice.message.tool_calls) == 1
    assert one in choice.message.content
