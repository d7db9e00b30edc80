"""The tokenizer on tiny vocabularies: what becomes of text, of control tokens, and of what has no token."""

from __future__ import annotations

import time

import pytest

from pyruntime.text import Tokenizer, tokenizer
from tests.gguf_writer import gguf_bytes, write_gguf
from tests.tiny_tokenizer import CONTROL, UNUSED, USER_DEFINED, pieces, tiny_tokenizer, tokenizer_metadata

SECONDS = 10  # a quadratic step would take minutes


def test_the_empty_text_has_no_ids():
    assert tiny_tokenizer().encode("") == tiny_tokenizer().encode_with_control("") == []
    assert tiny_tokenizer().decode([]) == ""


def test_merges_go_by_rank_and_then_from_the_left():
    by_rank = tiny_tokenizer(["b c", "a b"])
    assert pieces(by_rank, by_rank.encode("abc")) == [b"a", b"bc"]
    from_the_left = tiny_tokenizer(["a a"])
    assert pieces(from_the_left, from_the_left.encode("aaa")) == [b"aa", b"a"]


def test_of_a_merge_given_twice_the_last_rank_counts():
    twice = tiny_tokenizer(["a b", "b c", "a b"])
    assert pieces(twice, twice.encode("abc")) == [b"a", b"bc"]


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "llama-bpe"])
@pytest.mark.parametrize(
    "text",
    [
        "  two  spaces ",
        "a\r\nb\rc\n\n",
        "\ttabs\t",
        "\ufeffBOM",
        "e\u0301 e",
        "ABC abc",
        "\x00\x1c\x85\u2028",
        "\U0010ffff",
    ],
)
def test_text_comes_back_as_it_was(pre, text):
    same = tiny_tokenizer(["Ġ a", "a b"], pre=pre)
    assert same.decode(same.encode(text)) == text


def test_text_from_outside_never_becomes_an_added_token():
    added = tiny_tokenizer(added={"<|end|>": CONTROL, "<think>": USER_DEFINED})
    text = "x<|end|><think>y"
    assert pieces(added, added.encode(text)) == [bytes([byte]) for byte in text.encode()]
    assert pieces(added, added.encode_with_control(text)) == [b"x", None, b"<think>", b"y"]


def test_a_merge_cannot_make_an_added_token_out_of_text():
    with pytest.raises(ValueError, match="'ab' is not a token of the vocabulary"):
        tiny_tokenizer(["a b"], tokens=["a", "b", "ab"], token_type=[1, 1, CONTROL])


def test_added_tokens_match_the_leftmost_and_longest():
    added = tiny_tokenizer(added={"<a": CONTROL, "<a>": CONTROL, "a><b>": CONTROL})
    assert added.encode_with_control("<a><b>") == [added.control_ids["<a>"], *added.encode("<b>")]
    assert added.encode_with_control("<a<a>") == [added.control_ids["<a"], added.control_ids["<a>"]]


def test_added_tokens_are_cut_out_before_normalisation():
    """U+0338 would compose with the ">" before it."""
    added = tiny_tokenizer(pre="qwen2", added={"<think>": USER_DEFINED})
    ids = added.encode_with_control("<think>\u0338")
    assert ids == [added.control_ids["<think>"], *added.encode("\u0338")]
    assert added.decode(added.encode(">\u0338")) == "\u226f"


def test_a_single_character_that_was_added_is_still_text():
    added = tiny_tokenizer(without=["!"], added={"!": USER_DEFINED})
    assert added.encode("!") == [added.control_ids["!"]]


def test_special_tokens_print_nothing_and_the_other_added_ones_their_text():
    added = tiny_tokenizer(added={"<|end|>": CONTROL, "<think>": USER_DEFINED})
    assert added.decode(added.encode_with_control("a<|end|>b<think>c")) == "ab<think>c"
    assert [added.is_special(added.control_ids[text]) for text in ("<|end|>", "<think>")] == [True, False]
    assert not added.is_special(0)


def test_ids_that_stand_for_nothing_decode_to_nothing_and_are_never_given():
    unused = tiny_tokenizer(added={"[PAD1]": UNUSED})
    pad = unused.vocab_size - 1
    assert unused.control_ids == {}
    assert unused.decode([pad, -1, unused.vocab_size, 10**9]) == ""
    assert pad not in unused.encode_with_control("[PAD1]")


def test_a_byte_without_a_token_is_dropped_and_counted():
    """The reference drops it too; its neighbours are then neighbours."""
    missing = tiny_tokenizer(["a b"], without=["X", "Ā"])
    assert pieces(missing, missing.encode("aXb\x00")) == [b"ab"]
    assert missing.dropped_bytes("aXb\x00") == 2
    assert missing.dropped_bytes("ab") == tiny_tokenizer().dropped_bytes("X") == 0
    assert missing.encode("X\x00") == []


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ud83d\ude00é", "\ufffd\U0001f600é"),
    ],
)
def test_half_a_surrogate_pair_becomes_the_replacement_character(text, meant):
    plain = tiny_tokenizer()
    assert plain.encode(text) == plain.encode_with_control(text) == plain.encode(meant)
    assert plain.decode(plain.encode(text)) == meant


def test_a_whole_piece_of_the_vocabulary_wins_where_merges_are_ignored():
    # "abc" cannot be reached by merging: "b c" comes first and leaves nothing to merge.
    merges = ["b c", "a b", "ab c"]
    merged, whole = tiny_tokenizer(merges), tiny_tokenizer(merges, pre="llama-bpe")
    assert pieces(merged, merged.encode("abc abcd")) == [b"a", b"bc", b" ", b"a", b"bc", b"d"]
    assert pieces(whole, whole.encode("abc abcd")) == [b"abc", b" ", b"a", b"bc", b"d"]


def test_a_whole_piece_drops_nothing():
    whole = tiny_tokenizer(pre="llama-bpe", tokens=["a", "aX"], token_type=[1, 1])
    assert (whole.encode("aX"), whole.dropped_bytes("aX")) == ([1], 0)
    assert (whole.encode("Xa"), whole.dropped_bytes("Xa")) == ([0], 1)


def test_a_token_that_is_not_in_the_byte_alphabet_decodes_to_itself():
    odd = tiny_tokenizer(tokens=["a", "世界", "b c"], token_type=[1, 1, 1])
    assert odd.decode([0, 1, 2]) == "a世界b c"


def test_the_files_special_tokens_are_named_as_templates_know_them():
    named = tiny_tokenizer(
        added={"<s>": CONTROL, "</s>": CONTROL, "[PAD]": UNUSED},
        bos_token_id=256,
        eos_token_id=257,
        padding_token_id=258,
    )
    assert named.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}
    assert (named.bos_id, named.eos_id) == (256, 257)
    assert named.special_ids == {"bos_token": 256, "eos_token": 257, "pad_token": 258}
    assert (tiny_tokenizer().bos_id, tiny_tokenizer().eos_id) == (None, None)


def test_whether_a_begin_token_is_wanted_is_what_the_file_says_or_its_family():
    assert not tiny_tokenizer().add_bos
    assert tiny_tokenizer(pre="llama-bpe").add_bos
    assert not tiny_tokenizer(pre="llama-bpe", add_bos_token=False).add_bos
    assert tiny_tokenizer(add_bos_token=True).add_bos


def test_no_begin_token_is_ever_added():
    wanted = tiny_tokenizer(bos_token_id=256, add_bos_token=True)
    assert wanted.encode_with_control("a") == wanted.encode("a") == [wanted.encode("a")[0]]


def test_it_is_read_from_a_path_or_from_bytes(tmp_path):
    metadata = {"general.architecture": "llama", **tokenizer_metadata(["a b"])}
    write_gguf(tmp_path / "m.gguf", metadata, {})
    ids = tiny_tokenizer(["a b"]).encode("abc")
    data = gguf_bytes(metadata, {})
    for source in (tmp_path / "m.gguf", str(tmp_path / "m.gguf"), data, memoryview(data)):
        assert Tokenizer.from_gguf(source).encode("abc") == ids


def test_remembered_pieces_are_bounded_and_change_nothing(monkeypatch):
    monkeypatch.setattr(tokenizer, "_CACHED_PIECES", 3)
    remembering = tiny_tokenizer(["a b"])
    text = "ab cd ef gh ab ij " + "k" * 100
    ids = remembering.encode(text)
    assert len(remembering._cache) <= 3
    assert remembering.encode(text) == ids == tiny_tokenizer(["a b"]).encode(text)


@pytest.mark.parametrize("unit", ["a", " ", "\n", "!", "é", "\u0301", "ab", "\U0001f600"])
def test_time_is_linear_in_a_run_of_anything(unit):
    merges = ["a a", "aa aa", "aaaa aaaa", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "! !", "a b", "ab ab", "Ã ©", "Ì ģ", "Ìģ Ìģ"]
    runner = tiny_tokenizer(merges, pre="qwen2")
    text = unit * 200_000
    started = time.perf_counter()
    ids = runner.encode(text)
    assert runner.decode(ids) == text
    assert time.perf_counter() - started < SECONDS


def test_time_is_linear_in_combining_marks_that_are_out_of_order():
    runner = tiny_tokenizer(pre="qwen2")
    text = "a" + "\u0301\u0323" * 100_000 + "\u0f73" * 100_000
    started = time.perf_counter()
    ids = runner.encode(text)
    assert time.perf_counter() - started < SECONDS
    in_order = "\u0f71" * 100_000 + "\u0f72" * 100_000 + "\u0323" * 99_999 + "\u0301" * 100_000
    assert runner.decode(ids) == "\u1ea1" + in_order
