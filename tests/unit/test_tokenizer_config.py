"""tokenizer_config.json: special tokens, chat templates, begin and end."""

from __future__ import annotations

import json

import pytest

from pyruntime.errors import FormatError
from pyruntime.text import Tokenizer
from pyruntime.text.tokenizer_config import TokenizerConfig, read_tokenizer_config
from tests.unit.test_tokenizer_json import tokenizer_file


def read(**keys):
    return read_tokenizer_config(json.dumps(keys).encode(), "tokenizer_config.json")


def test_an_empty_file_says_nothing():
    assert read() == TokenizerConfig({}, {}, None, None)


def test_a_token_is_a_text_or_an_object_that_has_it():
    told = {"__type": "AddedToken", "content": "<|end|>", "lstrip": False}
    assert read(eos_token=told, bos_token="<s>", pad_token=None).special_tokens == {
        "bos_token": "<s>",
        "eos_token": "<|end|>",
    }


def test_a_models_own_tokens_come_after_the_common_ones():
    config = read(
        image_token="<image>",
        eos_token="</s>",
        add_bos_token=True,
        additional_special_tokens=["<x>"],
        extra_special_tokens={"audio_token": {"content": "<audio>"}, "none_token": None},
    )
    assert list(config.special_tokens.items()) == [
        ("eos_token", "</s>"),
        ("image_token", "<image>"),
        ("audio_token", "<audio>"),
    ]
    assert (config.add_bos_token, config.add_eos_token) == (True, None)


def test_a_template_is_one_or_several_with_names():
    assert read(chat_template="x").chat_templates == {"default": "x"}
    named = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    assert read(chat_template=named).chat_templates == {"default": "d", "tool_use": "t"}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"[]", "JSON"),
        (b'{"a": NaN}', "JSON"),
        (b'{"chat_template": 5}', "chat_template"),
        (b'{"chat_template": ["x"]}', "chat_template[0]"),
        (b'{"chat_template": [{"name": "default"}]}', "chat_template[0].template"),
        (b'{"chat_template": [{"name": "a", "template": ""}, {"name": "a", "template": ""}]}', "chat_template[1].name"),
        (b'{"chat_template": "\\ud800"}', "chat_template"),
        (b'{"eos_token": 2}', "eos_token"),
        (b'{"eos_token": {"text": "x"}}', "eos_token.content"),
        (b'{"extra_special_tokens": {"x": []}}', "extra_special_tokens.x"),
        (b'{"add_bos_token": "yes"}', "add_bos_token"),
    ],
)
def test_a_bad_file_is_refused_naming_the_place(data, field):
    with pytest.raises(FormatError) as caught:
        read_tokenizer_config(data, "tokenizer_config.json")
    assert (caught.value.file, caught.value.field) == ("tokenizer_config.json", field)


def test_a_tokenizer_takes_its_names_from_the_configuration():
    config = read(bos_token="a", eos_token="<|end|>", unk_token="<missing>", add_bos_token=True)
    named = Tokenizer.from_tokenizer_json(tokenizer_file(), config)
    assert named.special_tokens == {"bos_token": "a", "eos_token": "<|end|>", "unk_token": "<missing>"}
    assert named.special_ids == {"bos_token": ord("a"), "eos_token": 258}
    assert (named.bos_id, named.eos_id, named.add_bos) == (ord("a"), 258, True)
    assert not Tokenizer.from_tokenizer_json(tokenizer_file()).special_tokens
