"""How a model writes calls is read off its template, and what the template writes is read back."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.chat import ChatTemplate
from pyruntime.chat.call_format import CallFormat, find_call_format
from pyruntime.chat.marks import find_marks
from pyruntime.chat.tool_calls import FieldBody, JsonBody, NamedBody, parse_calls
from pyruntime.text.stream import StreamDecoder
from tests.call_lab import OWN, TOKENS, Bytes, own, read, written

STRING, NUMBER = {"type": "string"}, {"type": "number"}
TOOLS = {
    "now": {"type": "object", "properties": {}},
    "add": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER, "note": STRING, "any": {}}},
}
SHOWN = [name for name in OWN if name != "described"]


def ids(tokenizer, *tokens):
    return tuple(tokenizer.control_ids[token] for token in tokens)


def test_each_way_of_writing_calls_is_found_in_the_template():
    found = {name: own(name)[2] for name in OWN}
    of = Bytes(TOKENS).control_ids
    assert found["json between tokens"] == CallFormat(JsonBody(), of["<call>"], of["</call>"])
    assert found["described"] == CallFormat(JsonBody(), of["<call>"], of["</call>"])
    assert found["fields"] == CallFormat(
        FieldBody("\n<f=", ">\n", "<p=", ">\n", "\n</p>\n", "</f>\n"), of["<call>"], of["</call>"]
    )
    assert (found["list"].body, found["list"].closing) == (JsonBody(is_list=True), None)
    assert found["bare"] == CallFormat(JsonBody("name", "parameters"), "", None, single=True)
    assert (found["json between texts"].opening, found["json between texts"].closing) == ("[call]", "[/call]")
    assert found["arguments as text"].arguments_as_text
    framed = found["framed"]
    assert (framed.opening, framed.closing) == (of["<|call|>"], of["<|/call|>"])
    assert framed.frame == {of["<|calls|>"], of["<|/calls|>"]}
    assert isinstance(framed.body, NamedBody)
    assert set(framed.inner) == {of["<|sep|>"]}
    named = found["name and arguments"]
    assert (named.opening, named.closing, set(named.inner)) == (of["[CALLS]"], None, {of["[ID]"], of["[ARGS]"]})


values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), st.text('ab "\\{}[]<>é\n', max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("xyz"), inner, max_size=2)),
    max_leaves=4,
)
arguments = st.fixed_dictionaries(
    {}, optional={"a": st.integers(), "b": st.floats(-9, 9), "note": st.text("ab <>\n{", max_size=9)}
)


@pytest.mark.parametrize("name", SHOWN)
@given(
    st.lists(st.tuples(st.sampled_from(["now", "add"]), arguments), min_size=1, max_size=3),
    st.sampled_from(["", "Wait."]),
)
def test_what_a_template_writes_is_read_back(name, calls, content):
    template, tokenizer, found = own(name)
    calls = [(tool, given if tool == "add" else {}) for tool, given in calls[: 1 if found.single else None]]
    if name == "fields":
        calls = [
            (tool, {key: value for key, value in given.items() if "</p>" not in str(value)}) for tool, given in calls
        ]
    answer = written(template, tokenizer, calls, content, as_text=found.arguments_as_text).removesuffix("<|end|>\n")
    assert read(tokenizer, found, answer, TOOLS) == (content, calls, [])


@given(st.text('{}[]":, \\naN12e+-', max_size=40))
def test_any_text_inside_a_call_is_a_call_or_a_named_fault(text):
    for name in OWN:
        for part in parse_calls(text, own(name)[2].body, TOOLS):
            assert part.raw == text


JSON = '{"name": "add", "arguments": {"a": 1}}'


@pytest.mark.parametrize(
    ("name", "answer", "expected"),
    [
        ("json between tokens", f"<call>{JSON}</call> <call>{JSON}</call>", ("", 2, [])),
        ("json between tokens", f"A <call>{JSON}", ("A", 0, ["incomplete"])),
        ("described", f"<call>{JSON}</call>", ("", 1, [])),
        ("json between texts", f"See. [call]{JSON}[/call] Done.", ("See.Done.", 1, [])),
        ("json between texts", '[call]{"name": "add", "arguments": {"note": "[/call]"}}[/call]', ("", 1, [])),
        ("json between texts", "[cal", ("[cal", 0, [])),
        ("json between texts", "[call]{", ("", 0, ["incomplete"])),
        ("name and arguments", '[CALLS]add[ID]x[ARGS]{"a": 1}[CALLS]now[ID]y[ARGS]{}', ("", 2, [])),
        ("name and arguments", '[CALLS]add{"a": 1}', ("", 0, ["'…' is missing"])),
        ("name and arguments", "[CALLS]add[ID]x[ARGS]{", ("", 0, ["invalid JSON"])),
        ("list", "[CALLS] []", ("", 0, ["not an object"])),
        ("list", f"[CALLS] [{JSON}, 5]", ("", 0, ["not an object"])),
        ("list", f"[CALLS]{JSON}", ("", 1, [])),
        ("framed", "<|calls|><|call|>function<|sep|>now\n```json\n{}\n```<|/call|><|/calls|>", ("", 1, [])),
        ("framed", "<|call|>function<|sep|>now\n```json\n{}<|/call|>", ("", 0, ["'```' is missing"])),
        ("framed", "<|call|>function<|sep|>rm\n```json\n{}\n```<|/call|>", ("", 0, ["unknown tool 'rm'"])),
        ("fields", "<call><f=add><p=a>1</p><p=note> x\n</p></f></call>", ("", 1, [])),
        ("fields", "<call><f=add><p=a>one</p></f></call>", ("", 0, ["argument 'a': invalid JSON"])),
        ("fields", "<call><f=add><p=a>1 2</p></f></call>", ("", 0, ["argument 'a': text after the value"])),
        ("fields", "<call><f=add><p=a>1</p><p=a>2</p></f></call>", ("", 0, ["argument 'a' occurs twice"])),
        ("fields", "<call><f=add><p=a>1</p></call>", ("", 0, ["'</f>' is missing"])),
        ("fields", "<call>add</call>", ("", 0, ["'<f=' is missing"])),
    ],
)
def test_calls_of_every_kind_are_whole_or_have_a_named_fault(name, answer, expected):
    _, tokenizer, found = own(name)
    content, calls, invalid = read(tokenizer, found, answer, TOOLS)
    assert (content, len(calls)) == expected[:2]
    assert len(invalid) == len(expected[2])
    assert all(one.problem.startswith(start) for one, start in zip(invalid, expected[2], strict=True))


def test_arguments_written_as_text_become_what_their_schema_says():
    _, tokenizer, found = own("fields")
    answer = "<call><f=add><p=note>\n 12 \n</p><p=a>\n12\n</p><p=any>True</p><p=b>None</p></f></call>"
    assert read(tokenizer, found, answer, TOOLS)[1] == [("add", {"note": " 12 ", "a": 12, "any": True, "b": None})]


def test_a_malformed_call_is_shown_with_its_control_tokens_spelled():
    _, tokenizer, found = own("framed")
    _, _, (invalid,) = read(tokenizer, found, "<|call|>function<|sep|>rm<|/call|>", TOOLS)
    assert invalid.raw == "function<|sep|>rm"


BARE = '{"name": "add", "parameters": {"a": 1}}'


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (BARE, ("", [("add", {"a": 1})], 0)),
        (f"I add.\n{BARE}\n", ("I add.", [("add", {"a": 1})], 0)),
        (f"{BARE}; {BARE}", (";", [("add", {"a": 1})] * 2, 0)),
        ('{"parameters": {}, "name": "now"}', ("", [("now", {})], 0)),
        ('{"name": "rm", "parameters": {}}', ("", [], 1)),
        ('{"name": "add", "parameters": {"a": }}', ("", [], 1)),
        ('{"name": "ad', ("", [], 1)),
        ('{"name": "now"}', ("", [("now", {})], 0)),
        ('{"name": "Bob", "age": 3}', ('{"name": "Bob", "age": 3}', [], 0)),
        ('{"x": [1, {"y": "}"}]} is JSON', ('{"x": [1, {"y": "}"}]} is JSON', [], 0)),
        ("int f() { return 1; }", ("int f() { return 1; }", [], 0)),
        ("{", ("{", [], 0)),
        ('{"a": {', ('{"a": {', [], 0)),
        ("{}", ("{}", [], 0)),
    ],
)
def test_an_answer_in_json_is_a_call_only_if_it_looks_like_one(answer, expected):
    _, tokenizer, found = own("bare")
    content, calls, invalid = read(tokenizer, found, answer, TOOLS)
    assert (content, calls, len(invalid)) == expected


def test_without_an_offer_of_tools_json_is_json_and_code_is_shown_as_it_comes():
    _, tokenizer, found = own("bare")
    assert read(tokenizer, found, BARE, {}) == (BARE, [], [])


@given(
    st.lists(
        st.sampled_from(
            ['{"', "name", '": "', "add", '", "parameters": {', "}", "{", "x", "\n", '\\"', "[call]", "[/"]
        ),
        max_size=14,
    )
)
def test_how_an_answer_is_cut_into_tokens_changes_nothing_about_its_calls(pieces):
    whole = "".join(pieces)
    for name in ("bare", "json between texts"):
        _, tokenizer, found = own(name)

        class Pieces(Bytes):
            """A tokenizer whose tokens are the pieces."""

            def with_control(self, text):
                return list(range(len(pieces)))

            def stream(self):
                return StreamDecoder(lambda token_id: pieces[token_id].encode())

        assert read(Pieces(TOKENS), found, whole, TOOLS) == read(tokenizer, found, whole, TOOLS)


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content }}<|end|>{% endfor %}",
        "{% for m in messages %}{{ m.content }}{{ m.tool_calls }}<|end|>{% endfor %}",
        # Words of its own around all calls would have to be kept out of the answer.
        (
            "{% for m in messages %}{{ m.content }}{% if m.tool_calls %}Calls:{% for c in m.tool_calls %}"
            "<call>{{ c.function|tojson }}</call>{% endfor %}{% endif %}<|end|>{% endfor %}"
        ),
        # Written as code.
        (
            "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}("
            "{% for k, v in c.function.arguments|items %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %})</call>"
            "{% endfor %}<|end|>{% endfor %}"
        ),
        "{{ raise_exception('never') }}{{ tool_calls }}",
    ],
)
def test_a_template_that_writes_no_calls_or_in_no_known_way_has_none(source):
    tokenizer = Bytes(TOKENS)
    assert find_call_format(ChatTemplate(source, {}, tokenizer), tokenizer.control_ids) is None


def test_thinking_is_found_where_a_template_drops_it_and_opens_an_empty_block_to_prevent_it():
    source = (
        "{% for m in messages %}<|turn|>{{ m.content }}<|end|>{% endfor %}<|turn|>"
        "{% if enable_thinking is defined and not enable_thinking %}<t>\n\n</t>\n\n{% endif %}"
    )
    tokenizer = Bytes([*TOKENS, "<t>", "</t>"])
    marks = find_marks(ChatTemplate(source, {}, tokenizer), tokenizer)
    assert marks.think == ids(tokenizer, "<t>", "</t>")
    assert marks.end_of_thinking == ids(tokenizer, "</t>")
    other = find_marks(ChatTemplate(source.replace("</t>", "<call>"), {}, tokenizer), tokenizer)
    assert other.think is None


def test_every_template_of_the_shared_set_is_read_as_its_family_writes(shared):
    folder = shared / "corpus" / "template_cases"
    families = {}
    for path in sorted(folder.glob("*.json")):
        if path.name == "conversations.json":
            continue
        table = json.loads(path.read_text())
        source = (shared / "templates" / table["template"]).read_text()
        tokenizer = Bytes(control_tokens(source, table["special_tokens"]))
        found = find_call_format(ChatTemplate(source, table["special_tokens"], tokenizer), tokenizer.control_ids)
        families[table["template"]] = found and type(found.body).__name__
        if found is None:
            continue
        template = ChatTemplate(source, table["special_tokens"], tokenizer)
        calls = [("add", {"a": 1, "note": "x y"}), ("add", {"a": 2, "note": "z"})][: 1 if found.single else 2]
        answer = written(
            template,
            tokenizer,
            calls,
            as_text=found.arguments_as_text,
            tools=DESCRIBED if "command-r" in path.name else None,
        )
        # The end of the turn ends an answer before the parser sees it.
        turn_end = find_marks(template, tokenizer).turn_end
        end = next((text for text, token_id in tokenizer.control_ids.items() if token_id == turn_end), None)
        content, read_back, invalid = read(tokenizer, found, answer.split(end)[0] if end else answer, TOOLS)
        assert (read_back, invalid) == (calls, []), path.name
        assert "add" not in content, path.name
    expected = {
        "Qwen-Qwen3-0.6B.jinja": "JsonBody",
        "Qwen-Qwen2.5-7B-Instruct.jinja": "JsonBody",
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja": "JsonBody",
        "Qwen3-Coder.jinja": "FieldBody",
        "meta-llama-Llama-3.1-8B-Instruct.jinja": "JsonBody",
        "Mistral-Small-3.2-24B-Instruct-2506.jinja": "NamedBody",
        "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja": "NamedBody",
        "deepseek-ai-DeepSeek-V3.1.jinja": "NamedBody",
        "SmolLM2-135M-Instruct.jinja": None,
    }
    assert expected.items() <= families.items()
    assert sum(family is not None for family in families.values()) >= 19


DESCRIBED = [
    {
        "type": "function",
        "function": {"name": "add", "description": "", "parameters": {"properties": {}, "required": []}},
    }
]


def control_tokens(source, special_tokens):
    """What looks like a control token in a template: no tokenizers of these models are here."""
    shapes = r"<[|｜][^<>{}'\" ]{1,40}[|｜]>|\[/?[A-Z_]{3,}\]|</?(?:think|tool_call|tool_response|tools)>"
    special = {value for value in special_tokens.values() if isinstance(value, str)}
    return sorted(set(re.findall(shapes, source)) | special | {"<|im_start|>", "<|im_end|>"})
