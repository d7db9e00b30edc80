"""From logits to the next token: parameters, the probability pipeline, the draw."""

from pyruntime.sampling.logprobs import Logprobs
from pyruntime.sampling.mask import TokenMask
from pyruntime.sampling.params import SamplingParams
from pyruntime.sampling.pipeline import Sampler, probabilities

__all__ = ["Logprobs", "Sampler", "SamplingParams", "TokenMask", "probabilities"]
