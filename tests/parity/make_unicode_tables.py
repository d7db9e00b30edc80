"""Write pyruntime/text/unicode_tables.json: the reference tokenizer's own character classes, found by asking it.

    python -m tests.parity.make_unicode_tables

Each class is probed on every code point: a `Split` on `\\p{L}` cuts out exactly the characters that the
reference's regular expressions take for letters, and so on. Its normal forms are probed in the same way, against this
Python's `unicodedata`: a character is newer than they are when the reference lets it keep its place among combining
marks, or does not compose or decompose what this Python does. Run it on a Python whose Unicode is the newest to be
supported, so that none is missed; on an older one those already listed are kept.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

TABLES = Path(__file__).parents[2] / "pyruntime" / "text" / "unicode_tables.json"
CATEGORIES = ("L", "Lu", "Ll", "Lt", "Lm", "Lo", "M", "N", "P", "S")
PATTERNS = {**{name: rf"\p{{{name}}}" for name in CATEGORIES}, "white_space": r"\s"}
SCALARS = [*range(0xD800), *range(0xE000, 0x110000)]
_CHUNK = 1 << 14


def probe_class(splitter: pre_tokenizers.PreTokenizer) -> list[int]:
    """Code points that `splitter`, which cuts out each character of a class, cuts out of all characters."""
    found = []
    for start in range(0, len(SCALARS), _CHUNK):
        chunk = SCALARS[start : start + _CHUNK]
        text = "".join(map(chr, chunk))
        # "Removed" leaves what is not in the class: the gaps are the class.
        kept = {chunk[i] for _, (begin, end) in splitter.pre_tokenize_str(text) for i in range(begin, end)}
        found += [code for code in chunk if code not in kept]
    return found


def probe_digits() -> list[int]:
    """Code points that the reference's `Digits` takes for digits: what it isolates between two letters."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    found = []
    for start in range(0, len(SCALARS), _CHUNK):
        chunk = SCALARS[start : start + _CHUNK]
        text = "".join(f"a{chr(code)}a" for code in chunk)
        found += [
            chunk[begin // 3]
            for _, (begin, end) in digits.pre_tokenize_str(text)
            if end == begin + 1 and begin % 3 == 1
        ]
    return found


def probe_words() -> list[int]:
    """Code points beside which an added token that is a single word is not one."""
    tokenizer = Tokenizer(models.BPE({}, []))
    tokenizer.add_tokens([AddedToken("+", single_word=True, normalized=False)])
    found = []
    for start in range(0, len(SCALARS), _CHUNK):
        chunk = SCALARS[start : start + _CHUNK]
        # The character before the mark decides; the one behind it is a space.
        encoding = tokenizer.encode("".join(f" {chr(code)}+" for code in chunk) + " ")
        alone = {chunk[begin // 3] for begin, _ in encoding.offsets}
        found += [code for code in chunk if code not in alone]
    return found


def probe_newer() -> set[int]:
    """Code points that the reference's older normal forms take for plain base characters, and this Python does not.

    They are marks that the reference does not reorder, first characters of pairs that it does not compose, and
    characters that it does not decompose.
    """
    reference, decomposed = normalizers.NFC(), normalizers.NFKD()
    found = set()
    for char in map(chr, SCALARS):
        if unicodedata.combining(char):
            # U+0301 has class 230 and U+0323 has 220: whatever the class of a mark between them, one of the two moves.
            between = f"\u0301{char}\u0323"
            if reference.normalize_str(between) == between:
                found.add(ord(char))
        decomposition = unicodedata.decomposition(char)
        parts = decomposition.split()
        if decomposition and decomposed.normalize_str(char) == char:
            found.add(ord(char))
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if unicodedata.normalize("NFC", pair) == char != reference.normalize_str(pair):
                found.add(ord(pair[0]))
    return found


def ranges(codes: Iterable[int]) -> list[int]:
    """First and last code point of each run, one after the other."""
    out: list[int] = []
    for code in codes:
        if out and code == out[-1] + 1:
            out[-1] = code
        else:
            out += [code, code]
    return out


def codes_of(flat: list[int]) -> set[int]:
    return {code for first, last in zip(flat[::2], flat[1::2], strict=True) for code in range(first, last + 1)}


def make_tables(known_newer: Iterable[int] = ()) -> dict[str, Any]:
    """The tables, as they are written to the file."""
    classes = {
        name: ranges(probe_class(pre_tokenizers.Split(Regex(pattern), "removed"))) for name, pattern in PATTERNS.items()
    }
    return {
        "provenance": f"probed from tokenizers {tokenizers.__version__} by tests/parity/make_unicode_tables.py",
        "layout": "first and last code point of each range, one after the other",
        "classes": {
            **classes,
            "Digits": ranges(probe_digits()),
            "Punctuation": ranges(probe_class(pre_tokenizers.Punctuation("removed"))),
            "word": ranges(probe_words()),
        },
        "newer": ranges(sorted({*probe_newer(), *known_newer})),
    }


def main() -> None:
    """Write the file."""
    known = codes_of(json.loads(TABLES.read_text())["newer"]) if TABLES.exists() else set()
    tables = make_tables(known)
    classes = ",\n".join(
        f'"{name}":{json.dumps(codes, separators=(",", ":"))}' for name, codes in tables["classes"].items()
    )
    newer = json.dumps(tables["newer"], separators=(",", ":"))
    TABLES.write_text(
        f'{{"provenance":{json.dumps(tables["provenance"])},\n"layout":{json.dumps(tables["layout"])},\n'
        f'"classes":{{\n{classes}\n}},\n"newer":{newer}}}\n'
    )
    python = f"Python {sys.version.split()[0]} with Unicode {unicodedata.unidata_version}"
    print(f"{TABLES.name}: {TABLES.stat().st_size} bytes, made by {python}")


if __name__ == "__main__":
    main()
