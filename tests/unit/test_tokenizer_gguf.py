"""The tokenizer's part of a GGUF file: what is refused, and by which words."""

from __future__ import annotations

import pytest

from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.text.gguf_reader import spec_from_gguf
from tests.tiny_tokenizer import CONTROL, tokenizer_metadata

BAD = {
    "no model": ({"model": None}, "model", "missing"),
    "tokens missing": ({"tokens": None}, "tokens", "missing"),
    "tokens that are no array": ({"tokens": "abc"}, "tokens", "an array, each item a string"),
    "tokens that are no strings": ({"tokens": [1, 2]}, "tokens", "an array, each item a string"),
    "no tokens": ({"tokens": [], "token_type": []}, "tokens", "empty"),
    "a token twice": ({"tokens": ["a", "b", "a"], "token_type": [1, 1, 1]}, "tokens", "ids 0 and 2 are both 'a'"),
    "an added token twice": ({"tokens": ["a", "<x>", "<x>"], "token_type": [1, 3, 3]}, "tokens", "ids 1 and 2"),
    "no types": ({"token_type": None}, "token_type", "missing"),
    "types that are no numbers": ({"token_type": ["1"]}, "token_type", "an array, each item an integer"),
    "fewer types than tokens": ({"token_type": [1]}, "token_type", "1 types for 257 tokens"),
    "control tokens without end": (
        {"tokens": [f"<{i}>" for i in range(16_385)], "token_type": [3] * 16_385},
        "token_type",
        "at most 16384",
    ),
    "no merges": ({"merges": None}, "merges", "missing"),
    "merges that are pairs": ({"merges": [["a", "b"]]}, "merges", "an array, each item a string"),
    "a merge of a missing token": ({"merges": ["a b", "q zz"]}, "merges", "merge 0: 'ab' is not a token"),
    "no pre-tokenizer": ({"pre": None}, "pre", "missing"),
    "a pre-tokenizer that is a number": ({"pre": 3}, "pre", "a string"),
    "an end token outside": ({"eos_token_id": 4096}, "eos_token_id", "0 to 256"),
    "a begin token below zero": ({"bos_token_id": -1}, "bos_token_id", "0 to 256"),
    "an end token that is a text": ({"eos_token_id": "<|end|>"}, "eos_token_id", "an integer"),
    "an end token that is a boolean": ({"eos_token_id": True}, "eos_token_id", "an integer"),
    "a begin flag that is a number": ({"add_bos_token": 1}, "add_bos_token", "a boolean"),
}
UNSUPPORTED = {
    "another kind of tokenizer": ({"model": "llama"}, "model", "gpt2"),
    "another pre-tokenizer": ({"pre": "tekken"}, "pre", "gpt-2, smollm, qwen2, llama-bpe"),
    "a space put first": ({"add_space_prefix": True}, "add_space_prefix", "false"),
    "byte tokens": ({"tokens": ["a", "<0x00>"], "token_type": [1, 6]}, "token_type", "token 1 has type 6"),
}


@pytest.mark.parametrize(
    ("changes", "key", "words", "error"),
    [
        pytest.param(*case, error, id=name)
        for cases, error in ((BAD, FormatError), (UNSUPPORTED, UnsupportedError))
        for name, case in cases.items()
    ],
)
def test_a_bad_tokenizer_is_refused_naming_file_key_and_what_is_allowed(changes, key, words, error):
    with pytest.raises(error) as caught:
        spec_from_gguf(tokenizer_metadata(**changes), "tiny.gguf")
    assert type(caught.value) is error
    assert (caught.value.file, caught.value.field) == ("tiny.gguf", f"tokenizer.ggml.{key}")
    assert words in str(caught.value)


def test_what_text_can_become_leaves_out_added_and_unused_and_empty_tokens():
    tokens, types = ["a", "<s>", "", "[PAD]", "b"], [1, CONTROL, 1, 5, 1]
    spec = spec_from_gguf(tokenizer_metadata(tokens=tokens, token_type=types), "tiny.gguf")
    assert spec.vocabulary.ids == {b"a": 0, b"b": 4}
    assert spec.vocabulary.tokens == [b"a", b"<s>", None, None, b"b"]
    assert [(token.text, token.id, token.special) for token in spec.added] == [("<s>", 1, True)]


def test_the_unknown_token_is_a_control_token():
    spec = spec_from_gguf(tokenizer_metadata(tokens=["a", "<unk>"], token_type=[1, 2], unknown_token_id=1), "tiny.gguf")
    assert [(token.text, token.special) for token in spec.added] == [("<unk>", True)]


def test_the_metadata_are_left_as_they_were():
    metadata = tokenizer_metadata(tokens=["a", "[PAD]"], token_type=[1, 5])
    spec_from_gguf(metadata, "tiny.gguf")
    assert metadata["tokenizer.ggml.tokens"] == ["a", "[PAD]"]
