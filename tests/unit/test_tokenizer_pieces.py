"""How text is cut into pieces and normalised: the facts on which tokenizers differ from Python and from each other."""

from __future__ import annotations

import re
import time
import unicodedata
from itertools import pairwise

import pytest

from pyruntime.errors import ParameterError
from pyruntime.text.gguf_reader import PRE_TOKENIZERS
from pyruntime.text.normalize import FORMS, Form, Prepend, Replace, Strip, normalize, to_form
from pyruntime.text.pattern_syntax import CATEGORIES
from pyruntime.text.patterns import ALL, ASCII, BASIC_PLANE, character_class, character_limit, compile_split, tables
from pyruntime.text.pre_tokenize import BEHAVIORS, PrefixSpace, Split, _take, split
from pyruntime.text.stand_ins import with_stand_ins
from tests.parity import random_tokenizers

SECONDS = 5  # a quadratic step would take minutes


def cut(pre, text):
    return split(text, PRE_TOKENIZERS[pre].pre_tokenizer)


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
    assert split("a1b22c", [Split(r"\p{N}")]) == ["a", "1", "b", "2", "2", "c"]


@pytest.mark.parametrize("pre", PRE_TOKENIZERS)
def test_a_text_is_cut_alike_by_the_patterns_for_narrow_and_for_wide_texts(pre):
    """A wide character after a newline changes nothing before it."""
    for narrow, added, limit in (("It's 12 o'clock,\tsay\n", "", ASCII), ("Ça coûte 12 €…\n", "é", BASIC_PLANE)):
        assert character_limit(narrow + added) == limit
        assert character_limit(narrow + "\U0001f600") == ALL
        assert cut(pre, narrow + "\U0001f600")[: len(cut(pre, narrow))] == cut(pre, narrow)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"\d+", r"It has \d"),
        (r"\w", r"It has \w"),
        (r"\p{Han}", r"It has \p{Han}"),
        (r"\P{L}", r"It has \P"),
        (r"(a)", "It has ("),
        (r"[a[b]]", "a set inside a set"),
        (r"[a&&b]", "a set inside a set"),
        (r"[\S]", r"It has \S"),
        (r"a\b", r"It has \b"),
        (r"(?<=a)b", "It has ("),
        (r"(?=ab)c", "looks further ahead"),
        (r"a+?", "repeats a repeat"),
        (r"(?:ab)+", "repeats a group"),
        (r"(?:a+)b", "or a repeat there"),
        (r"(?:a|)", "empty alternative"),
        (r"(?i:[a-z])", "a class or a range"),
        (r"(?i:ss)", "a ligature"),
        (r"a{1000}", "It has {"),
        (r"a{3,2}", "the count"),
        (r"a.c", "It has ."),
        (r"^a", "It has ^"),
        (r"a$", "It has $"),
        (r"[]", "an empty set"),
        (r"[a", "ends too early"),
        (r"[z-a]", "the range z-a"),
        (r"(?:a", "ends too early"),
        ("a\\", "ends with a backslash"),
        ("x" * 5000, "at most 4096"),
        ("", "the empty string"),
        (r"x*", "the empty string"),
        (r"a|b?", "the empty string"),
        (r"(?!\S)", "the empty string"),
    ],
)
def test_a_pattern_that_is_not_understood_is_refused(pattern, words):
    with pytest.raises(ParameterError) as caught:
        compile_split(pattern, ALL)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"a+b",
        r"a*a*b",
        r"a+b|a+",
        r"\s+(?!\S)",  # nothing takes what it leaves
        r"\s*[\r\n]+|\s|\s+",  # what takes it comes too late
        r"\s+(?=a)|\s+",
        r"[ab]*b+|[ac]+b*",  # another set
        r"[ab]*b+x|[ab]+b*",
        r"a?b?c?d?e?f",
    ],
)
def test_a_pattern_that_could_take_more_than_linear_time_is_refused(pattern):
    with pytest.raises(ParameterError):
        compile_split(pattern, ALL)


@pytest.mark.parametrize("pattern", random_tokenizers.PATTERNS)
@pytest.mark.parametrize("unit", ["a", "A", " ", "\n", " \n", "aA", "1", "!", "e\u0301", "世", "'", "a ", "\t\r"])
def test_every_pattern_takes_linear_time_on_runs_of_anything(pattern, unit):
    started = time.perf_counter()
    split(unit * 100_000, [Split(pattern)])
    assert time.perf_counter() - started < SECONDS


@pytest.mark.parametrize(
    ("behavior", "expected", "inverted"),
    [
        ("Removed", ["a", "b", "c"], [".", ".", "."]),
        ("Isolated", ["a", ".", ".", "b", ".", "c"], ["a", ".", ".", "b", ".", "c"]),
        ("MergedWithPrevious", ["a.", ".", "b.", "c"], ["a", ".", ".b", ".c"]),
        ("MergedWithNext", ["a", ".", ".b", ".c"], ["a.", ".", "b.", "c"]),
        ("Contiguous", ["a", "..", "b", ".", "c"], ["a", "..", "b", ".", "c"]),
    ],
)
def test_what_becomes_of_a_match_is_what_the_file_says(behavior, expected, inverted):
    assert split("a..b.c", [Split(r"\.", behavior)]) == expected
    assert split("a..b.c", [Split(r"\.", behavior, invert=True)]) == inverted


def test_every_piece_gets_the_space_that_is_put_first():
    assert split("a,b c", [Split(","), PrefixSpace()]) == [" a", " ,", " b c"]
    assert split(" a", [PrefixSpace()]) == [" a"]
    assert split("", [PrefixSpace()]) == []


def test_escaped_punctuation_and_folded_letters_are_read():
    assert split("a.b+kK\u212a", [Split(r"\.|\+"), Split(r"(?i:k)")]) == ["a", ".", "b", "+", "k", "K", "\u212a"]


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
    assert to_form(text, "NFC") == expected


def test_a_long_run_of_marks_is_ordered_as_python_orders_it():
    text = "a" + "\u0301\u0323\u0f73\u0344\u093c\u0903\u05b0" * 30 + "b"
    for form in FORMS:
        assert to_form(text, form) == unicodedata.normalize(form, text)


@pytest.mark.parametrize(
    ("step", "text", "expected"),
    [
        (Form("NFKC"), "\ufb01 \u2460 \u32ff", "fi 1 \u32ff"),  # the last came after Unicode 9
        (Form("NFKD"), "\u1e9b\u0323", "s\u0323\u0307"),
        (Form("NFD"), "é\uac01", "e\u0301\u1100\u1161\u11a8"),
        (Prepend("▁"), "a", "▁a"),
        (Prepend("▁"), "", ""),
        (Replace(" ", "▁"), "a b  c", "a▁b▁▁c"),
        (Replace(r"\p{N}+", r"\1"), "a12b", r"a\1b"),  # no group of the pattern is meant
        (Replace("a|ab", "x"), "aab", "xxb"),
        (Strip(left=True, right=False), " \u3000a\u200b ", "a\u200b "),
        (Strip(left=False, right=True), " a\x1c\x85\u2029", " a\x1c"),
    ],
)
def test_a_normalizer_does_what_the_file_says(step, text, expected):
    assert normalize(text, [step]) == expected


def test_normalizers_follow_each_other():
    assert normalize("e\u0301", [Form("NFC"), Replace("é", "e"), Prepend("<")]) == "<e"


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize("invert", [False, True])
@pytest.mark.parametrize("pattern", random_tokenizers.PATTERNS)
def test_stand_ins_cut_a_text_as_the_whole_pattern_does(pattern, invert, behavior):
    """Letters of both cases, digits, marks, symbols, an emoji, a private one, one of Unicode 17's digits."""
    text = "a \U0001d400\U0001d41a b\U0001d7d8 1\U0001e8d0e\U0001f600 \U00020000世\U000f0000'\U00010400s! \U0001f600\n"
    for one in (text, text + "\U00011de0", "\U0001f600", "\U00020000\U00020001ab"):
        step = Split(pattern, behavior, invert)
        assert split(one, [step]) == _take(one, [step], ALL)


def test_a_stand_in_belongs_to_the_same_classes():
    for char in "\U0001d400\U0001d41a\U0001d7d8\U0001e8d0\U0001f600\U00020000\U000f0000\U00010100":
        stand_in = with_stand_ins(char, ())
        assert stand_in <= "\uffff"
        for name in CATEGORIES:
            pattern = re.compile(f"[{character_class(name)}]")
            assert bool(pattern.match(char)) == bool(pattern.match(stand_in)), (char, name)


def test_there_is_no_stand_in_for_what_has_no_like_or_is_named_by_itself():
    assert with_stand_ins("\U00011de0", ()) is None
    assert with_stand_ins("x\U00020000", ("[\U00020000-\U00020010]",)) is None
    assert with_stand_ins("x\U00020000", ("[\uff00-\uffef]",)) is None
    assert with_stand_ins("x\U00020000", ("(?:\U00020000|y)",)) is None
    assert with_stand_ins("xy", ()) == "xy"
