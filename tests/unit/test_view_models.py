"""The page's decisions, without a page: options of the address, the session, the conversation, Markdown cut to pieces."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import protocol
import pytest
from ui import options, wording
from ui.markdown_text import MATH_MARK, BlockSplitter, take_math
from ui.options import Options, read_options
from ui.session import Session

from pyruntime.engine import EXECUTORS
from pyruntime.errors import ParameterError
from pyruntime.sampling import SamplingParams

PAGE = "http://127.0.0.1:8000/chat/"
ORIGIN = "http://127.0.0.1:8000"


def resolve(address):
    """As browsers do for the addresses used here."""
    if address == "http://[":
        raise ValueError(address)
    return urljoin(PAGE, address.replace("\\", "/"))


def read(**parameters):
    return read_options({name.replace("_", "-"): value for name, value in parameters.items()}, resolve, ORIGIN)


# ------------------------------------------------------------------------------------------------------------- options


def test_without_parameters_the_page_loads_its_own_seed_and_leaves_all_else_to_the_engine():
    assert read() == (Options(f"{PAGE}seed/default.json", PAGE, "auto", None, {}), [])


def test_parameters_reach_the_engine_as_numbers():
    given, problems = read(
        temperature="0.25", seed="18446744073709551615", max_tokens="64", context="2048", executor="numpy"
    )
    assert problems == []
    assert given.sampling == {"temperature": 0.25, "seed": 2**64 - 1, "max_tokens": 64}
    assert (given.context, given.executor) == (2048, "numpy")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("temperature", value)
            for value in ("hot", "", "-1", "1e3", "nan", "inf", "0x1", "101", "٣", "1.2.3", ".", "0.0000001")
        ),
        *(("seed", value) for value in ("-1", "1.5", "18446744073709551616", "1_000", "", " 1")),
        *(("max-tokens", value) for value in ("0", "-5", "many")),
        *(("context", value) for value in ("0", "2k")),
        ("executor", "wasm"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is_allowed_and_the_default_is_kept(name, value):
    given, problems = read_options({name: value}, resolve, ORIGIN)
    assert given == read()[0]
    (problem,) = problems
    assert problem.startswith(f"{name}: {value!r} is not allowed (allowed: ")
    assert problem.endswith("The default is used instead.")


def test_every_problem_is_told_at_once():
    assert len(read(temperature="hot", seed="-1", executor="magic")[1]) == 3


def test_the_page_allows_what_the_engine_allows():
    assert set(options.EXECUTORS) == set(EXECUTORS) - {"native"}  # which needs CPython
    for text in ("0", "0.000001", "100"):
        SamplingParams(**read(temperature=text)[0].sampling)
    for text in ("0.0000009", "100.1"):
        assert read(temperature=text)[1]
        with pytest.raises(ParameterError):
            SamplingParams(temperature=float(text))
    SamplingParams(**read(seed=str(2**64 - 1), max_tokens="1")[0].sampling)
    with pytest.raises(ParameterError):
        SamplingParams(seed=2**64)
    with pytest.raises(ParameterError):
        SamplingParams(max_tokens=0)


@pytest.mark.parametrize("address", ["seed/other.json", "./x.json", "../x.json", "/x.json", f"{ORIGIN}/x.json"])
def test_a_manifest_of_this_site_is_used(address):
    given, problems = read(manifest=address)
    assert given.manifest == urljoin(PAGE, address)
    assert problems == []


@pytest.mark.parametrize(
    "address",
    [
        "https://elsewhere.example/seed.json",
        "//elsewhere.example/seed.json",
        "\\\\elsewhere.example\\seed.json",
        "http://127.0.0.1:8001/seed.json",
        f"{ORIGIN}.elsewhere.example/seed.json",
        "http://127.0.0.1:8000@elsewhere.example/x",
        "data:application/json,{}",
        f"blob:{ORIGIN}/1234",
        "javascript:alert(1)",
    ],
)
def test_a_manifest_from_elsewhere_is_refused_and_no_other_model_is_loaded_in_its_place(address):
    given, (problem,) = read(manifest=address)
    assert given.manifest is None
    assert problem.startswith(f"manifest: {address!r} is not on this site (allowed: addresses of {ORIGIN})")
    session = Session(given, [problem])
    assert session.state == "error"
    assert session.notice.text == problem
    assert session.load() is None


def test_an_address_that_is_none_is_refused():
    given, (problem,) = read(manifest="http://[")
    assert given.manifest is None
    assert "is not an address" in problem
    assert urlsplit(resolve("x")).netloc  # the resolver of these tests gives absolute addresses


# ------------------------------------------------------------------------------------------------------------- session


@pytest.fixture
def session():
    return Session(Options("M", "P", "auto", None, {"temperature": 0}))


@pytest.fixture
def ready(session):
    session.load()
    session.receive(protocol.Ready("SmolLM2", "numpy", 4096, 0.0))
    return session


def finished(id, text, reason="stop", at=0.0):
    return protocol.Finished(id, reason, text, 42, 0, 5, 30.0, 20.0, at)


def states(session):
    return [(message.role, message.state, message.text) for message in session.conversation.messages]


def test_the_session_says_what_is_going_on_from_the_start(session):
    assert (session.state, session.status) == ("starting", "Starting Python")
    assert session.load() == protocol.Load("M", "P", "auto", None)
    assert (session.state, session.status) == ("fetching", "Looking up the model")
    session.receive(protocol.Progress("fetch", "the model", 0, 98_362_432, 1000.0))
    session.receive(protocol.Progress("fetch", "the model", 42_000_000, 98_362_432, 2000.0))
    assert (session.state, session.status, session.detail) == ("fetching", "Fetching the model", "42 of 98 MB, 42 MB/s")
    assert session.fraction == pytest.approx(0.427, abs=0.001)
    session.receive(protocol.Progress("open", "SmolLM2", 50_000_000, 97_000_000, 3000.0))
    assert (session.state, session.status, session.detail) == ("loading", "Opening SmolLM2", "50 of 97 MB")
    session.receive(protocol.Ready("SmolLM2", "numpy", 4096, 4000.0))
    assert (session.state, session.status, session.detail, session.fraction) == ("ready", "Ready", "", None)
    assert session.model == "SmolLM2 · numpy · 4096 tokens of context"


def test_the_rate_is_that_of_the_last_seconds(session):
    for second in range(10):
        session.receive(protocol.Progress("fetch", "m", second * 1_000_000, 98_000_000, second * 1000.0))
    session.receive(protocol.Progress("fetch", "m", 39_000_000, 98_000_000, 12_000.0))
    assert session.detail.endswith(", 10 MB/s")  # 30 MB in the 3 s before; 3.3 MB/s over all


def test_a_message_is_answered_piece_by_piece(ready):
    assert ready.send("Hello", 100.0) == protocol.Chat(1, [{"role": "user", "content": "Hello"}], {"temperature": 0})
    assert ready.state == "busy"
    ready.receive(protocol.PromptReady(1, 42, 0, 110.0))
    ready.receive(protocol.Prefill(1, 32, 42, 120.0))
    assert (ready.status, ready.detail) == ("Reading your message", "32 of 42 tokens")
    ready.receive(protocol.Delta(1, "Hi", 150.0))
    assert (ready.status, ready.fraction) == ("Answering", None)
    ready.receive(protocol.Delta(1, " there", 160.0))
    assert states(ready) == [("user", "done", "Hello"), ("assistant", "streaming", "Hi there")]
    ready.receive(finished(1, "Hi there!", at=170.0))
    assert states(ready)[1] == ("assistant", "done", "Hi there!")
    assert ready.conversation.messages[1].stats == {
        "prompt_tokens": 42,
        "cached_tokens": 0,
        "new_tokens": 5,
        "ttft_ms": 50.0,
        "prefill_tps": 30.0,
        "decode_tps": 20.0,
        "stop_reason": "stop",
    }
    assert ready.state == "ready"


def test_the_whole_conversation_is_sent_with_each_message(ready):
    ready.send("One", 0.0)
    ready.receive(finished(1, "Uno"))
    request = ready.send("Two", 0.0)
    assert request.id == 2
    assert [message["content"] for message in request.messages] == ["One", "Uno", "Two"]
    assert [message["role"] for message in request.messages] == ["user", "assistant", "user"]


def test_the_first_token_is_the_first_piece_that_is_not_empty(ready):
    ready.send("Hello", 100.0)
    ready.receive(protocol.Delta(1, "", 120.0))
    ready.receive(protocol.Delta(1, "Hi", 150.0))
    ready.receive(finished(1, "Hi"))
    assert ready.conversation.messages[1].stats["ttft_ms"] == 50.0


@pytest.mark.parametrize("text", ["", "  \n "])
def test_nothing_is_sent_when_there_is_nothing_to_say(ready, text):
    assert ready.send(text, 0.0) is None
    assert ready.state == "ready"


def test_nothing_is_sent_before_the_model_is_there_or_while_it_answers(session):
    assert session.send("Hello", 0.0) is None
    session.receive(protocol.Ready("m", "numpy", 1, 0.0))
    session.send("Hello", 0.0)
    assert session.send("Again", 0.0) is None


def test_a_stopped_answer_stays_and_is_marked(ready):
    ready.send("Hello", 0.0)
    ready.receive(protocol.Delta(1, "Hi", 0.0))
    assert ready.stop() == protocol.Cancel(1)
    assert ready.state == "busy"
    ready.receive(finished(1, "Hi", "cancelled"))
    assert states(ready)[1] == ("assistant", "cancelled", "Hi")
    assert ready.state == "ready"


def test_stopping_before_the_first_word_takes_the_message_back_to_the_composer(ready):
    ready.send("Hello", 0.0)
    ready.stop()
    ready.receive(finished(1, "", "cancelled"))
    assert states(ready) == []
    assert (ready.take_draft(), ready.take_draft()) == ("Hello", "")


def test_late_words_of_a_stopped_answer_are_dropped(ready):
    ready.send("One", 0.0)
    ready.receive(protocol.Delta(1, "U", 0.0))
    ready.stop()
    ready.receive(finished(1, "U", "cancelled"))
    ready.receive(protocol.Delta(1, "no", 0.0))
    ready.send("Two", 0.0)
    for late in (protocol.Delta(1, "late", 0.0), finished(1, "late"), protocol.Failed(1, "E", "late", 0.0)):
        ready.receive(late)
    assert states(ready)[1:] == [
        ("assistant", "cancelled", "U"),
        ("user", "done", "Two"),
        ("assistant", "streaming", ""),
    ]
    assert (ready.state, ready.notice) == ("busy", None)


def test_a_new_chat_waits_until_the_old_answer_has_stopped(ready):
    """Otherwise the next message would meet an engine that is still busy."""
    ready.send("One", 0.0)
    assert ready.new_chat() == protocol.Cancel(1)
    assert (states(ready), ready.state) == ([], "busy")
    assert ready.send("Two", 0.0) is None
    ready.receive(protocol.Delta(1, "late", 0.0))
    ready.receive(finished(1, "late", "cancelled"))
    assert (states(ready), ready.state, ready.take_draft()) == ([], "ready", "")
    assert ready.send("Two", 0.0).id == 2


def test_a_new_chat_without_an_answer_needs_no_engine(ready):
    ready.send("One", 0.0)
    ready.receive(finished(1, "Uno"))
    assert ready.new_chat() is None
    assert (states(ready), ready.state) == ([], "ready")


def test_a_message_that_fails_goes_back_to_the_composer_and_the_notice_has_the_errors_words(ready):
    ready.send("Too long", 0.0)
    ready.receive(protocol.Failed(1, "ContextOverflowError", "prompt: too long", 0.0))
    assert (states(ready), ready.take_draft(), ready.state) == ([], "Too long", "ready")
    assert ready.notice == ("prompt: too long", "ContextOverflowError", "")


def test_an_answer_that_fails_midway_stays_and_is_marked(ready):
    ready.send("Hello", 0.0)
    ready.receive(protocol.Delta(1, "Hi", 0.0))
    ready.receive(protocol.Failed(1, "MemoryError", "no more", 0.0))
    assert states(ready)[1] == ("assistant", "error", "Hi")
    assert (ready.take_draft(), ready.state) == ("", "ready")


def test_a_model_that_cannot_be_loaded_can_be_asked_for_again(session):
    session.load()
    session.receive(protocol.Failed(0, "DeliveryError", "no source delivered it", 0.0))
    assert (session.state, session.notice.action) == ("error", "retry")
    assert session.retry() == protocol.Load("M", "P", "auto", None)
    assert (session.state, session.notice) == ("fetching", None)


def test_a_worker_that_never_started_needs_a_reload(session):
    session.receive(protocol.Failed(0, "ModuleNotFoundError", "No module named 'pyruntime'", 0.0))
    assert (session.state, session.notice.action) == ("error", "reload")


def test_a_lost_engine_keeps_what_it_said_and_what_was_typed(ready):
    ready.send("One", 0.0)
    ready.receive(finished(1, "Uno"))
    ready.send("Two", 0.0)
    ready.engine_lost("RuntimeError", "gone")
    assert (states(ready)[:2], ready.take_draft()) == ([("user", "done", "One"), ("assistant", "done", "Uno")], "Two")
    assert (ready.state, ready.notice.action) == ("error", "reload")


def test_a_remark_of_the_worker_is_shown_and_nothing_else_changes(ready):
    ready.receive(protocol.Remark("Using the stored model list", 0.0))
    assert (ready.state, ready.notice) == ("ready", ("Using the stored model list", "", ""))
    ready.dismiss()
    assert ready.notice is None


def test_a_message_that_is_not_for_the_page_is_refused(ready):
    with pytest.raises(protocol.ProtocolError, match="Cancel: not a message to the page"):
        ready.receive(protocol.Cancel(1))


# ------------------------------------------------------------------------------------------------------------- wording


def test_numbers_read_as_people_write_them():
    assert wording.amount(42_000_000, 98_362_432) == "42 of 98 MB"
    assert wording.amount(500_000_000, 1_503_300_328) == "0.5 of 1.5 GB"
    assert wording.amount(3, 800) == "3 of 800 bytes"
    assert [wording.rate(rate) for rate in (900, 2_500, 35_400_000)] == ["900 bytes/s", "2.5 kB/s", "35 MB/s"]
    assert [wording.duration(time) for time in (850.4, 1234)] == ["850 ms", "1.2 s"]
    assert [wording.tokens(count) for count in (0, 1, 2)] == ["0 tokens", "1 token", "2 tokens"]


def test_the_summary_of_an_answer_leaves_out_what_was_not_measured():
    stats = {
        "new_tokens": 1,
        "prompt_tokens": 42,
        "cached_tokens": 40,
        "ttft_ms": None,
        "decode_tps": None,
        "stop_reason": "length",
    }
    assert wording.summary(stats) == "1 token · prompt 42 tokens, 40 reused · cut at the length limit"


# ------------------------------------------------------------------------------------------------------------ Markdown

MARKDOWN = """# Title

A paragraph
of two lines.

- item

- after a blank line

  with its own paragraph

1. one

2. two

```py
x = 1

y = 2
```

~~~
``` not the end

~~~
last"""


def test_a_growing_answer_is_cut_between_blocks_and_nothing_is_lost():
    splitter = BlockSplitter()
    settled = [piece for piece in map(splitter.feed, MARKDOWN) if piece]
    assert "".join(settled) + splitter.tail == MARKDOWN
    assert [piece.split()[0] for piece in settled] == ["#", "A", "-", "```py"]
    assert splitter.tail == "~~~\n``` not the end\n\n~~~\nlast"


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_the_cut_does_not_depend_on_how_the_text_arrives(size):
    splitter = BlockSplitter()
    pieces = [MARKDOWN[start : start + size] for start in range(0, len(MARKDOWN), size)]
    settled = "".join(splitter.feed(piece) for piece in pieces)
    assert settled.endswith("y = 2\n```\n\n")
    assert settled + splitter.tail == MARKDOWN


def test_formulas_are_taken_out_and_money_and_code_are_not():
    source = r"$5 and $6; $x^2$, \(y\), $$a+b$$, \[c\], `$z$`, ``$w$``, \$7, $ 8$"
    text, formulas = take_math(source)
    assert [tex for _, tex, _ in formulas] == ["x^2", "y", "a+b", "c"]
    assert [display for _, _, display in formulas] == [False, False, True, True]
    for number, (original, _, _) in enumerate(formulas):
        text = text.replace(f"{MATH_MARK}{number}{MATH_MARK}", original)
    assert text == source


def test_formulas_in_fenced_code_are_left_alone():
    source = "```\n$x$\n```\n~~~\n$y$\n~~~\n"
    assert take_math(source) == (source, [])


@pytest.mark.parametrize(
    "source", ["no marks at all", f"{MATH_MARK}0{MATH_MARK} $x$", "an open $x", r"an open \(x", "$x$ " * 5000]
)
def test_text_without_formulas_stays_as_it_is(source):
    assert take_math(source) == (source, [])
