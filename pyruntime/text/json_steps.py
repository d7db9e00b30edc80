"""The parts of a tokenizer.json around the model: normalizer, pre-tokenizer, post-processor and decoder.

Each is read into steps; what is not in the lists here is refused by its place in the file and its name. A list in a list
is one list. What a post-processor would put around a text is read and checked, not applied: prompts are written by
templates, which put it there themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from pyruntime.errors import ParameterError, UnsupportedError, shorten
from pyruntime.text import normalize, pre_tokenize
from pyruntime.text.json_fields import Fields
from pyruntime.text.pattern_syntax import literal_pattern, parse_pattern
from pyruntime.text.spec import Decoding

GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
WORDS = r"\p{word}+|[^\p{word}\s]+"
DIGITS, DIGIT_RUNS, PUNCTUATION = r"\p{Digits}", r"\p{Digits}+", r"\p{Punctuation}"
WHITE_SPACE_CHARACTER = r"\s"

_MOST_GROWTH = 64  # how many times longer replacements may make a text; real files keep its length or triple it
NORMALIZERS = (*normalize.FORMS, "Prepend", "Replace", "Strip", "Sequence")
PRE_TOKENIZERS = ("Split", "ByteLevel", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit", "Sequence")
POST_PROCESSORS = ("ByteLevel", "TemplateProcessing", "Sequence")
DECODERS = ("ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Sequence")

_DEEPEST, _LONGEST = 8, 64  # lists in lists, and steps; real files have two levels and at most six steps


class PreTokenizer(NamedTuple):
    """A pre-tokenizer: its steps, and whether pieces are then taken as bytes."""

    steps: tuple[pre_tokenize.Step, ...]
    byte_level: bool


class PostProcessor(NamedTuple):
    """The ids that a post-processor puts before and behind a text."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()


def read_normalizer(file: Fields) -> tuple[normalize.Step, ...]:
    """The normalizer of a file."""
    steps = tuple(_read_normalizer(part) for part in _parts(file, "normalizer", "normalizers", NORMALIZERS))
    _check_growth(file, "normalizer", [step.content for step in steps if isinstance(step, normalize.Replace)])
    return steps


def _check_growth(file: Fields, part: str, contents: Sequence[str]) -> None:
    """Refuse replacements that together could make a text many times longer: a short file could fill the memory."""
    growth = math.prod(max(1, len(content)) for content in contents)
    if growth > _MOST_GROWTH:
        raise file.unsupported(
            part, f"its replacements make a text up to {growth} times longer", allowed=f"at most {_MOST_GROWTH} times"
        )


def _read_normalizer(part: Fields) -> normalize.Step:
    kind = part.values["type"]
    if kind == "Prepend":
        part.only("type", "prepend")
        return normalize.Prepend(part.get("prepend", str))
    if kind == "Replace":
        part.only("type", "pattern", "content")
        return normalize.Replace(_pattern(part), part.get("content", str))
    if kind == "Strip":
        part.only("type", "strip_left", "strip_right")
        return normalize.Strip(part.get("strip_left", bool), part.get("strip_right", bool))
    part.only("type")
    return normalize.Form(cast("normalize.FormName", kind))


def read_pre_tokenizer(file: Fields) -> PreTokenizer:
    """The pre-tokenizer of a file."""
    steps: list[pre_tokenize.Step] = []
    byte_level = False
    for part in _parts(file, "pre_tokenizer", "pretokenizers", PRE_TOKENIZERS):
        if byte_level:  # it would see the byte alphabet instead of the text
            raise part.unsupported("type", "a step behind ByteLevel", allowed="ByteLevel as the last step")
        if part.values["type"] == "ByteLevel":
            part.only("type", "add_prefix_space", "trim_offsets", "use_regex")
            steps += [pre_tokenize.PrefixSpace()] * part.get("add_prefix_space", bool)
            if part.optional("use_regex", bool) is not False:
                steps.append(pre_tokenize.Split(GPT2_SPLIT))
            byte_level = True
        else:
            steps.append(_read_split(part))
    return PreTokenizer(tuple(steps), byte_level)


def _read_split(part: Fields) -> pre_tokenize.Split:
    kind = part.values["type"]
    if kind == "Split":
        part.only("type", "pattern", "behavior", "invert")
        behavior, invert = part.one_of("behavior", pre_tokenize.BEHAVIORS), part.get("invert", bool)
        return pre_tokenize.Split(_pattern(part), cast("pre_tokenize.Behavior", behavior), invert)
    if kind == "Digits":
        part.only("type", "individual_digits")
        individual = part.get("individual_digits", bool)
        return pre_tokenize.Split(DIGITS if individual else DIGIT_RUNS)
    if kind == "Punctuation":
        part.only("type", "behavior")
        chosen = "Isolated" if "behavior" not in part.values else part.one_of("behavior", pre_tokenize.BEHAVIORS)
        return pre_tokenize.Split(PUNCTUATION, cast("pre_tokenize.Behavior", chosen))
    part.only("type")
    if kind == "Whitespace":
        return pre_tokenize.Split(WORDS, "Removed", invert=True)
    return pre_tokenize.Split(WHITE_SPACE_CHARACTER, "Removed")


def read_post_processor(file: Fields, vocab_size: int) -> PostProcessor:
    """What the post-processor of a file puts around one text."""
    prefix: list[int] = []
    suffix: list[int] = []
    for part in _parts(file, "post_processor", "processors", POST_PROCESSORS):
        if part.values["type"] == "ByteLevel":  # it only moves offsets
            part.only("type", "add_prefix_space", "trim_offsets", "use_regex")
            continue
        part.only("type", "single", "pair", "special_tokens")
        before, behind = _read_template(part, vocab_size)
        prefix = before + prefix
        suffix += behind
    return PostProcessor(tuple(prefix), tuple(suffix))


def _read_template(part: Fields, vocab_size: int) -> tuple[list[int], list[int]]:
    known = part.object("special_tokens")
    around: tuple[list[int], list[int]] = ([], [])
    sequences = 0
    for piece in part.objects("single"):
        piece.only("SpecialToken", "Sequence")
        if "Sequence" in piece.values:
            sequence = piece.object("Sequence")
            if sequence.get("id", str) != "A":
                raise sequence.error("id", "not the one text there is", allowed="A")
            sequences += 1
            continue
        token = piece.object("SpecialToken")
        name = token.get("id", str)
        if name not in known.values:
            raise token.error("id", f"{shorten(name)} is not among the special_tokens")
        ids = known.object(name).get("ids", list)
        if any(type(token_id) is not int or not 0 <= token_id < vocab_size for token_id in ids):
            raise known.object(name).error("ids", shorten(ids), allowed=f"ids from 0 to {vocab_size - 1}")
        around[min(sequences, 1)].extend(ids)
    if sequences != 1:
        raise part.unsupported("single", f"the text {sequences} times", allowed="the text once")
    return around


def read_decoder(file: Fields, *, byte_level: bool) -> Decoding:
    """The decoder of a file, which must fit what its pre-tokenizer does."""
    parts = list(_parts(file, "decoder", "decoders", DECODERS))
    kinds = [part.values["type"] for part in parts]
    if byte_level:
        if [kind for kind in kinds if kind != "Fuse"] != ["ByteLevel"]:
            raise file.unsupported("decoder", _listed(kinds), allowed="ByteLevel, as the pre-tokenizer is ByteLevel")
        return Decoding()
    replace: list[tuple[str, str]] = []
    strip = ("", 0)
    done: list[str] = []
    for part, kind in zip(parts, kinds, strict=True):
        if any(later in done for later in _LATER[kind]):
            raise part.unsupported("type", f"{kind} behind {done[-1]}", allowed=_ORDER)
        done.append(kind)
        if kind == "Replace":
            part.only("type", "pattern", "content")
            pattern = part.object("pattern")
            pattern.only("String")
            replace.append((pattern.get("String", str), part.get("content", str)))
        elif kind == "Strip":
            strip = _read_strip(part)
    if "Fuse" not in done or "ByteLevel" in done:
        raise file.unsupported("decoder", _listed(kinds), allowed=f"{_ORDER}; ByteLevel where the pre-tokenizer is it")
    _check_growth(file, "decoder", [content for _, content in replace])
    return Decoding(tuple(replace), "ByteFallback" in done, strip)


_ORDER = "Replace, ByteFallback, Fuse, Strip, in this order"
# What may not have come before a decoder, which would then see something else than single tokens.
_LATER: Mapping[str, tuple[str, ...]] = {
    "ByteLevel": (),
    "Replace": ("ByteFallback", "Fuse", "Strip"),
    "ByteFallback": ("ByteFallback", "Fuse", "Strip"),
    "Fuse": ("Fuse", "Strip"),
    "Strip": ("Strip",),
}


def _read_strip(part: Fields) -> tuple[str, int]:
    part.only("type", "content", "start", "stop")
    content, start = part.get("content", str), part.get("start", int)
    if len(content) != 1 or start < 0:
        raise part.error("content", shorten(content), allowed="one character, and a start of 0 or more")
    if part.get("stop", int) != 0:
        raise part.unsupported("stop", str(part.values["stop"]), allowed="0")
    return content, start


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds) or "none"


def _parts(file: Fields, key: str, members: str, allowed: Sequence[str]) -> Iterator[Fields]:
    """The objects of a part of the file; a Sequence is its members. Their types are among `allowed`."""
    if file.values.get(key) is None:
        return
    for count, part in enumerate(_flatten(file.object(key), members, allowed, 0)):
        if count == _LONGEST:
            raise part.unsupported("type", f"more than {_LONGEST} steps", allowed=f"{_LONGEST} steps")
        yield part


def _flatten(part: Fields, members: str, allowed: Sequence[str], depth: int) -> Iterator[Fields]:
    if part.one_of("type", allowed) != "Sequence":
        yield part
        return
    if depth == _DEEPEST:
        raise UnsupportedError(part.file, part.path, "a Sequence in a Sequence", allowed=f"{_DEEPEST} levels of them")
    part.only("type", members)
    for member in part.objects(members):
        yield from _flatten(member, members, allowed, depth + 1)


def _pattern(part: Fields) -> str:
    """The pattern of a Split or a Replace: a text, or an expression of the known language."""
    pattern = part.object("pattern")
    pattern.only("String", "Regex")
    if "String" in pattern.values:
        text = pattern.get("String", str)
        if not text:
            raise pattern.unsupported("String", "empty", allowed="a text")
        return literal_pattern(text)
    expression = pattern.get("Regex", str)
    try:
        parse_pattern(expression)
    except ParameterError as error:
        raise UnsupportedError(part.file, pattern.at("Regex"), str(error)) from None
    return expression
