"""Which few logits are enough to draw as from all of them.

A vocabulary has 50,000 to 150,000 tokens, of which sampling keeps tens. An executor that can pick the large logits itself
saves copying and sorting the rest. What is asked for here is never too little: whatever bias and penalties do, a token
that is left out could not have survived.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyruntime.sampling.params import SamplingParams

# Executors compute the floor in float32: for logits below 2^10 it is off by less than 2^-13.
_SLACK = 1e-3


class Shortlist(NamedTuple):
    """What is enough: the largest logits, no more than `most`, none further than `below` under the largest.

    Attributes:
        below: logits; math.inf when there is no such limit.
        most: tokens; None when there is no such limit.
    """

    below: float
    most: int | None


def enough_for(params: SamplingParams, adjustments: Mapping[int, float]) -> Shortlist | None:
    """What is enough for `params`; None when all logits are needed.

    Args:
        params: the sampling parameters.
        adjustments: token id → what is added to its logit before the filters.
    """
    highest, lowest = max(0.0, *adjustments.values(), 0.0), min(0.0, *adjustments.values(), 0.0)
    # The largest may sink by `lowest`, and another rise by `highest`, before they are compared.
    spread = highest - lowest + _SLACK
    if params.temperature == 0:
        return Shortlist(spread, None)
    below, most = math.inf, None
    if params.min_p > 0 and params.top_p == 1:
        below = spread - params.temperature * math.log(params.min_p)
    if params.top_k > 0 and highest == 0:
        most = params.top_k + len(adjustments)  # so many of the largest may sink out of the first k
    return None if most is None and below == math.inf else Shortlist(below, most)
