"""The streaming decoder: whole characters only, and the same text as decoding at once."""

from __future__ import annotations

import random

import pytest

from tests.tiny_tokenizer import CONTROL, UNUSED, USER_DEFINED, tiny_tokenizer

# One token per byte, and a few that hold halves of characters.
TOKENIZER = tiny_tokenizer(
    ["ð Ł", "ĺ Ģ", "Ġ â", "Ĥ ¬"], added={"<|end|>": CONTROL, "<think>": USER_DEFINED, "[PAD]": UNUSED}
)
END, THINK, PAD = 260, 261, 262


def byte_ids(data):
    ids = {TOKENIZER.token_bytes(token_id): token_id for token_id in range(256)}
    return [ids[bytes([byte])] for byte in data]


def stream(ids):
    """The texts of the pushes, and of the flush."""
    decoder = TOKENIZER.stream()
    return [decoder.push(token_id) for token_id in ids], decoder.flush()


@pytest.mark.parametrize("character", ["é", "€", "\U0001f600", "\ufeff"])
def test_a_character_is_printed_when_its_last_byte_comes(character):
    data = character.encode()
    assert stream(byte_ids(data)) == ([""] * (len(data) - 1) + [character], "")


def test_tokens_that_hold_halves_of_characters_are_joined():
    ids = [256, 257, 258, 259]
    assert [TOKENIZER.token_bytes(i) for i in ids] == [b"\xf0\x9f", b"\x98\x80", b" \xe2", b"\x82\xac"]
    assert stream(ids) == (["", "\U0001f600", " ", "€"], "")


@pytest.mark.parametrize(
    "data",
    [
        b"\x80", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xf5\xff",
        b"\xc3A", b"\xe2\x82A", b"\xf0\x9f\x98A", b"\xf0\x9f\xf0\x9f\x98\x80", b"\xc3\xc3\xa9", b"\xe2\x82", b"\xf0\x9f\x98",
    ],
)  # fmt: skip
def test_bytes_that_can_be_no_character_give_one_mark_per_maximal_subpart(data):
    chunks, rest = stream(byte_ids(data))
    assert "".join(chunks) + rest == data.decode(errors="replace")


def test_an_impossible_byte_is_reported_at_once():
    assert stream(byte_ids(b"\xe2A"))[0] == ["", "\ufffdA"]
    assert stream(byte_ids(b"\x80"))[0] == ["\ufffd"]


def test_a_control_token_prints_nothing_and_ends_what_waits():
    assert stream([*byte_ids(b"a\xe2\x82"), END, *byte_ids(b"\xac")]) == (["a", "", "", "\ufffd", "\ufffd"], "")
    assert stream([END, END]) == (["", ""], "")


def test_an_added_token_that_is_not_special_prints_its_text():
    assert stream([*byte_ids(b"\xe2"), THINK]) == (["", "\ufffd<think>"], "")


@pytest.mark.parametrize("nothing", [PAD, -1, 10**9])
def test_an_id_that_stands_for_nothing_adds_nothing(nothing):
    first, second = byte_ids("é".encode())
    assert stream([first, nothing, second]) == (["", "", "é"], "")


def test_the_flush_gives_what_waits_once():
    decoder = TOKENIZER.stream()
    decoder.push(byte_ids(b"\xe2")[0])
    assert (decoder.flush(), decoder.flush()) == ("\ufffd", "")
    assert decoder.push(byte_ids(b"a")[0]) == "a"


def test_two_streams_know_nothing_of_each_other():
    one, other = TOKENIZER.stream(), TOKENIZER.stream()
    first, second = byte_ids("é".encode())
    one.push(first)
    assert (other.push(second), one.push(second)) == ("\ufffd", "é")


def test_streamed_text_is_the_text_decoded_at_once_and_never_holds_half_a_character():
    generator = random.Random(20)
    for _ in range(500):
        ids = [generator.randrange(-1, 264) for _ in range(generator.randrange(30))]
        chunks, rest = stream(ids)
        assert "".join(chunks) + rest == TOKENIZER.decode(ids)
        for chunk in chunks:
            chunk.encode()  # raises on half a surrogate pair
