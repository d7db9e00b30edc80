"""Drawing from a handful of tokens with Python's own numbers: the usual case behind an executor that gives candidates.

numpy takes as long for three numbers as for a hundred, and longer still when the weights of a whole model have just been
through the processor's caches. The steps and their order are those of `pipeline.py`, as far as they apply here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyruntime.sampling.params import SamplingParams

HANDFUL = 32


def is_enough_for(params: SamplingParams) -> bool:
    """Whether `survivors` does all that `params` ask for: temperature and min-p."""
    return not (
        params.top_k or params.top_p < 1 or params.logit_bias or params.presence_penalty or params.frequency_penalty
    )


def survivors(ids: Sequence[int], logits: Sequence[float], params: SamplingParams) -> tuple[list[int], list[float]]:
    """The tokens that temperature and min-p leave of these, in their order, and their probabilities, which sum to 1.

    Args:
        ids: at least one.
        logits: of these ids, finite; the largest of all among them.
        params: `is_enough_for` them.
    """
    highest = max(logits)
    if params.temperature == 0 or len(ids) == 1:
        return [ids[logits.index(highest)]], [1.0]
    temperature = params.temperature
    kept, weights = [], []
    for token_id, logit in zip(ids, logits, strict=True):
        weight = math.exp(logit / temperature - highest / temperature)
        if weight >= params.min_p:
            kept.append(token_id)
            weights.append(weight)
    total = sum(weights)
    return kept, [weight / total for weight in weights]
