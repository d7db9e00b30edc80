"""tokenizer.json: what is read, what is refused, and by which words."""

from __future__ import annotations

import copy
import json

import pytest

from pyruntime.errors import FormatError, UnsupportedError
from pyruntime.text import Tokenizer
from pyruntime.text.byte_alphabet import CHARACTERS

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
END = {
    "id": 258,
    "content": "<|end|>",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": True,
}


def tokenizer_file(**changes):
    """A small tokenizer.json with some of its keys changed; "model.KEY" stands for a key of the model."""
    vocab = {character: byte for byte, character in enumerate(CHARACTERS)} | {"ab": 256, "abc": 257}
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [dict(END)],
        "normalizer": None,
        "pre_tokenizer": dict(BYTE_LEVEL),
        "post_processor": None,
        "decoder": dict(BYTE_LEVEL),
        "model": {"type": "BPE", "vocab": vocab, "merges": ["a b", "ab c"]},
    }
    for key, value in copy.deepcopy(changes).items():
        part, name = (file["model"], key.removeprefix("model_")) if key.startswith("model_") else (file, key)
        if value is ...:
            del part[name]
        else:
            part[name] = value
    return json.dumps(file).encode()


def load(**changes):
    return Tokenizer.from_tokenizer_json(tokenizer_file(**changes))


def added(content, **flags):
    return {**END, "content": content, **flags}


def sequence(depth):
    step = {"type": "NFC"}
    for _ in range(depth):
        step = {"type": "Sequence", "normalizers": [step]}
    return step


def template(*single, **special_tokens):
    return {
        "type": "TemplateProcessing",
        "single": list(single),
        "pair": [],
        "special_tokens": {name: {"id": name, "ids": ids, "tokens": [name]} for name, ids in special_tokens.items()},
    }


TEXT = {"Sequence": {"id": "A", "type_id": 0}}
LLAMA_DECODER = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]


def test_text_becomes_ids_and_comes_back():
    read = load()
    assert read.encode("abc ab<|end|>") == [257, 32, 256, *b"<|end|>"]
    assert read.encode_with_control("abc<|end|>x") == [257, 258, ord("x")]
    assert read.decode([257, 258, 32, 256]) == "abc ab"
    assert (read.vocab_size, dict(read.control_ids)) == (259, {"<|end|>": 258})


def test_it_is_read_from_a_path_or_from_bytes(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(tokenizer_file())
    for source in (path, str(path), tokenizer_file(), memoryview(tokenizer_file())):
        assert Tokenizer.from_tokenizer_json(source).encode("abc") == [257]


def test_merges_are_strings_or_pairs():
    assert load(model_merges=[["a", "b"], ["ab", "c"]]).encode("abc") == load().encode("abc")


def test_old_files_do_not_say_that_they_are_bpe():
    assert load(model_type=...).encode("abc") == [257]


def test_truncation_and_padding_are_settings_for_batches():
    limited = {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    assert load(truncation=limited, padding={"strategy": "BatchLongest"}).encode("abcabc") == [257, 257]


def test_what_a_post_processor_would_add_is_told_and_not_added():
    bos = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    eos = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    inner, outer = template(bos, TEXT, eos, **{"<s>": [1], "</s>": [2, 3]}), template(bos, TEXT, **{"<s>": [4]})
    one = load(post_processor=inner)
    assert (one.prefix_ids, one.suffix_ids, one.add_bos, one.encode("abc")) == ((1,), (2, 3), True, [257])
    both = load(post_processor={"type": "Sequence", "processors": [BYTE_LEVEL, inner, outer]})
    assert (both.prefix_ids, both.suffix_ids) == ((4, 1), (2, 3))
    assert (load().prefix_ids, load().suffix_ids, load().add_bos) == ((), (), False)


def test_a_tokenizer_of_characters_falls_back_to_bytes_and_decodes_them_together():
    vocab = {character: token_id for token_id, character in enumerate("▁ab")}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)} | {"▁a": 259}
    read = load(
        added_tokens=[],
        normalizer={
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        pre_tokenizer=None,
        decoder={"type": "Sequence", "decoders": LLAMA_DECODER},
        model_vocab=vocab,
        model_merges=["▁ a"],
        model_byte_fallback=True,
    )
    ids = read.encode("ab é")
    assert ids == [259, 2, 0, 3 + 0xC3, 3 + 0xA9]
    assert read.decode(ids) == "ab é"
    stream = read.stream()
    assert [stream.push(token_id) for token_id in [*ids, 2]] == ["a", "b", " ", "", "", "éb"]
    # Bytes that are no text together are one U+FFFD each, whatever they would be alone.
    assert read.decode([3 + 0xC3, 3 + 0xA9, 3 + 0xFF]) == "\ufffd" * 3


def test_unknown_characters_are_the_unknown_token_fused_or_not():
    changes = {"added_tokens": [], "pre_tokenizer": None, "decoder": {"type": "Fuse"}}
    vocab = {"a": 0, "<unk>": 1}
    for fuse, ids in ((False, [1, 1, 0, 1]), (True, [1, 0, 1])):
        read = load(**changes, model_vocab=vocab, model_merges=[], model_unk_token="<unk>", model_fuse_unk=fuse)
        assert (read.encode("xyaz"), read.dropped_bytes("xyaz")) == (ids, 0)
    read = load(**changes, model_vocab=vocab, model_merges=[])
    assert (read.encode("xéaz"), read.dropped_bytes("xéaz")) == ([0], 4)


def test_a_byte_without_a_token_is_the_unknown_token():
    vocab = {"a": 0, "b": 1, "ab": 2, "<unk>": 3}
    read = load(added_tokens=[], model_vocab=vocab, model_merges=["a b"], model_unk_token="<unk>", model_fuse_unk=True)
    assert read.encode("abéab") == [2, 3, 2]


@pytest.mark.parametrize(
    ("flags", "text", "expected"),
    [
        ({}, "a <|end|> b", ["a", " ", 258, " ", "b"]),
        ({"lstrip": True}, "a \t<|end|> b", ["a", 258, " ", "b"]),
        ({"rstrip": True}, "a <|end|>\u3000 b", ["a", " ", 258, "b"]),
        ({"rstrip": True, "lstrip": True}, "<|end|>  <|end|>", [258, 258]),
        ({"single_word": True}, "a<|end|> <|end|>_ <|end|>!", [*"a<|end|> <|end|>_ ", 258, "!"]),
        ({"normalized": True, "special": False}, "a<|end|>b", ["a", 258, "b"]),
    ],
)
def test_an_added_token_is_found_as_its_flags_say(flags, text, expected):
    plain = [one if isinstance(one, int) else ord(one) for one in expected]
    assert load(added_tokens=[{**END, **flags}], model_merges=[]).encode_with_control(text) == plain


def test_white_space_that_was_taken_along_is_no_token_of_its_own():
    """The reference gives one token here; if the second did not take along what is before it, there would be two."""
    both = load(added_tokens=[added("\t", lstrip=True, rstrip=True)])
    behind = load(added_tokens=[added("\t", rstrip=True)])
    assert both.encode_with_control("\t\t") == [258]
    assert behind.encode_with_control("\t\t") == [258, 258]


def test_a_normalised_token_is_found_in_normalised_text():
    changes = {"added_tokens": [added("s\u0323\u0307", normalized=True, special=False)], "normalizer": {"type": "NFC"}}
    read = load(**changes)
    for text in ("xs\u0323\u0307", "xs\u0307\u0323", "x\u1e69"):
        assert read.encode_with_control(text) == [ord("x"), 258]
    assert read.decode([258]) == "\u1e69"


def test_white_space_with_a_token_of_its_own_is_text_from_anywhere():
    read = load(added_tokens=[added("  ", special=False), added("<|x|>", id=259)])
    assert read.encode("ab  ab<|x|>") == [256, 258, 256, *b"<|x|>"]
    assert read.encode_with_control("ab  ab<|x|>") == [256, 258, 256, 259]


def test_a_control_token_is_out_of_reach_even_when_it_is_in_the_vocabulary():
    vocab = {"a": 0, "b": 1, "ab": 2}
    read = load(
        model_vocab=vocab, model_merges=[], model_ignore_merges=True, added_tokens=[added("ab", id=2, single_word=True)]
    )
    assert read.encode("ab") == [0, 1]
    assert read.encode_with_control("ab") == [2]
    with pytest.raises(FormatError, match=r"model.merges\[0\]: 'ab' is not a token"):
        load(model_vocab=vocab, model_merges=["a b"], added_tokens=[added("ab", id=2)])


BAD = {
    "no JSON": (b"{", "JSON", "not a JSON text"),
    "a list": (b"[]", "JSON", "allowed: an object"),
    "a byte-order mark": (b"\xef\xbb\xbf" + tokenizer_file(), "JSON", "not a JSON text"),
    "no model": (tokenizer_file(model=...), "model", "missing"),
    "no vocabulary": (tokenizer_file(model_vocab=...), "model.vocab", "missing"),
    "an empty vocabulary": (tokenizer_file(model_vocab={}), "model.vocab", "empty"),
    "a vocabulary that is a list": (tokenizer_file(model_vocab=["a"]), "model.vocab", "an object"),
    "a huge id": (tokenizer_file(model_vocab={"a": 10**9}), "model.vocab", "'a' has the id 1000000000"),
    "a negative id": (tokenizer_file(model_vocab={"a": -1}), "model.vocab", "0 to 2097151"),
    "an id that is true": (tokenizer_file(model_vocab={"a": True}), "model.vocab", "'a' has the id True"),
    "an id twice": (tokenizer_file(model_vocab={"a": 0, "b": 0}), "model.vocab", "'a' and 'b' have the same id 0"),
    "half a surrogate pair": (tokenizer_file(model_vocab={"\ud800": 0}), "model.vocab", "half a surrogate pair"),
    "merges that are null": (tokenizer_file(model_merges=None), "model.merges", "a list"),
    "merges of two kinds": (tokenizer_file(model_merges=["a b", ["a", "b"]]), "model.merges", "not all alike"),
    "a merge of numbers": (tokenizer_file(model_merges=[[1, 2]]), "model.merges[0]", "not strings"),
    "a merge of three": (tokenizer_file(model_merges=["a b", "a b c"]), "model.merges[1]", "3 parts"),
    "a merge of nothing known": (tokenizer_file(model_merges=["a b", "q z"]), "model.merges[1]", "'qz' is not a token"),
    "an unknown token that is none": (tokenizer_file(model_unk_token="<unk>"), "model.unk_token", "<unk>"),
    "an added token without text": (
        tokenizer_file(added_tokens=[added("")]),
        "added_tokens[0].content",
        "0 characters",
    ),
    "an added token twice": (
        tokenizer_file(added_tokens=[END, {**END, "id": 259}]),
        "added_tokens[1].content",
        "added before",
    ),
    "an added token with another id": (
        tokenizer_file(added_tokens=[{**END, "id": 300}]),
        "added_tokens[0].id",
        "allowed: 258",
    ),
    "an added token without flags": (
        tokenizer_file(added_tokens=[{"id": 258, "content": "<x>"}]),
        "added_tokens[0].single_word",
        "missing",
    ),
    "added tokens that are texts": (tokenizer_file(added_tokens=["x"]), "added_tokens[0]", "an object"),
    "a template of an unknown token": (
        tokenizer_file(post_processor=template({"SpecialToken": {"id": "<s>", "type_id": 0}}, TEXT)),
        "post_processor.single[0].SpecialToken.id",
        "not among",
    ),
    "a template of an unknown id": (
        tokenizer_file(post_processor=template({"SpecialToken": {"id": "x", "type_id": 0}}, TEXT, x=[900])),
        "post_processor.special_tokens.x.ids",
        "0 to 258",
    ),
    "a behaviour that is a number": (
        tokenizer_file(pre_tokenizer={"type": "Split", "pattern": {"String": "a"}, "behavior": 1, "invert": False}),
        "pre_tokenizer.behavior",
        "a string",
    ),
}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
UNSUPPORTED = {
    "another model": ({"model_type": "Unigram"}, "model.type", "BPE"),
    "dropout": ({"model_dropout": 0.1}, "model.dropout", "none"),
    "a prefix": ({"model_continuing_subword_prefix": "##"}, "model.continuing_subword_prefix", "none"),
    "a suffix": ({"model_end_of_word_suffix": "</w>"}, "model.end_of_word_suffix", "none"),
    "an unknown key of the model": ({"model_magic": 1}, "model.magic", "1 is not known"),
    "an unknown key of the file": ({"magic": [1]}, "magic", "[1] is not known"),
    "another normalizer": ({"normalizer": {"type": "Lowercase"}}, "normalizer.type", "NFC, NFD, NFKC, NFKD"),
    "a normalizer deep down": ({"normalizer": sequence(20)}, "normalizer" + ".normalizers[0]" * 8, "8 levels"),
    "a hundred normalizers": (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}] * 100}},
        "normalizer.normalizers[64].type",
        "64 steps",
    ),
    "another pre-tokenizer": ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer.type", "Split, ByteLevel"),
    "a pattern that takes for ever": ({"pre_tokenizer": SPLIT}, "pre_tokenizer.pattern.Regex", "It has ("),
    "an empty text to split at": (
        {"pre_tokenizer": {**SPLIT, "pattern": {"String": ""}}},
        "pre_tokenizer.pattern.String",
        "empty",
    ),
    "another behaviour": ({"pre_tokenizer": {**SPLIT, "behavior": "Eaten"}}, "pre_tokenizer.behavior", "Removed"),
    "a step behind ByteLevel": (
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTE_LEVEL, BYTE_LEVEL]}},
        "pre_tokenizer.pretokenizers[1].type",
        "the last step",
    ),
    "another post-processor": ({"post_processor": {"type": "BertProcessing"}}, "post_processor.type", "ByteLevel"),
    "a template that drops the text": ({"post_processor": template()}, "post_processor.single", "the text once"),
    "no decoder": ({"decoder": None}, "decoder", "ByteLevel"),
    "another decoder": ({"decoder": {"type": "WordPiece"}}, "decoder.type", "ByteFallback"),
    "a decoder that does not fit": ({"decoder": {"type": "Fuse"}}, "decoder", "ByteLevel"),
    "a byte decoder for characters": ({"pre_tokenizer": None}, "decoder", "in this order"),
    "decoders in another order": (
        {"pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": LLAMA_DECODER[1::-1]}},
        "decoder.decoders[1].type",
        "in this order",
    ),
    "a decoder that strips the end": (
        {
            "pre_tokenizer": None,
            "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {**LLAMA_DECODER[3], "stop": 1}]},
        },
        "decoder.decoders[1].stop",
        "allowed: 0",
    ),
    "a special token that is normalised away": (
        {"normalizer": {"type": "NFC"}, "added_tokens": [added("e\u0301", normalized=True)]},
        "added_tokens",
        "when it is normalised",
    ),
    "tokens that are the same once normalised": (
        {
            "normalizer": {"type": "NFC"},
            "added_tokens": [added("e\u0301x", normalized=True, special=False), added("éx", id=259, normalized=True)],
        },
        "added_tokens",
        "the same once",
    ),
}


UNSUPPORTED["a token that is another one once normalised"] = (
    {
        "added_tokens": [added("e\u0301", id=2, normalized=True, special=False)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": None,
        "decoder": {"type": "Fuse"},
        "model_vocab": {"é": 0, "x": 1},
        "model_merges": [],
    },
    "added_tokens",
    "the same once",
)


@pytest.mark.parametrize(
    ("data", "field", "words", "error"),
    [pytest.param(*case, FormatError, id=name) for name, case in BAD.items()]
    + [pytest.param(tokenizer_file(**case[0]), *case[1:], UnsupportedError, id=n) for n, case in UNSUPPORTED.items()],
)
def test_a_bad_file_is_refused_naming_the_place_and_what_is_allowed(data, field, words, error):
    with pytest.raises(error) as caught:
        Tokenizer.from_tokenizer_json(data)
    assert type(caught.value) is error
    assert (caught.value.file, caught.value.field) == ("tokenizer.json", field)
    assert words in str(caught.value)


@pytest.mark.parametrize("contents", [["aa"] * 7, ["a" * 100]])
def test_replacements_that_make_a_text_many_times_longer_are_refused(contents):
    steps = [{"type": "Replace", "pattern": {"String": "a"}, "content": content} for content in contents]
    with pytest.raises(UnsupportedError, match=r"normalizer: its replacements make a text up to 1\d\d times longer"):
        load(normalizer={"type": "Sequence", "normalizers": steps})


def test_a_byte_token_that_is_a_control_token_is_refused_because_text_could_become_it():
    vocab = {"b": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    with pytest.raises(UnsupportedError, match=r"byte_fallback: <0x41> is an added token as well"):
        load(
            added_tokens=[added("<0x41>", id=1 + 0x41)],
            pre_tokenizer=None,
            decoder={"type": "Sequence", "decoders": LLAMA_DECODER},
            model_vocab=vocab,
            model_merges=[],
            model_byte_fallback=True,
        )
