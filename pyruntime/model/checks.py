"""What every executor refuses, in the same words: ids, lengths and contexts that cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyruntime.errors import ContextOverflowError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyruntime.model.config import ModelConfig


def checked_ids(ids: Sequence[int], vocab_size: int) -> NDArray[np.int32]:
    """The ids (n,); ParameterError when there is none, or one that is no id of the vocabulary."""
    if len(ids) == 1 and type(ids[0]) is int and 0 <= ids[0] < vocab_size:
        return np.array(ids, np.int32)  # the usual case, in a tenth of the time
    array = np.asarray(ids)
    allowed = f"at least one token id, each an integer 0 … {vocab_size - 1}"
    if array.ndim != 1 or not array.size or array.dtype.kind not in "iu":
        raise ParameterError("ids", ids, allowed)
    outside = array[(array < 0) | (array >= vocab_size)]
    if outside.size:
        raise ParameterError("ids", int(outside[0]), allowed)
    return array.astype(np.int32)


def check_id(token_id: int, vocab_size: int) -> None:
    """ParameterError when this is no id of the vocabulary."""
    if type(token_id) is not int or not 0 <= token_id < vocab_size:
        raise ParameterError("id", token_id, f"an integer 0 … {vocab_size - 1}")


def check_context(context: int, config: ModelConfig) -> None:
    """ParameterError when the model was not made for so many positions."""
    if not 1 <= context <= config.context_length:
        raise ParameterError("context", context, f"1 … {config.context_length}, the model's own")


def check_room(n: int, length: int, context: int) -> None:
    """ContextOverflowError when `n` more positions do not fit behind `length` others."""
    if length + n > context:
        advice = "Shorten the prompt, or open the model with more context"
        raise ContextOverflowError(length + n, context, advice=advice)


def check_truncation(length: int, present: int) -> None:
    """ParameterError when a cache of `present` positions cannot be cut to `length`."""
    if not 0 <= length <= present:
        raise ParameterError("length", length, f"0 … {present}, the positions in the cache")
