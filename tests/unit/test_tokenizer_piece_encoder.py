"""Starting from characters gives the ids of starting from bytes, whatever the vocabulary; and what starts otherwise."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from pyruntime.text import piece_encoder
from pyruntime.text.bpe import merge, resolve_merges
from pyruntime.text.byte_alphabet import CHARACTERS, all_to_bytes
from pyruntime.text.piece_encoder import PieceEncoder
from pyruntime.text.spec import TokenizerSpec, Vocabulary, find_mixed

LETTERS = "世七éa"
BYTES = sorted(set(LETTERS.encode()))


def spec_of(merges):
    """A byte-level tokenizer of the bytes of a few letters, and merges "LEFT RIGHT"."""
    tokens = list(dict.fromkeys([CHARACTERS[byte] for byte in BYTES] + [merge.replace(" ", "") for merge in merges]))
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    return TokenizerSpec(Vocabulary(all_to_bytes(tokens)[0]), resolve_merges(merges, vocab, len(tokens)), ())


@st.composite
def specs(draw):
    """Merges inside characters, of whole characters, and of the end of one with the beginning of another; in any order."""
    inside = [
        f"{to_alphabet(data[:at])} {to_alphabet(data[at : at + 1])}"
        for data in (letter.encode() for letter in LETTERS)
        for at in range(1, len(data))
    ]
    ends = [to_alphabet(letter.encode()[at:]) for letter in LETTERS for at in range(len(letter.encode()))]
    starts = [to_alphabet(letter.encode()[:at]) for letter in LETTERS for at in range(1, len(letter.encode()) + 1)]
    whole = [to_alphabet(letter.encode()) for letter in LETTERS]
    across = draw(st.lists(st.tuples(st.sampled_from(whole), st.sampled_from(whole)), max_size=6))
    across += draw(st.lists(st.tuples(st.sampled_from(ends), st.sampled_from(starts)), max_size=2))
    written = [
        *dict.fromkeys(inside),
        *(f"{left} {right}" for left, right in across if left in made_of(inside) and right in made_of(inside)),
    ]
    return spec_of(draw(st.permutations(written)))


def to_alphabet(data):
    return "".join(CHARACTERS[byte] for byte in data)


def made_of(merges):
    """The bytes, and what merges make."""
    return {CHARACTERS[byte] for byte in BYTES} | {merge.replace(" ", "") for merge in merges}


@settings(deadline=None, max_examples=400)
@given(specs(), st.text(LETTERS, min_size=4, max_size=12))
def test_starting_from_characters_gives_what_starting_from_bytes_gives(spec, piece):
    byte_ids = {token[0]: token_id for token_id, token in enumerate(spec.vocabulary.tokens) if len(token) == 1}
    expected = merge([byte_ids[byte] for byte in piece.encode()], spec.merges)
    assert PieceEncoder(spec).encode(piece) == expected


def tokens_of(encoder, piece):
    return [encoder._spec.vocabulary.tokens[token_id] for token_id in encoder.encode(piece)]


def test_characters_are_merged_once_and_remembered():
    encoder = PieceEncoder(spec_of(["ä ¸", "ä¸ ĸ", "ä¸ĸ ä¸ĸ"]))
    assert tokens_of(encoder, "世世世é") == ["世世".encode(), "世".encode(), b"\xc3", b"\xa9"]
    assert {character: len(ids) for character, ids in encoder._characters.items()} == {"世": 1, "é": 2}


def test_a_token_that_ends_inside_a_character_keeps_a_piece_to_its_bytes():
    """世 is E4 B8 96 and 七 is E4 B8 83; here 96 E4 is merged first."""
    encoder = PieceEncoder(spec_of(["ĸ ä", "ä ¸", "ä¸ ĸ"]))
    assert find_mixed(encoder._spec.vocabulary.tokens) == [b"\x96\xe4"]
    assert tokens_of(encoder, "世七世") == [b"\xe4\xb8", b"\x96\xe4", b"\xb8", b"\x83", "世".encode()]


def test_a_byte_without_a_token_keeps_a_piece_to_its_bytes():
    """Without the E4 of the second 世, what ends the first and what is left of the second become neighbours."""
    spec = spec_of(["ĸ ¸"])
    tokens = [None if token == b"\xe4" else token for token in spec.vocabulary.tokens]
    encoder = PieceEncoder(replace(spec, vocabulary=Vocabulary(tokens)))
    assert tokens_of(encoder, "世世é") == [b"\xb8", b"\x96\xb8", b"\x96", b"\xc3", b"\xa9"]
    assert encoder.dropped("世世é") == 2


def test_a_character_that_is_finished_late_keeps_a_piece_to_its_bytes():
    """世 and a would be merged before a and é; but 世 is not yet one token when a and é are merged."""
    encoder = PieceEncoder(spec_of(["Ã ©", "ä ¸", "ä¸ĸ a", "a Ã©", "ä¸ ĸ"]))
    assert tokens_of(encoder, "世aé世aé") == ["世".encode(), "aé".encode()] * 2
    assert encoder._characters["世"] is None


def test_remembered_characters_are_bounded(monkeypatch):
    monkeypatch.setattr(piece_encoder, "_MOST_CHARACTERS", 2)
    encoder = PieceEncoder(spec_of(["ä ¸", "ä¸ ĸ"]))
    assert tokens_of(encoder, "世七é世") == ["世".encode(), b"\xe4\xb8", b"\x83", b"\xc3", b"\xa9", "世".encode()]
    assert len(encoder._characters) <= 2
