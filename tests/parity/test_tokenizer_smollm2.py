"""What is special to the default model's tokenizer; `test_tokenizer_known` compares it with the reference."""

from __future__ import annotations

import pytest

from tests.parity import record
from tests.parity.acceptance_texts import CONTROL_TOKENS
from tests.parity.known_tokenizers import load


@pytest.fixture(scope="module")
def smollm2():
    return load("smollm2").own


def test_the_reference_ids_were_made_from_the_model_that_is_tested():
    from tooling.pins import read_pins

    assert record.read("smollm2")["tokenizer_sha256"] == read_pins().model.sha256


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
