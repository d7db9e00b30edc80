"""What the model itself thought of a token: log-probabilities of the distribution that nothing has changed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of probabilities at one place of an answer.

    Attributes:
        token_id: the token that was drawn.
        logprob: its own.
        top: (token id, log-probability) of the most probable tokens, best first, lower ids first among equals.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


def logprobs(logits: npt.ArrayLike, token_id: int, count: int) -> Logprobs:
    """The log-probabilities of a token that was drawn and of the `count` most probable ones.

    Args:
        logits: (vocab,) as the model gave them.
        token_id: the token drawn.
        count: how many of the most probable ones.
    """
    vector = np.asarray(logits, dtype=np.float64)
    highest = vector.max()
    logs = vector - (highest + np.log(np.exp(vector - highest).sum()))
    # Sorting 150,000 numbers takes longer than drawing from them: only those that may be among the best are sorted.
    count = min(count, vector.shape[0])
    least = np.partition(vector, -count)[-count] if count else np.inf
    among = np.flatnonzero(vector >= least)
    best = among[np.argsort(-vector[among], kind="stable")[:count]]
    return Logprobs(token_id, float(logs[token_id]), tuple((int(i), float(logs[i])) for i in best))
