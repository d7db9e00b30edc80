"""SmolLM2's tokenizer against the reference: the acceptance cases, the shared corpus, random texts."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.text import Tokenizer
from tests.parity.acceptance_texts import ACCEPTANCE_TEXTS, CONTROL_TOKENS, whole
from tests.parity.random_text import random_text
from tests.parity.reference_tokenizer import reference_tokenizer

REFERENCE = json.loads((Path(__file__).parent / "data" / "smollm2_tokenizer.json").read_text(encoding="ascii"))
RANDOM_TEXTS = 1500


@pytest.fixture(scope="module")
def metadata(default_model):
    return run_without_waiting(read_gguf(FileSource(default_model))).metadata


@pytest.fixture(scope="module")
def smollm2(metadata):
    return Tokenizer.from_metadata(metadata, "smollm2.gguf")


def rows(shared, name):
    return [json.loads(line) for line in (shared / "corpus" / name).read_text(encoding="utf-8").splitlines()]


def test_the_reference_ids_were_made_from_the_model_that_is_tested():
    from tooling.pins import read_pins

    assert REFERENCE["tokenizer_sha256"] == read_pins().model.sha256


def test_the_reference_ids_are_of_the_texts_in_this_repository():
    texts = [(name, text) for name, texts in ACCEPTANCE_TEXTS.items() for text in texts]
    assert [(case["case"], case["text"]) for case in REFERENCE["cases"]] == texts
    assert len(ACCEPTANCE_TEXTS) == 30


@pytest.mark.parametrize("name", ACCEPTANCE_TEXTS)
def test_an_acceptance_case_has_the_references_ids_and_text(smollm2, name):
    for case in REFERENCE["cases"]:
        if case["case"] == name:
            text = whole(case["text"])
            ids = smollm2.encode(text)
            assert ids == case["ids"]
            assert smollm2.encode_with_control(text) == case.get("ids_with_control", case["ids"])
            assert smollm2.decode(ids) == case.get("decoded", text)


def test_control_tokens_are_those_of_the_file_and_never_come_from_typed_text(smollm2):
    assert tuple(smollm2.control_ids) == CONTROL_TOKENS
    typed = smollm2.encode("".join(CONTROL_TOKENS))
    assert not set(typed) & set(smollm2.control_ids.values())


def test_the_file_names_its_special_tokens(smollm2):
    assert smollm2.special_tokens == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }
    assert (smollm2.vocab_size, smollm2.eos_id, smollm2.add_bos) == (49152, 2, False)


def test_the_bytes_without_a_token_are_counted(smollm2):
    missing = bytes([0x04, 0x06, 0x13, 0x14, 0x16, 0x1D]).decode()
    assert smollm2.dropped_bytes(f"a{missing}b\U00040000\U000bffff") == 8
    assert smollm2.dropped_bytes("plain text, 你好") == 0


def test_every_row_of_the_shared_corpus_has_its_ids(smollm2, shared):
    cases = rows(shared, "tokenizer_cases.jsonl")
    assert len(cases) == 417
    for case in cases:
        text = whole(case.get("text", case.get("text_parts")))
        as_user_text = case.get("ids_as_user_text", case["ids"])["smollm2"]
        assert smollm2.encode_with_control(text) == case["ids"]["smollm2"], case["id"]
        assert smollm2.encode(text) == as_user_text, case["id"]
        assert smollm2.decode(as_user_text) == case.get("decoded_smollm2", text), case["id"]


def test_lone_surrogates_of_the_shared_corpus_follow_the_rule(smollm2, shared):
    for case in rows(shared, "surrogate_cases.jsonl"):
        text = "".join(map(chr, case["utf16_units"]))
        assert smollm2.encode(text) == case["ids"]["smollm2"], case["id"]
        assert smollm2.decode(smollm2.encode(case["text_after_rule"])) == case["text_after_rule"], case["id"]


def test_random_texts_have_the_references_ids_and_text(smollm2, metadata):
    """Other texts each time; the seed is in the report of a failure, and can be given again."""
    seed = int(os.environ.get("TINYPYLM_SEED", random.randrange(1 << 32)))
    generator = random.Random(seed)
    typed, written = (reference_tokenizer(metadata, control=control) for control in (False, True))
    for number in range(RANDOM_TEXTS):
        text = random_text(generator)
        shown = f"TINYPYLM_SEED={seed}, text {number}: {text!a}"
        ids = typed.encode(text, add_special_tokens=False).ids
        assert smollm2.encode(text) == ids, shown
        assert smollm2.encode_with_control(text) == written.encode(text, add_special_tokens=False).ids, shown
        assert smollm2.decode(ids) == typed.decode(ids, skip_special_tokens=True), shown


def test_random_ids_decode_as_the_reference_does(smollm2, metadata):
    typed = reference_tokenizer(metadata, control=False)
    generator = random.Random(49152)
    for _ in range(2000):
        ids = [generator.randrange(17, 49152) for _ in range(generator.randrange(1, 12))]
        assert smollm2.decode(ids) == typed.decode(ids, skip_special_tokens=True), ids
