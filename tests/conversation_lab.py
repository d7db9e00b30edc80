"""Conversations with a model whose answers a test chooses: ids are n1, n2, …, and the clock counts."""

from __future__ import annotations

import asyncio
from itertools import count, pairwise

from pyruntime.conversation import Options, Session
from pyruntime.conversation.states import TRANSITIONS, StateChanged
from pyruntime.engine import Engine
from pyruntime.events import Delta, ReasoningDelta
from pyruntime.sampling import SamplingParams
from tests.tiny_model import IM_END, ScriptedExecutor, open_tiny

# Thinking of earlier turns is not sent again, as in Qwen3; tools are offered and called as JSON.
TEMPLATE = (
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% if tools %}<|im_start|>tools\n{{ tools|tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.index0 > ns.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    '<call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}\n</call>'
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
GREEDY = SamplingParams(temperature=0)
OPTIONS = Options(params=GREEDY)


def open_model(**changes):
    return open_tiny(**{"tokenizer__chat_template": TEMPLATE, **changes})


def ids(answer):
    """The ids of an answer given as text, or as texts and ids."""
    parts = [answer] if isinstance(answer, str | int) else answer
    return [i for part in parts for i in (part.encode() if isinstance(part, str) else [part])]


def scripted(*answers, context=4096, end=(IM_END,), model=None):
    """An engine that gives these answers, and its executor."""
    executor = ScriptedExecutor([[*ids(answer), *end] for answer in answers], context=context)
    return Engine(model or open_model(), executor), executor


def session(*answers, options=OPTIONS, tree=None, queue=False, look_ahead=False, **kwargs):
    """A session whose model gives these answers, and the executor."""
    engine, executor = scripted(*answers, **kwargs)
    return converse(engine, options=options, tree=tree, queue=queue, look_ahead=look_ahead), executor


def converse(engine, options=OPTIONS, tree=None, name="n", **kwargs):
    numbers, ticks = count(1), count(1000)
    return Session(engine, tree, options, **kwargs, new_id=lambda: f"{name}{next(numbers)}", now=lambda: next(ticks))


async def collect(request, on_event=lambda event: None):
    events = []
    async for event in request:
        events.append(event)
        on_event(event)
    return events


def run(request, on_event=lambda event: None):
    """All events of a request; `on_event` is called with each."""
    return asyncio.run(collect(request, on_event))


def states(events):
    """The states a request went through; each transition must be legal and follow from the one before."""
    changes = [event for event in events if isinstance(event, StateChanged)]
    for one, next_one in pairwise(changes):
        assert one.now == next_one.before
    for change in changes:
        assert change.now in TRANSITIONS[change.before]
    return " ".join(change.now for change in changes)


def shown_text(events):
    return "".join(event.text for event in events if isinstance(event, Delta))


def shown_thinking(events):
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def path(talk):
    """Role and text of the messages shown."""
    return [(node.role, node.text) for node in talk.tree.path]


def prompt_ids(executor):
    """The ids of every prompt that was given to the model."""
    found, held, is_new = [], [], False
    for call, given in executor.story:
        if call == "cut":
            del held[given[0] :]
            is_new = True
        else:
            held += given
            if call == "forward" and is_new:
                found.append(list(held))
                is_new = False
    return found


def prompts(executor, model):
    """Every prompt that was given to the model, as text with its control tokens spelled."""
    control = {token_id: text for text, token_id in model.tokenizer.control_ids.items()}
    return [spelled(ids, control) for ids in prompt_ids(executor)]


def spelled(token_ids, control):
    """Ids as text, control tokens too."""
    pieces, run_of_bytes = [], bytearray()
    for token_id in token_ids:
        if token_id in control:
            pieces += [run_of_bytes.decode(errors="replace"), control[token_id]]
            run_of_bytes = bytearray()
        else:
            run_of_bytes.append(token_id)
    return "".join([*pieces, run_of_bytes.decode(errors="replace")])
