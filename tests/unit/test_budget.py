"""The context budget: whole oldest turns give way, the system prompt and the newest turn never do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.chat.budget import Fitted, default_reserve, fit
from pyruntime.errors import ContextOverflowError, ParameterError

SYSTEM = {"role": "system", "content": "x" * 10}


def say(role, length):
    return {"role": role, "content": "x" * length}


def encode(messages):
    """One token for each character, and one for each message."""
    return [1] * sum(len(message["content"]) + 1 for message in messages)


def left_out(messages, context, reserve=5):
    return fit(messages, encode, context=context, reserve=reserve).left_out


TALK = [SYSTEM, say("user", 9), say("assistant", 9), say("user", 9), say("assistant", 9), say("user", 9)]  # 11 + 5 · 10


@pytest.mark.parametrize(
    ("context", "expected"), [(66, ()), (65, (1, 2)), (46, (1, 2)), (45, (1, 2, 3, 4)), (26, (1, 2, 3, 4))]
)
def test_whole_oldest_turns_are_left_out_until_it_fits(context, expected):
    assert left_out(TALK, context) == expected


def test_what_can_never_fit_is_an_error_with_the_numbers():
    with pytest.raises(ContextOverflowError, match=r"needs 26 tokens and the context has 25\. Shorten") as caught:
        left_out(TALK, 25)
    assert (caught.value.needed, caught.value.have) == (26, 25)


def test_a_turn_keeps_its_calls_and_their_results():
    messages = [SYSTEM, say("user", 4), say("assistant", 0), say("tool", 30), say("assistant", 4), say("user", 4)]
    assert left_out(messages, 40) == (1, 2, 3, 4)


def test_the_newest_turn_keeps_what_already_followed_it():
    messages = [say("user", 30), say("assistant", 4), say("user", 4), say("assistant", 0), say("tool", 4)]
    assert left_out(messages, 20) == (0, 1)


def test_what_stands_before_the_first_question_is_a_turn_of_its_own():
    assert left_out([say("assistant", 30), say("user", 4), say("assistant", 4), say("user", 4)], 20) == (0,)


def test_all_leading_messages_of_the_system_are_pinned():
    messages = [
        SYSTEM,
        {"role": "developer", "content": "x" * 10},
        say("user", 30),
        say("assistant", 4),
        say("user", 4),
    ]
    assert left_out(messages, 40) == (2, 3)


def test_a_system_prompt_alone_is_a_prompt_too():
    assert left_out([SYSTEM], 16) == ()


@pytest.mark.parametrize("reserve", [0, -1, 1.5, True])
def test_the_reserve_is_checked(reserve):
    with pytest.raises(ParameterError, match="reserve"):
        left_out(TALK, 100, reserve)


@pytest.mark.parametrize(
    ("context", "max_tokens", "expected"),
    [(4096, None, 512), (4096, 100, 100), (1000, None, 250), (1000, 900, 250), (2, None, 1)],
)
def test_the_default_reserve_is_bounded_by_the_answer_and_the_context(context, max_tokens, expected):
    assert default_reserve(context, max_tokens) == expected


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=20),
    st.integers(1, 200),
    st.one_of(st.none(), st.integers(-1, 30)),
)
def test_the_search_finds_what_leaving_out_one_turn_after_the_other_finds(turns, context, guess):
    messages = [SYSTEM]
    for question, reply in turns:
        messages += [say("user", question), say("assistant", reply)]
    messages.append(say("user", 3))
    for turn in range(len(turns) + 1):
        kept = [messages[0], *messages[1 + 2 * turn :]]
        if len(encode(kept)) + 5 <= context:
            expected = Fitted(encode(kept), tuple(range(1, 1 + 2 * turn)), len(turns) + 1 - turn)
            assert fit(messages, encode, context=context, reserve=5, guess=guess) == expected
            return
    with pytest.raises(ContextOverflowError):
        left_out(messages, context)


def test_a_long_history_costs_few_prompts():
    sizes = []

    def counting(messages):
        sizes.append(len(messages))
        return encode(messages)

    messages = [say("user", 1), say("assistant", 1)] * 1000 + [say("user", 1)]
    kept = fit(messages, counting, context=105, reserve=5).turns
    assert len(sizes) < 15
    assert max(sizes[1:]) <= 2 * 51

    sizes.clear()
    assert fit(messages, counting, context=105, reserve=5, guess=kept).turns == kept
    assert len(sizes) == 2
