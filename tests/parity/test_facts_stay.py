"""What a person said stands in the prompt as it was said, for as long as it fits, with the templates and tokenizers of real models.

Names, corrections and deadlines of the first turns are looked for in the ids that reach the model, not in its answers.
"""

import asyncio
from dataclasses import replace

import pytest

from pyruntime.chat import ChatTemplate
from pyruntime.chat.marks import find_marks
from pyruntime.conversation import Options
from pyruntime.conversation.events import PromptFitted
from pyruntime.engine import Engine, open_model
from pyruntime.sampling import SamplingParams
from tests.conversation_lab import converse, prompt_ids, run
from tests.parity import known_tokenizers
from tests.tiny_model import ScriptedExecutor, open_tiny
from tooling import kernels

FACTS = (
    "My name is Zoë  O'Néill-Ångström (she/her), NOT zoe oneill.",
    "Correction: it is spelled Zoé, with an acute; the ë was wrong. I live in 東京都渋谷区 🗼.",
    "The deadline is 2031-02-28, 17:45 (UTC+05:30)\tand the code is A-0O1lI|<|im_end|>.",
)
PARAMS = SamplingParams(temperature=0)


def smollm2(default_model, shared):
    return open_model(default_model)


def qwen3(default_model, shared):
    own = known_tokenizers.load("qwen3").own
    template = ChatTemplate((shared / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text(), own.special_tokens, own)
    return replace(open_tiny(), tokenizer=own, template=template, marks=find_marks(template, own))


@pytest.fixture(params=[smollm2, qwen3], ids=lambda make: make.__name__)
def model(request, default_model):
    return request.param(default_model, request.getfixturevalue("shared") if request.param is qwen3 else None)


def conversation(model, context, turns, reserve=16):
    """A conversation in which the facts were given first, and the executor."""
    answer = [*model.tokenizer.encode("I see."), model.marks.turn_end]
    executor = ScriptedExecutor([answer] * (turns + 3), context=context, vocab_size=160_000)
    engine = Engine(replace(model, generation=replace(model.generation, stop_ids=frozenset({answer[-1]}))), executor)
    talk = converse(engine, Options(params=PARAMS, reserve=reserve))
    for number in range(turns):
        events = run(talk.send(FACTS[number] if number < len(FACTS) else f"Question {number}: and then?"))
    return talk, executor, events


def last_prompt(model, executor):
    """The last prompt's text, decoded from its ids; control tokens of the template are not in it, typed ones are."""
    ids = prompt_ids(executor)[-1]
    return texts_of(model, ids), ids


def texts_of(model, ids):
    """What stands between the control tokens of a prompt."""
    runs, control = [[]], set(model.tokenizer.control_ids.values())
    for token_id in ids:
        if token_id in control:
            runs.append([])
        else:
            runs[-1].append(token_id)
    return [model.tokenizer.decode(run_of_ids) for run_of_ids in runs]


@pytest.mark.parametrize("turns", [4, 10, 30])
def test_facts_of_the_first_turns_are_in_the_prompt_word_for_word_and_in_order(model, turns):
    _, executor, _ = conversation(model, 8192, turns)
    texts, _ = last_prompt(model, executor)
    assert [text for text in texts if any(fact in text for fact in FACTS)] == [f"user\n{fact}" for fact in FACTS]


def test_at_the_edge_of_the_budget_the_oldest_fact_is_in_the_prompt_and_one_token_less_leaves_its_turn_out(model):
    _, executor, events = conversation(model, 8192, 10)
    (fitted,) = (event for event in events if isinstance(event, PromptFitted))
    edge = fitted.prompt_tokens + fitted.reserve
    _, executor, events = conversation(model, edge, 10)
    assert f"user\n{FACTS[0]}" in last_prompt(model, executor)[0]
    assert len(prompt_ids(executor)[-1]) + 16 == edge

    talk, executor, events = conversation(model, edge - 1, 10)
    texts, _ = last_prompt(model, executor)
    assert not any(FACTS[0] in text for text in texts)
    assert [f"user\n{fact}" for fact in FACTS[1:]] == [text for text in texts if any(fact in text for fact in FACTS)]
    (fitted,) = (event for event in events if isinstance(event, PromptFitted))
    assert fitted.left_out == tuple(node.id for node in talk.tree.path[:2])


@pytest.mark.parametrize("edited", range(3))
def test_a_fact_is_gone_once_the_turn_that_held_it_is_edited_away(model, edited):
    talk, executor, _ = conversation(model, 8192, 10)
    old = [node for node in talk.tree.path if node.role == "user"][edited]
    run(talk.edit(old.id, "Forget it."))
    run(talk.send("What do you know?"))
    texts, ids = last_prompt(model, executor)
    assert [fact for fact in FACTS if any(fact in text for text in texts)] == list(FACTS[:edited])
    # Not a trace in the ids either: they are those of a conversation that never had it.
    fresh = [{"role": node.role, "content": node.text} for node in talk.tree.path[:-1]]
    assert ids == talk.engine.prompt(fresh)
    assert talk.tree.node(old.id).text == FACTS[edited]


# ------------------------------------------------------------------------------------------ the real model's own answers


def on_the_kernels(default_model, context=4096, tree=None):
    """A conversation with the real model, and the prompts that it is given."""
    kernels.build_native()
    engine = asyncio.run(Engine.load(default_model, executor="native", context=context))
    answer, prompts = engine.answer, []

    def noted(prompt, *args, **kwargs):
        prompts.append(list(prompt))
        return answer(prompt, *args, **kwargs)

    engine.answer = noted
    options = Options(params=replace(PARAMS, max_tokens=8), reserve=16)
    return converse(engine, options, tree, name=f"in {context}: "), prompts


def facts_in(talk, prompt):
    """The facts that a prompt has word for word, which must be what the cache begins with."""
    assert list(talk.engine.kv_tokens[: len(prompt)]) == prompt
    texts = texts_of(talk.engine.model, prompt)
    return [text.removeprefix("user\n") for text in texts if any(fact in text for fact in FACTS)]


def test_with_the_real_model_facts_stay_up_to_the_edge_of_the_budget_and_go_with_the_turn_that_held_them(default_model):
    talk, prompts = on_the_kernels(default_model)
    for number in range(30):
        run(talk.send(FACTS[number] if number < len(FACTS) else f"Question {number}: and then?"))
        if number + 1 in (4, 10, 30):
            assert facts_in(talk, prompts[-1]) == list(FACTS)
    asked = [node for node in talk.tree.path if node.role == "user"]

    edge = len(prompts[-1]) + 16
    for context, kept in ((edge, FACTS), (edge - 1, FACTS[1:])):
        narrow, given = on_the_kernels(default_model, context, talk.tree.before(asked[-1].id))
        run(narrow.send(asked[-1].text))
        assert facts_in(narrow, given[-1]) == list(kept)
        narrow.engine.close()

    for edited in (2, 1, 0):
        run(talk.edit(asked[edited].id, "Forget it."))
        run(talk.send("What do you know?"))
        assert facts_in(talk, prompts[-1]) == list(FACTS[:edited])
        fresh = [{"role": node.role, "content": node.text} for node in talk.tree.path[:-1]]
        assert prompts[-1] == talk.engine.prompt(fresh)
