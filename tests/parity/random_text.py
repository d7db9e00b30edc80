"""Random texts that lean on what tokenizers get wrong: blanks, digits, marks, apostrophes, newest letters, control look-alikes."""

from __future__ import annotations

import random
from collections.abc import Sequence

_BLANKS = [
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u180e",
    "\u2003",
    "\u2028",
    "\u200b",
    "\u3000",
    "\ufeff",
]
_APOSTROPHES = ["'s", "'S", "'ſ", "'re", "'LL", "'d", "’t", "''", "'ve ", "'M"]
_DIGITS = ["0", "12", "2024", "³", "½", "٣", "५", "Ⅷ", "〇", "𝟘", "\U00010d40", "\U00011de0", "\U000116d0"]
_MARKS = [
    "\u0301",
    "\u0323",
    "\u0344",
    "\u0f73",
    "\u1ab0",
    "\u1acf",
    "\u3099",
    "\ua92b",
    "\U0001e08f",
    "\U00010d69",
    "\U000113ce",
    "\u0897",
]
_PAIRS = [
    "e\u0301",
    "Å",
    "\u1100\u1161\u11a8",
    "각",
    "\U00011382\U000113c9",
    "\U000105d2\u0307",
    "\U0001611e\U0001611e",
    "\u0f71\u0f72",
    "豈",
    "\u2126",
    "か\u3099",
]
_WORDS = [
    "the",
    "Hello",
    "don",
    "straße",
    "İstanbul",
    "你好",
    "世界",
    "สวัสดี",
    "नमस्ते",
    "привет",
    "שלום",
    "한국어",
    "camelCase",
    "snake_case",
    "http://",
    "x=1;",
    "{}",
    "😀",
    "👩\u200d💻",
    "🇫🇷",
]
_CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "end|>", "<think>", "</tool_call>", "<|", "|>"]
_POOLS = (_BLANKS, _APOSTROPHES, _DIGITS, _MARKS, _PAIRS, _WORDS, _WORDS, _CONTROL)


def random_text(generator: random.Random, control_tokens: Sequence[str] = ()) -> str:
    """A text of up to about forty parts, some of them repeated, and some of the given control tokens among them."""
    pools = (*_POOLS, control_tokens) if control_tokens else _POOLS
    parts = []
    for _ in range(generator.randint(0, 40)):
        part = generator.choice(generator.choice(pools)) if generator.random() < 0.8 else _random_character(generator)
        parts.append(part * (generator.randint(2, 70) if generator.random() < 0.03 else 1))
    return "".join(parts)


def _random_character(generator: random.Random) -> str:
    """Any character that UTF-8 can hold, the low planes more often."""
    limit = generator.choice((0x80, 0x800, 0x10000, 0x20000, 0x110000))
    code = generator.randrange(limit)
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
