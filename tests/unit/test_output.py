"""From ids to the parts of an answer: thinking, tool calls, text, stop strings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.chat.call_format import CallFormat
from pyruntime.chat.marks import Marks, ends_inside_thinking, find_marks
from pyruntime.chat.output import ContentText, OutputParser, ReasoningText
from pyruntime.chat.tool_calls import InvalidToolCall, JsonBody, ToolCall
from pyruntime.text.stream import StreamDecoder
from tests.tiny_model import TAG_TEMPLATE, open_tiny

THINK, UNTHINK, CALL, UNCALL = 900, 901, 902, 903
MARK_TEXTS = {THINK: b"<think>", UNTHINK: b"</think>", CALL: b"<tool_call>", UNCALL: b"</tool_call>"}
MARKS = Marks(think=(THINK, UNTHINK), call=CallFormat(JsonBody(), CALL, UNCALL))
TOOLS = {name: {} for name in ("add", "a", "b", "f", "sh", "now")}


class Chunks:
    """A tokenizer whose ids stand for chunks of text; the marks print their text where they are no marks."""

    def __init__(self, chunks):
        self.bytes = {1000 + i: chunk.encode() for i, chunk in enumerate(chunks) if isinstance(chunk, str)}
        self.ids = [chunk if isinstance(chunk, int) else 1000 + i for i, chunk in enumerate(chunks)]

    def stream(self):
        return StreamDecoder(lambda token_id: self.bytes.get(token_id, MARK_TEXTS.get(token_id)))


def run(chunks, marks=MARKS, **options):
    """(reasoning, content, calls, problems) of an answer made of texts and mark ids."""
    tokenizer = Chunks(chunks)
    parser = OutputParser(tokenizer, marks, known_tools=TOOLS, **options)
    parts = [part for token_id in tokenizer.ids for part in parser.push(token_id)] + parser.finish()
    return (
        "".join(part.text for part in parts if isinstance(part, ReasoningText)),
        "".join(part.text for part in parts if isinstance(part, ContentText)),
        [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)],
        [part.problem for part in parts if isinstance(part, InvalidToolCall)],
    )


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        (["Hello"], ("", "Hello", [], [])),
        ([" Hello \n"], ("", " Hello \n", [], [])),
        ([THINK, "\nok\n", UNTHINK, "\n\nHi"], ("ok", "Hi", [], [])),
        ([THINK, "\n\n", UNTHINK, "\n\nHi"], ("", "Hi", [], [])),
        ([THINK, "a </think> b", UNTHINK, "c"], ("a </think> b", "c", [], [])),
        ([UNTHINK, "\nHi"], ("", "Hi", [], [])),
        ([THINK, "never ends "], ("never ends", "", [], [])),
        (["See.\n", CALL, '{"name": "now"}', UNCALL], ("", "See.", [("now", {})], [])),
        (
            [CALL, '{"name": "f", "arguments": {"x": "', UNCALL, '"}}', UNCALL],
            ("", "", [("f", {"x": "</tool_call>"})], []),
        ),
        (
            [THINK, CALL, '{"name": "now"}', UNCALL, UNTHINK, "A"],
            ('<tool_call>{"name": "now"}</tool_call>', "A", [], []),
        ),
        ([CALL, '{"name": "rm"}', UNCALL, "after"], ("", "after", [], ["unknown tool 'rm'"])),
        ([CALL, '{"name": "now"'], ("", "", [], ["incomplete"])),
        ([CALL, '{"name": "now", "name": "f"}', UNCALL], ("", "", [], ["invalid JSON ('name'"])),
        ([CALL, '["now"]', UNCALL], ("", "", [], ["not an object"])),
        ([CALL, UNCALL], ("", "", [], ["empty call"])),
    ],
)
def test_every_part_goes_where_the_marks_say(chunks, expected):
    reasoning, content, calls, problems = run(chunks)
    assert (reasoning, content, calls) == expected[:3]
    assert len(problems) == len(expected[3])
    assert all(problem.startswith(start) for problem, start in zip(problems, expected[3], strict=True))


def test_a_prompt_that_opened_thinking_goes_on_inside_it():
    assert run(["ok", UNTHINK, "A"], inside_thinking=True)[:2] == ("ok", "A")
    assert run(["ok"], inside_thinking=True)[:2] == ("ok", "")


def test_thinking_that_goes_on_begins_with_the_white_space_it_goes_on_with():
    assert run([" then", UNTHINK, "A"], inside_thinking=True, continues=True)[:2] == (" then", "A")
    assert run([" then", UNTHINK, "A"], inside_thinking=True)[:2] == ("then", "A")


def test_without_marks_nothing_is_held_back():
    tokenizer = Chunks(["a", " ", "\n", "b"])
    parser = OutputParser(tokenizer, Marks())
    assert [parser.push(token_id) for token_id in tokenizer.ids] == [[ContentText(t)] for t in ("a", " ", "\n", "b")]


def test_stop_strings_are_looked_for_in_the_text_only():
    assert run([THINK, "STOP", UNTHINK, "one ST", "OP two"], stops=["STOP"])[:2] == ("STOP", "one ")


def test_a_stop_string_of_white_space_ends_the_answer_before_a_call():
    chunks = ["Hello", "\n", "\n", CALL, '{"name": "now"}', UNCALL]
    tokenizer = Chunks(chunks)
    parser = OutputParser(tokenizer, MARKS, stops=["\n\n"], known_tools=TOOLS)
    shown = [part for token_id in tokenizer.ids[:3] for part in parser.push(token_id)]
    assert (shown, parser.is_stopped) == ([ContentText("Hello")], True)
    assert parser.finish() == []


def test_a_single_newline_can_be_a_stop_string():
    assert run(["Hi", "\n", "\n"], stops=["\n"])[1] == "Hi"


def test_text_held_for_a_stop_string_is_released_before_a_mark():
    assert run(["one ST", CALL, '{"name": "now"}', UNCALL], stops=["STOP"])[1] == "one ST"


def test_a_character_cut_by_a_mark_is_replaced_before_it():
    tokenizer = Chunks(["x"])
    tokenizer.bytes[2000] = "🙂".encode()[:2]
    parser = OutputParser(tokenizer, MARKS)
    assert parser.push(2000) == []
    assert parser.push(THINK) == [ContentText("\ufffd")]


@given(st.data())
def test_how_the_text_is_cut_into_tokens_changes_nothing(data):
    marks = st.sampled_from([THINK, UNTHINK, CALL, UNCALL])
    texts = st.text(alphabet='ab \n{}":,\\', min_size=1, max_size=6)
    whole = data.draw(st.lists(st.one_of(marks, texts, st.just('{"name": "f", "arguments": {"x": "}"}}')), max_size=8))
    cut = []
    for chunk in whole:
        cut.extend([chunk] if isinstance(chunk, int) else list(chunk))
    assert run(cut, stops=["ab"]) == run(whole, stops=["ab"])


def test_every_thinking_and_call_case_of_the_shared_corpus_holds(shared):
    rows = map(json.loads, (shared / "corpus" / "parser_cases.jsonl").read_text().splitlines())
    cases = [row for row in rows if row["kind"] in ("think", "tool")]
    assert len(cases) >= 26
    ids = {151667: THINK, 151668: UNTHINK, 151657: CALL, 151658: UNCALL}
    for case in cases:
        chunks = [ids[chunk["id"]] if isinstance(chunk, dict) else chunk for chunk in case["chunks"]]
        reasoning, content, calls, problems = run(chunks, inside_thinking=case.get("prompt_ends_inside_think", False))
        expected = case["expected"]
        assert content == expected["content"], case["id"]
        if "reasoning" in expected:
            assert reasoning == (expected["reasoning"] or ""), case["id"]
        assert expected.get("reasoning_contains", "") in reasoning
        wanted = [(call["name"], call["arguments"]) for call in expected.get("tool_calls", [])]
        assert calls == wanted, case["id"]
        if "error" in expected:
            assert expected["error"] in problems[0], case["id"]


def test_the_marks_are_found_in_what_the_template_writes():
    model = open_tiny(tokenizer__chat_template=TAG_TEMPLATE)
    found = find_marks(model.template, model.tokenizer)
    end_of_thinking = (*b"\n", 261, *b"\n\n")
    assert found == Marks((260, 261), end_of_thinking, CallFormat(JsonBody(), 262, 263), turn_end=257)


def test_a_template_that_opens_every_part_alike_marks_no_thinking():
    source = (
        "{% for m in messages %}{% if m.reasoning_content %}<|tool|>{{ m.reasoning_content }}<think>{% endif %}"
        "<|tool|>{{ m.content }}<|im_end|>{% endfor %}"
    )
    model = open_tiny(tokenizer__chat_template=source)
    assert find_marks(model.template, model.tokenizer).think is None


def test_a_template_without_thinking_and_calls_has_no_such_marks():
    model = open_tiny()
    assert find_marks(model.template, model.tokenizer) == Marks(turn_end=257)


def test_thinking_opened_by_the_prompt_is_seen_in_its_ids():
    marks = Marks(think=(5, 6), turn_end=9)
    assert ends_inside_thinking([1, 5, 2], marks)
    assert not ends_inside_thinking([1, 5, 2, 6, 3], marks)
    assert not ends_inside_thinking([1, 5, 9, 3], marks)
    assert not ends_inside_thinking([1, 2], marks)
