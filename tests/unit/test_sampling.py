import json
import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.errors import ParameterError
from pyruntime.sampling import Sampler, SamplingParams, probabilities
from pyruntime.sampling.logprobs import logprobs

PLAIN = {"temperature": 1.0, "min_p": 0.0}
LOGITS = [2.0, 1.0, 0.5, 0.0, -1.0, -3.0]


def softmax(values):
    weights = [math.exp(v - max(values)) for v in values]
    return [w / sum(weights) for w in weights]


def kept(logits=LOGITS, counts=None, **params):
    return [int(i) for i in np.flatnonzero(probabilities(logits, SamplingParams(**{**PLAIN, **params}), counts))]


def test_the_defaults_are_temperature_and_min_p_only():
    params = SamplingParams()
    assert (params.temperature, params.min_p) == (0.7, 0.05)
    assert (params.top_k, params.top_p, params.presence_penalty, params.frequency_penalty) == (0, 1.0, 0.0, 0.0)


def test_without_filters_the_distribution_is_the_softmax():
    assert probabilities(LOGITS, SamplingParams(**PLAIN)) == pytest.approx(softmax(LOGITS), abs=1e-15)


def test_temperature_divides_the_logits():
    expected = softmax([x / 0.5 for x in LOGITS])
    assert probabilities(LOGITS, SamplingParams(temperature=0.5, min_p=0)) == pytest.approx(expected, abs=1e-15)


def test_temperature_zero_takes_the_lowest_id_among_the_most_probable():
    assert probabilities([1.0, 3.0, 3.0], SamplingParams(temperature=0)).tolist() == [0, 1, 0]


def test_min_p_keeps_every_token_at_least_that_share_of_the_top_ones_probability():
    assert kept(min_p=0.3) == [0, 1]
    assert kept([1.0, 1.0, 0.0], min_p=1.0) == [0, 1]


def test_min_p_is_applied_after_the_temperature():
    assert kept(min_p=0.1, temperature=0.7) == [0, 1, 2]
    assert kept(min_p=0.1, temperature=1.3) == [0, 1, 2, 3]


def test_top_k_gives_ties_to_the_lower_ids():
    assert kept([1.0, 1.0, 1.0, 1.0], top_k=2) == [0, 1]


def test_top_p_keeps_the_smallest_set_that_reaches_it_and_always_the_first():
    assert kept(top_p=0.6) == [0, 1]
    assert kept(top_p=1e-9) == [0]


def plainly_kept(logits, top_k, top_p):
    """Which ids the two filters keep, by sorting all and adding up."""
    weights = softmax(logits)
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[: top_k or None]
    shares = [weights[i] / sum(weights[i] for i in order) for i in order]
    reached = next((n for n in range(1, len(order)) if math.fsum(shares[:n]) >= top_p), len(order))
    return sorted(order[:reached])


@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=60),
    st.integers(0, 70),
    st.sampled_from([0.05, 0.37, 0.613, 0.9, 0.977, 0.9991, 1.0]),
)
def test_top_k_and_top_p_keep_what_sorting_all_would(logits, top_k, top_p):
    logits = [value * 0.73 for value in logits]
    assert kept(logits, top_k=top_k, top_p=top_p) == plainly_kept(logits, top_k, top_p)


@pytest.mark.parametrize("params", [{"top_k": 40}, {"top_p": 0.9}])
def test_only_what_may_survive_is_sorted(monkeypatch, params):
    """Sorting a vocabulary took longer than computing the token."""
    logits = np.random.default_rng(1).normal(0, 1.5, 50_000)
    logits[:40] += 12
    lengths, argsort = [], np.argsort
    monkeypatch.setattr(np, "argsort", lambda array, **kind: lengths.append(len(array)) or argsort(array, **kind))
    assert 0 < len(kept(logits, **params)) <= 40
    assert 0 < max(lengths) < 5_000


def test_filters_run_in_the_documented_order():
    # Two tokens survive top-k; of their renormalised shares the first alone reaches 0.7.
    assert kept(top_k=2, top_p=0.7) == [0]
    assert kept(top_p=0.7) == [0, 1]


def test_penalties_are_subtracted_and_count_generated_tokens_only():
    found = probabilities(
        LOGITS, SamplingParams(presence_penalty=1.0, frequency_penalty=0.5, **PLAIN), {0: 2, 3: 1, 5: 0}
    )
    assert found == pytest.approx(softmax([0.0, 1.0, 0.5, -1.5, -1.0, -3.0]), abs=1e-15)


def test_a_bias_is_added():
    found = probabilities(LOGITS, SamplingParams(logit_bias={3: 5.0}, **PLAIN))
    assert found == pytest.approx(softmax([2.0, 1.0, 0.5, 5.0, -1.0, -3.0]), abs=1e-15)


def test_the_logits_given_are_not_changed():
    logits = np.array(LOGITS)
    probabilities(logits, SamplingParams(logit_bias={0: 9.0}, presence_penalty=1.0), {1: 1})
    assert logits.tolist() == LOGITS


@pytest.mark.parametrize("bad", [[math.nan, 1.0], [math.inf, 1.0], [-math.inf, -math.inf], []])
def test_damaged_logits_are_an_error_and_not_a_silent_token(bad):
    with pytest.raises(ParameterError, match="logits"):
        probabilities(bad, SamplingParams())


params_strategy = st.builds(
    SamplingParams,
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 12),
    top_p=st.floats(0.05, 1),
    min_p=st.floats(0, 1),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
)
# Multiples of 1/64 stay exact under the shift, so that ties stay ties.
logits_strategy = st.lists(st.integers(-640, 640).map(lambda n: n / 64), min_size=1, max_size=12)


@given(
    logits_strategy, params_strategy, st.integers(-2000, 2000), st.dictionaries(st.integers(0, 11), st.integers(1, 4))
)
def test_adding_a_constant_to_all_logits_changes_nothing(logits, params, shift, counts):
    counts = {i: n for i, n in counts.items() if i < len(logits)}
    before = probabilities(logits, params, counts)
    after = probabilities([x + shift for x in logits], params, counts)
    assert after == pytest.approx(before, abs=1e-9)


@given(logits_strategy, params_strategy)
def test_the_most_probable_token_always_survives_and_the_rest_sums_to_one(logits, params):
    found = probabilities(logits, params)
    assert found[int(np.argmax(logits))] == found.max() > 0
    assert found.sum() == pytest.approx(1, abs=1e-12)


def test_a_seed_makes_the_draws_reproducible():
    params = SamplingParams(seed=7, temperature=2.0, min_p=0)
    first, second, other = Sampler(params), Sampler(params), Sampler(SamplingParams(seed=8, temperature=2.0, min_p=0))
    draws = [first.sample(LOGITS) for _ in range(50)]
    assert draws == [second.sample(LOGITS) for _ in range(50)]
    assert draws != [other.sample(LOGITS) for _ in range(50)]


def test_draws_follow_the_distribution():
    params = SamplingParams(seed=1, **PLAIN)
    sampler = Sampler(params)
    counts = Counter(sampler.sample(LOGITS) for _ in range(20_000))
    for token_id, share in enumerate(softmax(LOGITS)):
        assert counts[token_id] / 20_000 == pytest.approx(share, abs=0.02)


def test_the_sampler_counts_what_it_drew_for_the_penalties():
    sampler = Sampler(SamplingParams(temperature=0, presence_penalty=3.0))
    assert [sampler.sample([1.0, 0.5, 0.0]) for _ in range(3)] == [0, 1, 2]


def test_a_mask_comes_before_everything_else_and_lets_only_what_it_allows_through():
    allowed = np.array([False, True, False, True, True, True])
    found = probabilities(LOGITS, SamplingParams(**PLAIN), {}, allowed)
    expected = softmax([LOGITS[i] for i in (1, 3, 4, 5)])
    assert found == pytest.approx([0, expected[0], 0, *expected[1:]], abs=1e-15)
    # No bias brings back what the mask forbids; filters count among what is left.
    params = SamplingParams(**{**PLAIN, "top_k": 1, "logit_bias": {0: 100.0}})
    assert np.flatnonzero(probabilities(LOGITS, params, {}, allowed)).tolist() == [1]


def test_a_mask_of_another_size_or_that_allows_nothing_is_an_error():
    with pytest.raises(ParameterError, match="allowed"):
        probabilities(LOGITS, SamplingParams(), {}, np.ones(5, dtype=bool))
    with pytest.raises(ParameterError, match="No token is possible here"):
        probabilities(LOGITS, SamplingParams(), {}, np.zeros(6, dtype=bool))


class Alternating:
    """Allows even and odd tokens in turn, after a first one that is free."""

    def __init__(self):
        self.seen = []

    def allowed(self):
        return np.arange(6) % 2 == len(self.seen) % 2 if self.seen else None

    def accept(self, token_id):
        self.seen.append(token_id)


def test_a_sampler_with_a_mask_asks_it_at_each_place_and_tells_it_what_came():
    mask = Alternating()
    sampler = Sampler(SamplingParams(temperature=0), mask)
    assert sampler.shortlist() is None
    assert [sampler.sample(LOGITS) for _ in range(4)] == [0, 1, 0, 1]
    assert mask.seen == [0, 1, 0, 1]


def test_log_probabilities_are_those_of_the_model_whatever_the_parameters_do():
    params = SamplingParams(temperature=0, logit_bias={5: 100.0}, logprobs=2)
    sampler = Sampler(params)
    assert sampler.shortlist() is None
    assert sampler.sample(LOGITS) == 5
    logs = [math.log(p) for p in softmax(LOGITS)]
    assert sampler.logprobs.token_id == 5
    assert sampler.logprobs.logprob == pytest.approx(logs[5])
    assert sampler.logprobs.top == ((0, pytest.approx(logs[0])), (1, pytest.approx(logs[1])))


@pytest.mark.parametrize(("count", "ids"), [(0, []), (2, [1, 3]), (3, [1, 3, 4]), (9, [1, 3, 4, 0, 2])])
def test_the_most_probable_tokens_come_best_first_and_lower_ids_first_among_equals(count, ids):
    found = logprobs([0.0, 2.0, -math.inf, 2.0, 2.0], 2, count)
    assert [token_id for token_id, _ in found.top] == ids
    assert found.logprob == -math.inf


def test_without_being_asked_for_there_are_no_log_probabilities():
    sampler = Sampler(SamplingParams())
    sampler.sample(LOGITS)
    assert sampler.logprobs is None


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -0.1, "[0, 100]"),
        ("temperature", math.nan, "[0, 100]"),
        ("temperature", 1e-9, "0 (the most probable token) or a number in [1e-06, 100]"),
        ("top_k", -1, ">= 0"),
        ("top_k", 2.0, "an integer"),
        ("top_p", 0.0, "(0, 1]"),
        ("min_p", 1.5, "[0, 1]"),
        ("presence_penalty", "much", "a number"),
        ("seed", -1, "[0,"),
        ("max_tokens", 0, ">= 1"),
        ("thinking_budget", -1, ">= 0"),
        ("logprobs", 21, "[0, 20]"),
        ("stop", "text", "tuple"),
        ("stop", ("",), "at least one character"),
        ("logit_bias", {"a": 1.0}, "an integer"),
    ],
)
def test_a_parameter_outside_its_interval_is_named_with_value_and_interval(name, value, allowed):
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**{name: value})
    assert name in str(caught.value)
    assert allowed in str(caught.value)


def test_every_case_of_the_shared_corpus_has_its_probabilities(shared):
    cases = json.loads((shared / "corpus" / "sampler_cases.json").read_text())["cases"]
    assert len(cases) >= 68
    for case in cases:
        given_params = case["params"]
        params = SamplingParams(
            temperature=given_params.get("temperature", 1.0),
            top_k=given_params.get("top_k", 0),
            top_p=given_params.get("top_p", 1.0),
            min_p=given_params.get("min_p", 0.0),
            presence_penalty=given_params.get("presence", 0.0),
            frequency_penalty=given_params.get("frequency", 0.0),
            logit_bias={int(i): bias for i, bias in given_params.get("logit_bias", {}).items()},
        )
        logits = [float(x) for x in case["logits"]]
        counts = Counter(given_params.get("history", []))
        if "expected_error" in case:
            with pytest.raises(ParameterError):
                probabilities(logits, params, counts)
        else:
            assert probabilities(logits, params, counts) == pytest.approx(case["probs"], abs=1e-12), case["id"]
