"""The rotations of rotary position embeddings, plain and scaled for contexts longer than a model was first trained for.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021); Peng et al., "YaRN: Efficient Context
Window Extension of Large Language Models" (2023); the Llama 3.1 model card for its scaling.

Every step is rounded to float32 where the reference (transformers) rounds it. Far into a long context this moves an angle
by more than all other float32 errors together, so a "more exact" frequency would be the less faithful one. Only powers
are taken in float64: float32 powers differ by platform in their last bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyruntime.model.config import ModelConfig


@dataclass(frozen=True)
class LinearScaling:
    """Every frequency is divided by `factor`."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Slow pairs are divided by `factor`, fast ones stay, those between are mixed.

    Attributes:
        factor: by which the context has grown.
        low_freq_factor: pairs that turn less often than this within `original_context` are slow.
        high_freq_factor: pairs that turn more often are fast; larger than `low_freq_factor`.
        original_context: positions of the first training.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True)
class YarnScaling:
    """As `Llama3Scaling`, mixed by the pair's number, and with all rotations stretched.

    Attributes:
        factor: by which the context has grown.
        original_context: positions of the first training.
        attention_factor: the stretch; `yarn_attention_factor` has the usual one.
        beta_fast: pairs that turn more often than this within `original_context` stay as they are.
        beta_slow: pairs that turn less often are divided by `factor`.
        truncate: the two borders are rounded to whole pairs, outwards.
    """

    factor: float
    original_context: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True)
class DividedFrequencies:
    """Each pair's frequency is divided by a number of its own, which the model's file lists: one per pair."""

    divisors: tuple[float, ...]


RopeScaling = LinearScaling | Llama3Scaling | YarnScaling | DividedFrequencies


@dataclass(frozen=True)
class Rope:
    """How the pairs of a head turn.

    Attributes:
        frequencies: radians per position, float32 (head_size / 2,).
        stretch: what every rotation is multiplied with.
    """

    frequencies: NDArray[np.float32]
    stretch: float

    @classmethod
    def of(cls, config: ModelConfig) -> Rope:
        """The rotations of a model."""
        scaling = config.rope_scaling
        stretch = scaling.attention_factor if isinstance(scaling, YarnScaling) else 1.0
        return cls(frequencies(config.head_size, config.rope_theta, scaling), stretch)

    def rotations(self, start: int, n: int) -> NDArray[np.complex64]:
        """`cos + i·sin` of every pair's angle at positions start … start + n - 1, stretched: complex64 (n, head_size / 2)."""
        angles = np.arange(start, start + n, dtype=np.float32)[:, None] * self.frequencies
        turned = np.empty(angles.shape, np.complex64)
        np.multiply(np.cos(angles), np.float32(self.stretch), out=turned.real)
        np.multiply(np.sin(angles), np.float32(self.stretch), out=turned.imag)
        return turned


def frequencies(head_size: int, theta: float, scaling: RopeScaling | None = None) -> NDArray[np.float32]:
    """Radians per position of each pair of values in a head, (head_size / 2,).

    Without scaling `1 / theta^(2j / head_size)` for pair j.
    """
    periods = _periods(head_size, theta)
    plain = np.float32(1.0) / periods
    match scaling:
        case None:
            return plain
        case LinearScaling():
            return plain / np.float32(scaling.factor)
        case Llama3Scaling():
            return _llama3(plain, scaling)
        case YarnScaling():
            return _yarn(periods, theta, scaling)
        case DividedFrequencies():
            divisors: NDArray[np.float32] = np.array(scaling.divisors, np.float32)
            return plain / divisors


def yarn_attention_factor(factor: float, scale: float = 1.0) -> float:
    """The stretch that the authors of YaRN recommend for a context `factor` times as long; `scale` weakens or
    strengthens it.
    """
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _periods(head_size: int, theta: float) -> NDArray[np.float32]:
    """Positions per radian of each pair."""
    exponents = np.arange(0, head_size, 2, dtype=np.float32) / np.float32(head_size)
    powers = np.float64(theta) ** exponents.astype(np.float64)
    return powers.astype(np.float32)


def _llama3(plain: NDArray[np.float32], scaling: Llama3Scaling) -> NDArray[np.float32]:
    factor, context = np.float32(scaling.factor), np.float32(scaling.original_context)
    low, high = np.float32(scaling.low_freq_factor), np.float32(scaling.high_freq_factor)
    wavelengths = np.float32(2 * math.pi) / plain
    slow = wavelengths > np.float32(scaling.original_context / scaling.low_freq_factor)
    fast = wavelengths < np.float32(scaling.original_context / scaling.high_freq_factor)
    share = (context / wavelengths - low) / (high - low)
    mixed = (1 - share) * plain / factor + share * plain
    return np.where(slow, plain / factor, np.where(fast, plain, mixed))


def _yarn(periods: NDArray[np.float32], theta: float, scaling: YarnScaling) -> NDArray[np.float32]:
    n = len(periods)

    def pair_that_turns(times: float) -> float:
        """The number of the pair, not a whole one, that turns so often within the original context."""
        return n * math.log(scaling.original_context / (times * 2 * math.pi)) / math.log(theta)

    first, last = pair_that_turns(scaling.beta_fast), pair_that_turns(scaling.beta_slow)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * n - 1)
    width = last - first if last != first else 0.001  # as the reference avoids dividing by nothing
    kept = 1 - np.clip((np.arange(n, dtype=np.float32) - np.float32(first)) / np.float32(width), 0, 1)
    divided = np.float32(1.0) / (np.float32(scaling.factor) * periods)
    mixed: NDArray[np.float32] = divided * (1 - kept) + np.float32(1.0) / periods * kept
    return mixed
