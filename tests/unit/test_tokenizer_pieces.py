"""How text is cut into pieces and normalised: the facts on which tokenizers differ from Python and from each other."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest

from pyruntime.errors import ParameterError
from pyruntime.text.gguf_reader import PRE_TOKENIZERS
from pyruntime.text.normalize import nfc
from pyruntime.text.patterns import ALL, ASCII, BASIC_PLANE, character_limit, compile_split, tables
from pyruntime.text.pre_tokenize import split


def cut(pre, text):
    return split(text, PRE_TOKENIZERS[pre].splits)


@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        # Digits: each alone, in runs, in threes.
        ("smollm", "ab 2024", ["ab", " ", "2", "0", "2", "4"]),
        ("gpt-2", "ab 2024", ["ab", " 2024"]),
        ("qwen2", "ab 2024", ["ab", " ", "2", "0", "2", "4"]),
        ("llama-bpe", "ab 2024", ["ab", " ", "202", "4"]),
        # Contractions: the case counts for GPT-2; elsewhere it does not, and the long s is an s.
        ("smollm", "IT'S it's", ["IT", "'", "S", " it", "'s"]),
        ("gpt-2", "we'll WE'LL", ["we", "'ll", " WE", "'", "LL"]),
        ("qwen2", "IT'S it's 'ſ", ["IT", "'S", " it", "'s", " '", "ſ"]),
        ("qwen2", "x'ſy", ["x", "'ſ", "y"]),
        ("smollm", "x'ſy", ["x", "'", "ſy"]),
        ("llama-bpe", "WE'LL've", ["WE", "'LL", "'ve"]),
        # Blanks: the last one goes to the word; a newline takes the blanks before it, or not.
        ("smollm", "a   b", ["a", "  ", " b"]),
        ("smollm", "a  \n\n b", ["a", "  \n\n", " b"]),
        ("qwen2", "a  \n\n b", ["a", "  \n\n", " b"]),
        ("qwen2", "a \t\n  b ", ["a", " \t\n", " ", " b", " "]),
        ("qwen2", "!\r\nx", ["!\r\n", "x"]),
        ("smollm", "!\r\nx", ["!", "\r", "\n", "x"]),
        # White space is the reference's: not U+001C..U+001F, not U+200B, U+FEFF or U+180E; but U+0085 and U+3000.
        ("smollm", "a\x1c\x1fb", ["a", "\x1c\x1f", "b"]),
        ("smollm", " \x1c", [" \x1c"]),
        ("smollm", "\x85\u3000\xa0", ["\x85\u3000\xa0"]),
        ("smollm", "\u200b\ufeff\u180e", ["\u200b\ufeff\u180e"]),
        # Letters and digits of Unicode 16 are letters and digits; those of 17 only to the digit splitter.
        ("qwen2", "a\U000105c9b", ["a\U000105c9b"]),
        ("qwen2", "a\U00010940b", ["a", "\U00010940b"]),
        ("gpt-2", "7\U00010d40", ["7\U00010d40"]),
        ("gpt-2", "7\U00011de0", ["7", "\U00011de0"]),
        ("smollm", "!\U00011de0!", ["!", "\U00011de0", "!"]),
        ("smollm", "½³Ⅷ", ["½", "³", "Ⅷ"]),
        # Marks are no letters.
        ("smollm", "e\u0301e", ["e", "\u0301", "e"]),
        ("qwen2", "e\u0301e", ["e", "\u0301e"]),
        ("smollm", "", []),
    ],
)
def test_text_is_cut_as_the_models_own_file_says(pre, text, expected):
    assert cut(pre, text) == expected


def test_the_pieces_joined_are_the_text_where_a_pattern_leaves_gaps():
    assert split("a1b22c", [r"\p{N}"]) == ["a", "1", "b", "2", "2", "c"]


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_a_text_is_cut_alike_by_the_patterns_for_narrow_and_for_wide_texts(pre):
    """A wide character after a newline changes nothing before it."""
    for narrow, added, limit in (("It's 12 o'clock,\tsay\n", "", ASCII), ("Ça coûte 12 €…\n", "é", BASIC_PLANE)):
        assert character_limit(narrow + added) == limit
        assert character_limit(narrow + "\U0001f600") == ALL
        assert cut(pre, narrow + "\U0001f600")[: len(cut(pre, narrow))] == cut(pre, narrow)


@pytest.mark.parametrize(
    "pattern", [r"\d+", r"\w", r"\p{Han}", r"\P{L}", r"(a)", r"[a[b]]", r"a\b", r"(?<=a)b", r"[\S]"]
)
def test_a_pattern_that_is_not_understood_is_refused(pattern):
    with pytest.raises(ParameterError):
        compile_split(pattern, ALL)


def test_escaped_punctuation_and_folded_letters_are_read():
    assert split("a.b+kK\u212a", [r"\.|\+", r"(?i:k)"]) == ["a", ".", "b", "+", "k", "K", "\u212a"]


def test_the_tables_are_ranges_in_order_that_do_not_touch():
    for ranges in tables().values():
        assert all(first <= last for first, last in ranges)
        assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("e\u0301", "é"),
        ("\u212b\u2126\u212a", "ÅΩK"),
        ("\u1100\u1161\u11a8\u11a8", "각\u11a8"),
        ("q\u0307\u0323", "q\u0323\u0307"),
        ("\u0344", "\u0308\u0301"),
        ("\ufa0c\ufa0e", "\u5140\ufa0e"),
        # Marks that came after Unicode 9 keep their place and part the marks around them …
        ("a\u0301\u1ac0\u0323", "á\u1ac0\u0323"),
        ("a\u0897\u0323", "a\u0897\u0323"),
        # … and pairs that compose since Unicode 13 and 16 stay pairs.
        ("\U00011935\U00011930", "\U00011935\U00011930"),
        ("\U000105d2\u0307", "\U000105d2\u0307"),
        ("\U00016d63\U00016d67\U00016d67", "\U00016d63\U00016d67\U00016d67"),
    ],
)
def test_nfc_is_that_of_the_references_unicode(text, expected):
    assert nfc(text) == expected


def test_a_long_run_of_marks_is_ordered_as_python_orders_it():
    text = "a" + "\u0301\u0323\u0f73\u0344\u093c\u0903\u05b0" * 30 + "b"
    assert nfc(text) == unicodedata.normalize("NFC", text)
