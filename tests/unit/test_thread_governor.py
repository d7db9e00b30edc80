from __future__ import annotations

import pytest

from pyruntime.model.thread_governor import CALM_RUNS, TRIAL_RUNS, ThreadGovernor


def drive(governor, runs, seconds):
    """Threads of each run, where a run with n threads takes `seconds[n]`."""
    chosen = []
    for _ in range(runs):
        threads = governor.choose()
        governor.record(threads, seconds[threads])
        chosen.append(threads)
    return chosen


def test_all_threads_compute_while_they_are_the_fastest():
    chosen = drive(ThreadGovernor(2), 1000, {1: 2.0, 2: 1.0})
    assert chosen[0] == 2
    assert chosen.count(2) / len(chosen) > 0.94


def test_one_thread_is_taken_soon_after_others_take_the_cores_and_all_again_when_they_are_free():
    governor = ThreadGovernor(2)
    drive(governor, 100, {1: 2.0, 2: 1.0})
    crowded = drive(governor, 200, {1: 2.2, 2: 4.0})
    assert crowded.index(1) < 40
    assert crowded[60:].count(1) / 140 > 0.85
    free = drive(governor, 300, {1: 2.0, 2: 1.0})
    assert free[150:].count(2) / 150 > 0.9


def test_half_of_the_threads_can_be_the_best():
    assert drive(ThreadGovernor(8), 1000, {1: 3.0, 4: 1.0, 8: 1.5})[-200:].count(4) > 180


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_difference_in_the_noise_changes_nothing(most):
    governor = ThreadGovernor(most)
    chosen = drive(governor, 500, {1: 0.99, 2: 1.0, 3: 1.0})
    assert chosen.count(most) > 460


def test_one_thread_is_all_there_is():
    assert set(drive(ThreadGovernor(1), 300, {1: 1.0})) == {1}


def test_trials_become_rare_where_single_runs_are_slow_now_and_then():
    """Every twelfth run was a trial's beginning where the page took a core for one run in ten."""
    governor = ThreadGovernor(2)
    fewer = 0
    for n in range(2000):
        threads = governor.choose()
        fewer += threads == 1
        governor.record(threads, 1.4 if threads == 1 else 2.0 if n % 10 == 0 else 1.0)
    assert fewer <= TRIAL_RUNS * 8


@pytest.mark.parametrize("start", range(20))
def test_disturbances_that_last_for_some_runs_decide_nothing(start):
    """A frame of the page slowed down three to five neighbouring runs: one thread was taken for a hundred tokens."""
    governor = ThreadGovernor(2)
    fewer = 0
    for n in range(2000):
        threads = governor.choose()
        fewer += threads == 1
        seconds = 1.6 if threads == 1 else 1.0
        governor.record(threads, seconds * (2.5 if (n + start) % 20 < 5 else 1))
    assert fewer <= TRIAL_RUNS * 8


def test_a_change_is_noticed_even_after_a_long_calm():
    governor = ThreadGovernor(2)
    drive(governor, 20 * CALM_RUNS, {1: 2.0, 2: 1.0})
    crowded = drive(governor, 200, {1: 2.2, 2: 4.0})
    assert crowded[60:].count(1) / 140 > 0.85
