"""From logits to the next token: parameters, the probability pipeline, the draw."""

from pyruntime.sampling.params import SamplingParams
from pyruntime.sampling.pipeline import Sampler, probabilities

__all__ = ["Sampler", "SamplingParams", "probabilities"]
