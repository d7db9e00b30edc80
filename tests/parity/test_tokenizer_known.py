"""The tokenizers of real models against the reference: the record, the shared corpus, fresh random texts and ids.

The seed of a failure is in its report; `TINYPYLM_SEED` gives it again, and `python -m tests.parity fuzz` does more of it.
"""

from __future__ import annotations

import json
import os
import random

import pytest

from tests.parity import fuzz, record
from tests.parity.acceptance_texts import acceptance_texts, whole
from tests.parity.known_tokenizers import NAMES, load, tokenizer_file

FRESH_TEXTS = 400
# The same file must give the same ids for ever.
QWEN3_SHA256 = "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4"


@pytest.fixture(scope="module", params=NAMES)
def known(request):
    """One tokenizer after the other: together they would take gigabytes."""
    return load(request.param)


def rows(shared, name):
    return [json.loads(line) for line in (shared / "corpus" / name).read_text(encoding="utf-8").splitlines()]


def test_fresh_random_texts_and_ids_give_what_the_reference_gives(known):
    seed = int(os.environ.get("TINYPYLM_SEED", random.randrange(1 << 32)))
    generator = random.Random(f"{seed} {known.name}")
    found = [*fuzz.differences(known, generator, FRESH_TEXTS), *fuzz.id_differences(known, generator, FRESH_TEXTS)]
    assert not found, f"TINYPYLM_SEED={seed}\n{fuzz.describe(found[:5])}"


def test_no_control_token_comes_from_typed_text(known):
    control = {token_id for text, token_id in known.own.control_ids.items() if len(text) > 1 and not text.isspace()}
    for text in ("".join(known.own.control_ids), " ".join(known.own.control_ids), *known.own.control_ids):
        assert not control.intersection(known.own.encode(text)), text


@pytest.mark.parametrize("known", record.RECORDED, indirect=True)
def test_the_recorded_texts_have_the_references_ids_and_text(known):
    recorded = record.read(known.name)
    assert recorded["tokenizer_sha256"] == known.sha256
    texts = acceptance_texts(known.own.control_ids)
    expected = [(name, text) for name, some in texts.items() for text in some]
    assert [(case["case"], case["text"]) for case in recorded["cases"]] == expected
    assert len(texts) == 30
    assert record.own_differences(known, recorded) == []


@pytest.mark.parametrize("known", [name for name in NAMES if name not in ("qwen2_5", "mistral_nemo")], indirect=True)
def test_every_row_of_the_shared_corpus_has_its_ids(known, shared):
    seen = 0
    cases = {case["id"]: case for case in rows(shared, "tokenizer_cases.jsonl")}
    for case in cases.values():
        if known.name in case["ids"]:
            seen += 1
            text = whole(case.get("text", case.get("text_parts")))
            typed = case.get("ids_as_user_text", case["ids"])[known.name]
            assert known.own.encode_with_control(text) == case["ids"][known.name], case["id"]
            assert known.own.encode(text) == typed, case["id"]
            if f"decoded_{known.name}_sha256" not in case:
                assert known.own.decode(typed) == case.get(f"decoded_{known.name}", text), case["id"]
    for case in rows(shared, "tokenizer_cases_extra.jsonl"):
        if known.name in case["ids"]:
            seen += 1
            text = whole(cases[case["id"]].get("text", cases[case["id"]].get("text_parts")))
            assert known.own.encode_with_control(text) == case["ids"][known.name], case["id"]
    assert seen in (394, 417)


def test_lone_surrogates_of_the_shared_corpus_follow_the_rule(known, shared):
    for case in rows(shared, "surrogate_cases.jsonl"):
        text = "".join(map(chr, case["utf16_units"]))
        assert known.own.encode(text) == case["ids"].get(known.name, known.own.encode(case["text_after_rule"]))


def test_streams_of_the_shared_corpus_give_their_text_piece_by_piece(shared):
    qwen3 = load("qwen3").own
    cases = rows(shared, "stream_cases.jsonl")
    assert len(cases) == 119
    for case in cases:
        stream = qwen3.stream()
        chunks = [stream.push(token_id) for token_id in case["ids"]]
        assert (chunks, stream.flush()) == (case["chunks"], case["flush"]), case["id"]
        assert qwen3.decode(case["ids"]) == case["text"], case["id"]


def test_the_qwen3_file_is_the_one_that_is_pinned():
    known = load("qwen3")
    assert known.sha256 == QWEN3_SHA256
    assert tokenizer_file("qwen3").stat().st_size == 11_422_654
    assert known.own.special_tokens == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    assert (known.own.eos_id, known.own.add_bos) == (151645, False)
    assert list(known.config.chat_templates) == ["default"]


def test_a_difference_is_made_as_small_as_it_can_be():
    assert fuzz.shrink("some é text with 12 in it", lambda text: "é" in text and "2" in text) == "é2"
    assert fuzz.shrink("xyz", lambda text: len(text) > 1) == "aa"
