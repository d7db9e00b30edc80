"""The page's decisions, without a page: options of the address, words for numbers, characters, Markdown cut to pieces."""

from __future__ import annotations

from urllib.parse import urljoin, urlsplit

import pytest
from ui import options, wording
from ui.characters import showable, well_formed
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
    assert read() == (Options(f"{PAGE}seed/default.json", PAGE, "auto", None, None, {}), [])


def test_parameters_reach_the_engine_as_numbers():
    given, problems = read(
        temperature="0.25", seed="18446744073709551615", max_tokens="64", context="2048", executor="numpy", threads="2"
    )
    assert problems == []
    assert given.sampling == {"temperature": 0.25, "seed": 2**64 - 1, "max_tokens": 64}
    assert (given.context, given.executor, given.threads) == (2048, "numpy", 2)


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
        ("executor", "native"),
        *(("threads", value) for value in ("0", "9", "two")),
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


# ------------------------------------------------------------------------------------------------------------- wording


def test_numbers_read_as_people_write_them():
    assert wording.amount(42_000_000, 98_362_432) == "42 of 98 MB"
    assert wording.amount(500_000_000, 1_503_300_328) == "0.5 of 1.5 GB"
    assert wording.amount(3, 800) == "3 of 800 bytes"
    assert [wording.rate(rate) for rate in (900, 2_500, 35_400_000)] == ["900 bytes/s", "2.5 kB/s", "35 MB/s"]
    assert [wording.duration(time) for time in (850.4, 1234)] == ["850 ms", "1.2 s"]
    assert [wording.tokens(count) for count in (0, 1, 2)] == ["0 tokens", "1 token", "2 tokens"]


def test_thinking_and_calls_are_named_by_how_they_stand():
    assert wording.thinking("running", 0.0) == "Thinking…"
    assert wording.thinking("done", 3204.0) == "Thought for 3.2 s"
    assert wording.thinking("cut", 850.0) == "Thought for 850 ms, cut off"
    assert wording.thinking("done", None) == "Thought"
    assert wording.invalid_call("incomplete") == "Invalid tool call: incomplete"
    assert [wording.call_state(state) for state in ("waiting", "denied", "unrun")] == [
        "Waiting for you",
        "Not allowed",
        "Not run",
    ]
    assert wording.result("weather") == "Result of weather"


def test_the_summary_of_an_answer_leaves_out_what_was_not_measured():
    stats = {
        "new_tokens": 1,
        "prompt_tokens": 42,
        "cached_tokens": 40,
        "left_out": 3,
        "ttft_ms": None,
        "decode_tps": None,
        "stop_reason": "length",
    }
    assert (
        wording.summary(stats)
        == "1 token · prompt 42 tokens, 40 reused · 3 messages left out · cut at the length limit"
    )


# ---------------------------------------------------------------------------------------------------------- characters


def test_each_lone_half_of_a_pair_becomes_one_replacement_character():
    assert well_formed("a\ud83d\ud83d b\udfff") == "a\ufffd\ufffd b\ufffd"
    for text in ("", "plain", "你好 😀 \ufffd\U0010ffff"):
        assert well_formed(text) == text


def test_a_zero_is_shown_as_a_replacement_character():
    assert showable("a\0b\0") == "a\ufffdb\ufffd"


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
