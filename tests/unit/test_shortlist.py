"""A draw from the few logits that are asked for is the draw from all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyruntime.errors import ParameterError
from pyruntime.sampling import Sampler, SamplingParams
from pyruntime.sampling.pipeline import adjustments, candidates, candidates_among
from pyruntime.sampling.shortlist import enough_for

VOCAB = 60


def picked(logits, shortlist):
    """What an executor answers: the floor in float32, of equal logits the first."""
    floor = np.float32(logits.max()) - np.float32(shortlist.below)
    order = np.argsort(-logits, kind="stable")
    ids = np.sort([i for i in order if logits[i] >= floor][: shortlist.most])
    return ids, logits[ids]


some_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 5, 40]),
    top_p=st.sampled_from([1.0, 0.9, 0.2]),
    min_p=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    presence_penalty=st.sampled_from([0.0, 1.5, -2.0]),
    frequency_penalty=st.sampled_from([0.0, 0.7, -0.7]),
    logit_bias=st.dictionaries(st.integers(0, VOCAB - 1), st.sampled_from([-50.0, -1.0, 3.0, 40.0]), max_size=4),
)


@settings(max_examples=500, deadline=None)
@given(
    params=some_params,
    seed=st.integers(0, 2**32 - 1),
    digits=st.sampled_from([0, 1, 6]),
    counts=st.dictionaries(st.integers(0, VOCAB - 1), st.integers(0, 5), max_size=6),
)
def test_the_distribution_is_the_same(params, seed, digits, counts):
    logits = (4 * np.random.default_rng(seed).standard_normal(VOCAB)).round(digits).astype(np.float32)
    shortlist = enough_for(params, adjustments(params, counts))
    if shortlist is None:
        return
    ids, kept = candidates(logits, params, counts)
    found, among = candidates_among(*picked(logits, shortlist), params, counts, VOCAB)
    np.testing.assert_array_equal(found, ids)
    np.testing.assert_array_equal(among, kept)


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        (SamplingParams(temperature=0), (0.001, None)),
        (SamplingParams(temperature=2, min_p=0.1, top_k=0, top_p=1), (0.001 - 2 * math.log(0.1), None)),
        (SamplingParams(temperature=1, min_p=0, top_k=7, top_p=0.9), (math.inf, 7)),
        (SamplingParams(temperature=1, min_p=0, top_k=0, top_p=0.9), None),
        (SamplingParams(temperature=1, min_p=0, top_k=7, top_p=1, logit_bias={3: 1.0}), None),
        (SamplingParams(temperature=1, min_p=0, top_k=7, top_p=1, logit_bias={3: -1.0}), (math.inf, 8)),
    ],
)
def test_what_is_enough(params, expected):
    assert enough_for(params, adjustments(params, {})) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.5, min_p=0.02, presence_penalty=1.0, seed=3),
        SamplingParams(temperature=0),
        SamplingParams(seed=4),  # a handful
        SamplingParams(temperature=4, min_p=0.3, seed=5),
        SamplingParams(temperature=0.7, min_p=1.0, seed=6),
        SamplingParams(temperature=50, min_p=0.5, seed=7),  # more than that
    ],
)
def test_the_draws_of_an_answer_are_the_same(params):
    whole, short = Sampler(params), Sampler(params)
    random = np.random.default_rng(5)
    for _ in range(50):
        logits = (3 * random.standard_normal(VOCAB)).astype(np.float32)
        assert short.sample_among(*picked(logits, short.shortlist()), VOCAB) == whole.sample(logits)


def test_a_bias_for_no_token_of_the_vocabulary_is_refused():
    sampler = Sampler(SamplingParams(temperature=0, logit_bias={VOCAB: 1.0}))
    with pytest.raises(ParameterError, match="logit_bias: 60 is not allowed"):
        sampler.sample_among(np.array([1]), np.ones(1), VOCAB)
