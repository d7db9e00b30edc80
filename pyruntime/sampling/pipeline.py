"""From a vector of logits to one token id.

The order of the steps is fixed:

    copy of the logits → mask → logit bias → presence and frequency penalty → temperature → top-k → top-p → min-p → draw

The mask says which tokens are possible at all; without one all are. Every step is invariant under adding a constant to
all logits; penalties are subtracted and count generated tokens only. There is no multiplicative repetition penalty: it
treats positive and negative logits differently, so its effect depends on where the model happens to put zero.

All arithmetic is float64. Nothing here knows models, text or the cache.

Sources: top-p (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019), min-p (Nguyen et al.,
"Turning Up the Heat: Min-p Sampling", 2024).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pyruntime.errors import ParameterError
from pyruntime.sampling import handful
from pyruntime.sampling.logprobs import Logprobs, logprobs
from pyruntime.sampling.shortlist import Shortlist, enough_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyruntime.sampling.mask import TokenMask
    from pyruntime.sampling.params import SamplingParams

Floats = npt.NDArray[np.float64]
Allowed = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.intp]

_FEW = 1024  # so few are weighed at once, which is quicker than leaving some out first
_FIRST_PLACES = np.arange(_FEW, dtype=np.intp)


def probabilities(
    logits: npt.ArrayLike,
    params: SamplingParams,
    counts: Mapping[int, int] | None = None,
    allowed: Allowed | None = None,
) -> npt.NDArray[np.float64]:
    """The distribution the draw uses.

    Args:
        logits: (vocab,) finite numbers; -inf means impossible.
        params: the sampling parameters.
        counts: token id → how often it was generated so far.
        allowed: (vocab,) which tokens are possible; all, if not given.

    Returns:
        (vocab,) float64 probabilities that sum to 1; 0 for every token that was filtered out.

    Raises:
        ParameterError: a logit is NaN or +inf, no token is possible, an id is outside the vocabulary, or the mask has
            another size.
    """
    vector = np.asarray(logits, dtype=np.float64)
    ids, kept = candidates(vector, params, counts or {}, allowed)
    result = np.zeros(vector.shape[0], dtype=np.float64)
    result[ids] = kept
    return result


def candidates(
    logits: npt.ArrayLike, params: SamplingParams, counts: Mapping[int, int], allowed: Allowed | None = None
) -> tuple[Ids, Floats]:
    """The tokens that survive every filter and their probabilities, in ascending order of id.

    Returns:
        (n,) token ids and (n,) float64 probabilities that sum to 1.
    """
    return _survivors(_adjust(logits, params, counts, allowed), params)


def candidates_among(
    ids: npt.NDArray[np.integer[Any]],
    logits: npt.ArrayLike,
    params: SamplingParams,
    counts: Mapping[int, int],
    vocab_size: int,
) -> tuple[Ids, Floats]:
    """As `candidates`, from those logits that `shortlist.enough_for` asks for: `logits` of the ascending `ids`."""
    adjusted = np.array(logits, dtype=np.float64)
    for token_id, change in _changes(params, counts, vocab_size):
        place = int(np.searchsorted(ids, token_id))
        if place < len(ids) and ids[place] == token_id:
            adjusted[place] += change
    places, kept = _survivors(adjusted, params)
    return ids[places].astype(np.intp), kept


def adjustments(params: SamplingParams, counts: Mapping[int, int]) -> dict[int, float]:
    """Token id → what bias and penalties add to its logit, for the ids that they touch."""
    changes = dict(params.logit_bias)
    if params.presence_penalty or params.frequency_penalty:
        for token_id, count in counts.items():
            if count > 0:
                penalty = params.presence_penalty + params.frequency_penalty * count
                changes[token_id] = changes.get(token_id, 0.0) - penalty
    return changes


def _survivors(adjusted: Floats, params: SamplingParams) -> tuple[Ids, Floats]:
    """Places of the logits that survive every filter, ascending, and their probabilities."""
    highest = _highest(adjusted)
    if params.temperature == 0:
        best = np.array([int(np.argmax(adjusted))], dtype=np.intp)
        return best, np.ones(1)
    if params.min_p > 0 and len(adjusted) <= _FEW:
        ids = _FIRST_PLACES[: len(adjusted)]  # min-p leaves out the impossible ones, whose weight is 0
    elif params.min_p > 0 and params.top_k == 0 and params.top_p == 1:
        # min-p alone needs no sum over the vocabulary: p >= min_p · p_max is exp((x - max) / T) >= min_p. A first
        # cut with a little slack leaves tens of tokens, on which `_keep_min_p` decides with the exact comparison.
        floor = highest + params.temperature * (np.log(params.min_p) - 1e-9)
        ids = np.flatnonzero(adjusted >= floor)
    else:
        ids = np.flatnonzero(adjusted > -np.inf)
    weights = np.exp(adjusted[ids] / params.temperature - highest / params.temperature)
    if 0 < params.top_k < ids.shape[0]:
        ids, weights = _keep_top_k(ids, weights, params.top_k)
    if params.top_p < 1:
        ids, weights = _keep_top_p(ids, weights, params.top_p)
    if params.min_p > 0:
        ids, weights = _keep_min_p(ids, weights, params.min_p)
    return ids, weights / weights.sum()


class Sampler:
    """Draws the tokens of one answer: counts what it has drawn and owns the random stream.

    Args:
        params: the sampling parameters.
        mask: says at each place which tokens are possible.

    Attributes:
        params: as given.
        seed: of the random stream.
        logprobs: what the model itself thought of the token drawn last; None unless the parameters ask for it.
    """

    def __init__(self, params: SamplingParams, mask: TokenMask | None = None) -> None:
        self.params = params
        self.logprobs: Logprobs | None = None
        self._mask = mask
        self.seed = params.seed if params.seed is not None else random.SystemRandom().getrandbits(53)
        # random.Random.random() is the one stream that Python promises to keep the same across versions.
        self._random = random.Random(self.seed)
        self._counts: dict[int, int] = {}
        self._is_simple = handful.is_enough_for(params)
        self._shortlist: Shortlist | None = None  # where it does not depend on what was drawn

    def sample(self, logits: npt.ArrayLike) -> int:
        """The next token id, drawn from `probabilities(logits, params, counts so far)`."""
        allowed = self._mask.allowed() if self._mask else None
        token_id = self._draw(*candidates(logits, self.params, self._counts, allowed))
        if self._mask:
            self._mask.accept(token_id)
        if self.params.logprobs is not None:
            self.logprobs = logprobs(logits, token_id, self.params.logprobs)
        return token_id

    def shortlist(self) -> Shortlist | None:
        """What of the next logits `sample_among` needs; None when it is all of them, for `sample`."""
        if self._mask or self.params.logprobs is not None:
            return None
        if self._shortlist is not None:
            return self._shortlist
        shortlist = enough_for(self.params, adjustments(self.params, self._counts))
        if self._is_simple:
            self._shortlist = shortlist
        return shortlist

    def sample_among(self, ids: npt.NDArray[np.integer[Any]], logits: npt.ArrayLike, vocab_size: int) -> int:
        """As `sample`, from the logits of the ascending `ids` that `shortlist` asked for."""
        if self._is_simple and len(ids) <= handful.HANDFUL:
            return self._draw(*handful.survivors(ids.tolist(), np.asarray(logits).tolist(), self.params))
        return self._draw(*candidates_among(ids, logits, self.params, self._counts, vocab_size))

    def _draw(self, ids: Ids | Sequence[int], kept: Floats | Sequence[float]) -> int:
        place = 0
        if len(ids) > 1:
            point = self._random.random()
            sums = list(accumulate(kept)) if isinstance(kept, list) else np.cumsum(kept)
            place = bisect_right(sums, point, hi=len(ids) - 1)
        token_id = int(ids[place])
        self._counts[token_id] = self._counts.get(token_id, 0) + 1
        return token_id


def _adjust(
    logits: npt.ArrayLike, params: SamplingParams, counts: Mapping[int, int], allowed: Allowed | None
) -> Floats:
    adjusted = np.array(logits, dtype=np.float64)
    if adjusted.ndim != 1 or adjusted.shape[0] == 0:
        raise ParameterError("logits", adjusted.shape, "one vector of at least one number")
    if allowed is not None:
        if allowed.shape != adjusted.shape:
            raise ParameterError("allowed", allowed.shape, f"one truth value for each of {adjusted.shape[0]} tokens")
        adjusted[~allowed] = -np.inf
    for token_id, change in _changes(params, counts, adjusted.shape[0]):
        adjusted[token_id] += change
    return adjusted


def _changes(params: SamplingParams, counts: Mapping[int, int], vocab_size: int) -> Iterable[tuple[int, float]]:
    changes = adjustments(params, counts)
    for token_id in changes:
        if not 0 <= token_id < vocab_size:
            name = "logit_bias" if token_id in params.logit_bias else "counts"
            raise ParameterError(name, token_id, f"token ids in [0, {vocab_size - 1}]")
    return changes.items()


def _highest(adjusted: Floats) -> float:
    highest = float(adjusted.max())
    if np.isnan(highest) or highest == np.inf:
        raise ParameterError("logits", highest, "finite numbers or -inf", advice="The model's output is damaged")
    if highest == -np.inf:
        raise ParameterError("logits", highest, "at least one finite number", advice="No token is possible here")
    return highest


# Sorting a whole vocabulary takes a browser longer than computing the token: the next two sort only what may survive.


def _keep_top_k(ids: Ids, weights: Floats, k: int) -> tuple[Ids, Floats]:
    among = np.flatnonzero(weights >= np.partition(weights, -k)[-k])
    kept = np.sort(among[np.argsort(-weights[among], kind="stable")[:k]])
    return ids[kept], weights[kept]


def _keep_top_p(ids: Ids, weights: Floats, top_p: float) -> tuple[Ids, Floats]:
    shares = weights / weights.sum()
    # All that are smaller than this make no more than half of 1 - top_p together, so the others reach top_p.
    among = np.flatnonzero(shares >= (1 - top_p) / (2 * len(shares)))
    order = among[np.argsort(-weights[among], kind="stable")]
    kept = np.sort(order[: int(np.searchsorted(np.cumsum(shares[order]), top_p, side="left")) + 1])
    return ids[kept], weights[kept]


def _keep_min_p(ids: Ids, weights: Floats, min_p: float) -> tuple[Ids, Floats]:
    kept = weights >= min_p * weights.max()
    return ids[kept], weights[kept]
