"""The shared cases of what goes into a prompt and what of it the cache already holds, with real tokenizers and templates."""

import json

import pytest

from pyruntime.answer import KVState
from pyruntime.chat import ChatTemplate
from pyruntime.chat.budget import fit
from pyruntime.chat.messages import move_inline_thinking
from pyruntime.engine import open_model
from pyruntime.errors import ContextOverflowError
from tests.parity import known_tokenizers
from tests.tiny_model import ScriptedExecutor


@pytest.fixture(scope="module")
def templates(shared, default_model):
    """Name → the template with its tokenizer."""
    own = known_tokenizers.load("qwen3").own
    source = (shared / "templates" / "Qwen-Qwen3-0.6B.jinja").read_text()
    return {"qwen3": ChatTemplate(source, own.special_tokens, own), "smollm2": open_model(default_model).template}


def rows(shared, name):
    return [json.loads(line) for line in (shared / "corpus" / name).read_text().splitlines()]


def test_every_case_of_truncation_keeps_what_it_says(shared, templates):
    cases = rows(shared, "truncation_cases.jsonl")
    assert len(cases) >= 37
    for case in cases:
        template, messages, tools = templates[case["model"]], case["messages"], case.get("tools")

        def encode(kept, template=template, tools=tools):
            return template.encode(kept, tools, add_generation_prompt=True)

        assert len(encode(messages)) == case["full_tokens"], case["id"]
        if "expected_error" in case:
            with pytest.raises(ContextOverflowError, match="too long") as caught:
                fit(messages, encode, context=case["n_ctx"], reserve=case["reserve"])
            expected = case["expected_error"]
            assert (caught.value.needed, caught.value.have) == (expected["needed"], expected["have"]), case["id"]
        else:
            fitted = fit(messages, encode, context=case["n_ctx"], reserve=case["reserve"])
            assert list(fitted.left_out) == case["dropped"], case["id"]
            assert len(fitted.prompt) == case["prompt_tokens"], case["id"]
            assert fitted.prompt == encode([messages[i] for i in case["keep"]]), case["id"]


def test_every_case_of_reuse_keeps_the_prefix_it_says(shared, templates):
    cases = rows(shared, "kv_prefix_cases.jsonl")
    assert len(cases) >= 20
    for case in cases:
        template, tools = templates[case["model"]], case.get("tools")
        first, second = (
            template.encode(
                move_inline_thinking(case[f"messages_{i}"], ("<think>", "</think>")),
                tools,
                add_generation_prompt=True,
                **case.get(f"kwargs_{i}", {}),
            )
            for i in (1, 2)
        )
        assert (first, second) == (case["prompt_ids_1"], case["prompt_ids_2"]), case["id"]
        executor = ScriptedExecutor([], context=4096, vocab_size=200_000)
        kv = KVState(executor)
        end = [turn_end(case)] if case["end_token_in_cache"] else []
        kv.prefill([*first, *case["generated_ids"], *end])
        assert kv.keep_prefix_of(second) == case["reusable"], case["id"]
        assert list(kv.tokens) == executor.tokens == second[: case["reusable"]]
        assert len(second) - case["reusable"] == case["to_compute"], case["id"]


def turn_end(case):
    return {"qwen3": 151645, "smollm2": 2}[case["model"]]
