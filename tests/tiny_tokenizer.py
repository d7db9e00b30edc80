"""Tiny tokenizers for tests: the byte alphabet, the merges a test asks for, and its added tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyruntime.text import Tokenizer
from pyruntime.text.byte_alphabet import CHARACTERS

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def tokenizer_metadata(
    merges: Sequence[str] = (),
    /,
    *,
    pre: str = "gpt-2",
    added: Mapping[str, int] | None = None,
    without: Sequence[str] = (),
    **changes,
) -> dict:
    """GGUF metadata of a tokenizer.

    Args:
        merges: "LEFT RIGHT" in the byte alphabet; what they make is put into the vocabulary.
        pre: the pre-tokenizer's name.
        added: added tokens and their types.
        without: characters of the byte alphabet to leave out.
        changes: further `tokenizer.ggml.` keys; None takes a key out.
    """
    added = {"<|end|>": CONTROL} if added is None else added
    made = dict.fromkeys(merge.replace(" ", "") for merge in merges)
    plain = [*(character for character in CHARACTERS if character not in without), *made]
    tokens = [*plain, *added]
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [NORMAL] * len(plain) + list(added.values()),
        "merges": list(merges),
        **changes,
    }
    return {f"tokenizer.ggml.{key}": value for key, value in keys.items() if value is not None}


def tiny_tokenizer(merges: Sequence[str] = (), /, **options) -> Tokenizer:
    """The tokenizer of `tokenizer_metadata` with the same arguments."""
    return Tokenizer.from_metadata(tokenizer_metadata(merges, **options), "tiny.gguf")


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[bytes | None]:
    """What each id stands for."""
    return [tokenizer.token_bytes(token_id) for token_id in ids]
