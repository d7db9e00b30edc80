"""Random tokenizer.json files: small vocabularies, and every part that the runtime reads, in any combination."""

from __future__ import annotations

import random
from typing import Any

from pyruntime.text.byte_alphabet import CHARACTERS

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
PATTERNS = (
    GPT2,
    QWEN2,
    O200K,
    CL100K,
    DEEPSEEK,
    r"\p{N}{1,3}",
    "[一-龥\u0800-一가-퟿]+",
    r"[\r\n]",
    r"\s?\p{L}+",
    r"\s?\p{P}+",
    r"[^\s]+",
    r"\p{M}",
    r"\S",
    "[0-9][0-9][0-9]",
    "(?:ab|b[cd]|'s)",
    r"a{2,3}",
    r"\p{L}(?=\s)",
    r"\p{L}{2,}(?:'s)?",
)
STRINGS = (" ", "a", "ab", "\n", ".", "'s", "é", "ab ", "▁", "(", "\\")
BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_ADDED = ("<s>", "<|end|>", "<|end", "<|", "ab", "abc", " ", "  ", "\n\n", " x", "b ", "é", "e\u0301", "E", "\u212b", "1",
          "12", "don", "<0x41>", "_", "\t", "世界", "ſ", "'s")  # fmt: skip


def random_tokenizer(generator: random.Random) -> dict[str, Any]:
    """A tokenizer.json, which the reference can load."""
    byte_level = generator.random() < 0.75
    letters = list(CHARACTERS) if byte_level else [*"abcdefghijklmnopqrstuvwxyz0123456789 .'▁\n", *"éßſ世界你好"]
    if generator.random() < 0.3:
        letters = [letter for letter in letters if generator.random() < 0.9]
    tokens = list(letters)
    merges: list[tuple[str, str]] = []
    common = [letter for letter in "abcdefgoensthli12.'Ġ▁Ċäåçãé世界" if letter in letters] or letters[:1]
    common += [letter for letter in map(CHARACTERS.__getitem__, "世é\u0301".encode()) if letter in letters]
    made = list(common)
    for _ in range(generator.randint(0, 200)):
        left, right = generator.choice(made), generator.choice(made)
        if len(left + right) <= 8:
            merges.append((left, right))
            made.append(left + right)
            if left + right not in tokens:
                tokens.append(left + right)
    fallback = generator.random() < (0.15 if byte_level else 0.5)
    if fallback or generator.random() < 0.05:
        tokens += [f"<0x{byte:02X}>" for byte in range(256) if generator.random() < 0.999 or byte < 0x80]
    unknown = generator.choice((None, None, "<unk>"))
    tokens += ["<unk>"] * (unknown is not None)
    vocab = {token: token_id for token_id, token in enumerate(dict.fromkeys(tokens))}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added(generator, vocab, {left + right for left, right in merges}),
        "normalizer": _sequence(generator, "normalizers", _normalizer) if generator.random() < 0.5 else None,
        "pre_tokenizer": _pre_tokenizer(generator, byte_level=byte_level),
        "post_processor": None,
        "decoder": _decoder(generator, byte_level=byte_level),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": generator.choice((None, "")),
            "end_of_word_suffix": None,
            "fuse_unk": generator.random() < 0.5,
            "byte_fallback": fallback,
            "ignore_merges": generator.random() < 0.3,
            "vocab": vocab,
            "merges": [list(pair) for pair in merges]
            if byte_level is False or generator.random() < 0.5
            else [" ".join(pair) for pair in merges],
        },
    }


def _added(generator: random.Random, vocab: dict[str, int], made: set[str]) -> list[dict[str, Any]]:
    chosen = generator.sample(_ADDED, generator.randint(0, 6)) if generator.random() < 0.8 else []
    plain = generator.random() < 0.5
    added, following = [], len(vocab)
    for text in chosen:
        if text in made and len(text) > 1:  # text could become a control token: refused
            continue
        if text in vocab:
            token_id = vocab[text]
        else:
            token_id, following = following, following + 1
        flags = {
            flag: generator.random() < (0 if plain else 0.25)
            for flag in ("single_word", "lstrip", "rstrip", "normalized")
        }
        if text.isspace():  # behind one that takes it along, the reference would panic
            flags["lstrip"] = False
        added.append({"id": token_id, "content": text, **flags, "special": generator.random() < 0.5})
    return added


def _sequence(generator: random.Random, members: str, one) -> dict[str, Any]:
    if generator.random() < 0.5:
        return one(generator)
    return {"type": "Sequence", members: [one(generator) for _ in range(generator.randint(0, 3))]}


def _pattern(generator: random.Random) -> dict[str, str]:
    if generator.random() < 0.25:
        return {"String": generator.choice(STRINGS)}
    return {"Regex": generator.choice(PATTERNS)}


def _normalizer(generator: random.Random) -> dict[str, Any]:
    kind = generator.choice(("NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Strip"))
    if kind == "Prepend":
        return {"type": kind, "prepend": generator.choice(("▁", " ", "x"))}
    if kind == "Replace":
        return {"type": kind, "pattern": _pattern(generator), "content": generator.choice(("", "▁", " ", "ab", "\\1"))}
    if kind == "Strip":
        return {"type": kind, "strip_left": generator.random() < 0.5, "strip_right": generator.random() < 0.5}
    return {"type": kind}


def _split(generator: random.Random) -> dict[str, Any]:
    kind = generator.choice(("Split", "Split", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"))
    if kind == "Split":
        behavior = generator.choice(BEHAVIORS)
        return {"type": kind, "pattern": _pattern(generator), "behavior": behavior, "invert": generator.random() < 0.3}
    if kind == "Digits":
        return {"type": kind, "individual_digits": generator.random() < 0.5}
    if kind == "Punctuation":
        return {"type": kind, "behavior": generator.choice(BEHAVIORS)}
    return {"type": kind}


def _pre_tokenizer(generator: random.Random, *, byte_level: bool) -> dict[str, Any] | None:
    steps = [_split(generator) for _ in range(generator.randint(0, 3))]
    if byte_level:
        steps.append(
            {
                "type": "ByteLevel",
                "add_prefix_space": generator.random() < 0.3,
                "trim_offsets": generator.random() < 0.5,
                "use_regex": generator.random() < 0.5,
            }
        )
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps}


def _decoder(generator: random.Random, *, byte_level: bool) -> dict[str, Any]:
    if byte_level:
        return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    steps: list[dict[str, Any]] = []
    if generator.random() < 0.7:
        steps.append({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})
    if generator.random() < 0.7:
        steps.append({"type": "ByteFallback"})
    steps.append({"type": "Fuse"})
    if generator.random() < 0.5:
        steps.append({"type": "Strip", "content": " ", "start": generator.randint(0, 2), "stop": 0})
    return steps[0] if len(steps) == 1 else {"type": "Sequence", "decoders": steps}
