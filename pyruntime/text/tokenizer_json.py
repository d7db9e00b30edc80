"""A tokenizer from a tokenizer.json: every BPE tokenizer whose parts are in the lists of `json_steps`.

Everything is checked before it is used, and what is not supported is refused by its place and name. Truncation and
padding are settings for batches and are ignored, as the reference's users do when they encode one text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyruntime.errors import FormatError, shorten
from pyruntime.formats.strict_json import parse_json
from pyruntime.text.bpe import MergeError, MergeTable, resolve_merges
from pyruntime.text.byte_alphabet import all_to_bytes
from pyruntime.text.json_fields import Fields, check_text
from pyruntime.text.json_steps import read_decoder, read_normalizer, read_post_processor, read_pre_tokenizer
from pyruntime.text.normalize import Step, normalize
from pyruntime.text.patterns import one_of
from pyruntime.text.spec import AddedToken, TokenizerSpec, Vocabulary

MAX_BYTES = 64 << 20  # the largest known file has 28 MB
MAX_DEPTH = 500
MAX_VALUES = 1 << 22  # the largest known file has a million and a half
MAX_IDS = 1 << 21  # the largest known vocabulary has 262,144
MAX_ADDED_TOKENS = 16_384  # real files have tens, some a thousand
MAX_ADDED_LENGTH = 256  # the longest known has 40 characters

_PARTS = ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
          "decoder", "model")  # fmt: skip
_MODEL_KEYS = ("type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
               "byte_fallback", "ignore_merges", "vocab", "merges")  # fmt: skip


def spec_from_tokenizer_json(data: bytes, name: str) -> TokenizerSpec:
    """The tokenizer that the bytes of a tokenizer.json describe.

    Args:
        data: the whole file.
        name: the file's name, for errors.

    Raises:
        FormatError: it is damaged or contradicts itself.
        UnsupportedError: it needs something that is not supported.
    """
    parsed = parse_json(data, name=name, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    if not isinstance(parsed, dict):
        raise FormatError(name, "JSON", shorten(parsed), allowed="an object")
    file = Fields(parsed, "", name)
    file.only(*_PARTS)
    model = file.object("model")
    vocab = _read_vocab(model)
    added = _read_added(file, vocab)
    size = max([*vocab.values(), *(token.id for token in added)], default=-1) + 1
    normalizer = read_normalizer(file)
    printed = {token.id: _printed(file, token, normalizer, vocab) for token in added}
    late = [printed[token.id] for token in added if token.normalized]
    others = {*vocab, *(token.text for token in added)}
    changed = [printed[token.id] for token in added if printed[token.id] != token.text]
    if len(set(late)) < len(late) or not others.isdisjoint(changed):
        raise file.unsupported("added_tokens", "two are the same once they are normalised", allowed="different ones")
    pre_tokenizer = read_pre_tokenizer(file)
    for texts in ([token.text for token in added if not token.normalized], late):
        _check_findable(file, texts)
    decoding = read_decoder(file, byte_level=pre_tokenizer.byte_level)
    around = read_post_processor(file, size)
    text_vocab = dict(vocab)
    for token in added:
        if not token.is_text:
            text_vocab.pop(token.text, None)
    unknown = model.optional("unk_token", str)
    if unknown is not None and unknown not in vocab:
        raise model.error("unk_token", shorten(unknown), allowed="a token of the vocabulary")
    return TokenizerSpec(
        vocabulary=_vocabulary(vocab, text_vocab, printed, size, byte_level=pre_tokenizer.byte_level),
        merges=_read_merges(model, text_vocab, size),
        added=added,
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer.steps,
        byte_level=pre_tokenizer.byte_level,
        ignore_merges=bool(model.optional("ignore_merges", bool)),
        unknown_id=None if unknown is None else vocab[unknown],
        fuse_unknown=bool(model.optional("fuse_unk", bool)),
        fallback_ids=_fallback_ids(model, vocab, text_vocab),
        decoding=decoding,
        prefix_ids=around.prefix,
        suffix_ids=around.suffix,
        add_bos=bool(around.prefix),
    )


def _read_vocab(model: Fields) -> dict[str, int]:
    model.only(*_MODEL_KEYS)
    if "type" in model.values or "merges" not in model.values:  # old files do not say that they are BPE
        model.one_of("type", ("BPE",))
    for key in ("continuing_subword_prefix", "end_of_word_suffix"):
        if model.optional(key, str):
            raise model.unsupported(key, shorten(model.values[key]), allowed="none")
    if model.values.get("dropout"):
        raise model.unsupported("dropout", shorten(model.values["dropout"]), allowed="none")
    vocab: dict[str, int] = model.get("vocab", dict)
    if not vocab:
        raise model.error("vocab", "empty")
    check_text("".join(vocab), model.file, model.at("vocab"))
    ids = list(vocab.values())
    if set(map(type, ids)) != {int} or min(ids) < 0 or max(ids) >= MAX_IDS:
        wrong = next(pair for pair in vocab.items() if type(pair[1]) is not int or not 0 <= pair[1] < MAX_IDS)
        raise model.error("vocab", f"{shorten(wrong[0])} has the id {shorten(wrong[1])}", allowed=f"0 to {MAX_IDS - 1}")
    if len(set(ids)) < len(ids):
        first: dict[int, str] = {}
        token, other = next((t, first[i]) for t, i in vocab.items() if first.setdefault(i, t) != t)
        raise model.error("vocab", f"{shorten(other)} and {shorten(token)} have the same id {vocab[token]}")
    return vocab


def _read_added(file: Fields, vocab: Mapping[str, int]) -> tuple[AddedToken, ...]:
    """The added tokens. The reference gives ids itself; a file that says otherwise is refused."""
    if file.values.get("added_tokens") is None:
        return ()
    added: list[AddedToken] = []
    seen: set[str] = set()
    last = -1
    for index, entry in enumerate(file.objects("added_tokens")):
        if index == MAX_ADDED_TOKENS:
            raise file.error("added_tokens", "too many", allowed=f"at most {MAX_ADDED_TOKENS}")
        entry.only("id", "content", "single_word", "lstrip", "rstrip", "normalized", "special")
        text, token_id = entry.get("content", str), entry.get("id", int)
        if not 0 < len(text) <= MAX_ADDED_LENGTH:
            raise entry.error("content", f"{len(text)} characters", allowed=f"1 to {MAX_ADDED_LENGTH}")
        if text in seen:
            raise entry.error("content", f"{shorten(text)} was added before")
        expected = vocab.get(text, max(last + 1, len(vocab)))
        if token_id != expected:
            raise entry.error("id", str(token_id), allowed=f"{expected}, which the reference gives it")
        seen.add(text)
        last = max(last, token_id)
        flags = {key: entry.get(key, bool) for key in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        added.append(AddedToken(text, token_id, **flags))
    return tuple(added)


def _check_findable(file: Fields, texts: list[str]) -> None:
    try:
        one_of(texts)
    except ValueError as error:
        raise file.unsupported("added_tokens", f"each the beginning of the next: {error}", allowed="fewer") from None


def _printed(file: Fields, token: AddedToken, normalizer: tuple[Step, ...], vocab: Mapping[str, int]) -> str:
    """What an added token prints: in the reference, its normalised text if it is found by that."""
    text = normalize(token.text, normalizer) if token.normalized else token.text
    # The reference would print a special one, and have two texts for one of the vocabulary.
    if not text or (text != token.text and (token.special or token.text in vocab)):
        problem = f"{shorten(token.text)} becomes {shorten(text)} when it is normalised"
        raise file.unsupported(
            "added_tokens", problem, allowed="special tokens and tokens of the vocabulary as they are"
        )
    return text


def _vocabulary(
    vocab: Mapping[str, int], text_vocab: Mapping[str, int], printed: Mapping[int, str], size: int, *, byte_level: bool
) -> Vocabulary:
    """The vocabulary of all tokens; text can become those of `text_vocab`."""
    texts = {**{token_id: text for text, token_id in vocab.items()}, **printed}
    as_bytes: list[bytes]
    odd: set[int] = set()
    if byte_level:
        as_bytes, odd = all_to_bytes(list(texts.values()))
    else:
        as_bytes = [text.encode() for text in texts.values()]
    ids = list(texts)
    tokens: list[bytes | None] = [None] * size
    for token_id, token in zip(ids, as_bytes, strict=True):
        tokens[token_id] = token
    reachable = set(text_vocab.values())
    unreachable = {ids[place] for place in odd} | {token_id for token_id in printed if token_id not in reachable}
    return Vocabulary(tokens, frozenset(unreachable))


def _read_merges(model: Fields, vocab: Mapping[str, int], size: int) -> MergeTable:
    merges: list[Any] = model.get("merges", list)
    kinds = set(map(type, merges))
    if len(kinds) > 1 or not kinds <= {str, list}:
        raise model.error("merges", "not all alike", allowed="strings, or lists of two strings")
    try:
        return resolve_merges(merges, vocab, size)
    except MergeError as error:
        raise model.error(f"merges[{error.index}]", str(error)) from None


def _fallback_ids(model: Fields, vocab: Mapping[str, int], text_vocab: Mapping[str, int]) -> tuple[int, ...]:
    if not model.optional("byte_fallback", bool):
        return ()
    tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    added = next((token for token in tokens if token in vocab and token not in text_vocab), None)
    if added is not None:
        problem = f"{added} is an added token as well, so that text could become it"
        raise model.unsupported("byte_fallback", problem, allowed="byte tokens that are no added tokens")
    return tuple(vocab.get(token, -1) for token in tokens)
