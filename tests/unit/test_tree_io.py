"""Conversations written as JSON and Markdown, and read back from whoever sends them."""

import copy
import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.chat import tree_io
from pyruntime.chat.tree import Call, Node, TextPart, Tree, text_content
from pyruntime.chat.tree_io import from_json, to_json, to_markdown
from pyruntime.errors import FormatError


@pytest.fixture(scope="module")
def schema(repo_root):
    found = json.loads((repo_root / "docs" / "conversation.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def rich():
    """A conversation in which every field is used."""
    tree = Tree(title="Sums", system="Be exact.").ask("u1", "1 + 1?", 1_700_000_000_000)
    call = Call("call00001", "add", '{"a": 1, "b": 1}', '{"name": "add"…')
    broken = Call("call00002", "", "", "{]", problem="invalid JSON")
    first = Node(
        "a1", "u1", "assistant", (), 2, reasoning="I add.\n```", calls=(call, broken), stop_reason="stop", model="Tiny"
    )
    tree = tree.add(first).add(Node("t1", "a1", "tool", (TextPart("2"),), 3, call_id="call00001"))
    last = Node(
        "a2",
        "t1",
        "assistant",
        (TextPart("It is "), TextPart("2 \ud83d")),
        4,
        state="cancelled",
        stop_reason="cancelled",
        params={"temperature": 0.7, "stop": ["x"], "logit_bias": {"5": -1.5}},
        usage={"prompt_tokens": 12, "left_out": 0},
        timings={"ttft_ms": 12.5, "decode_tps": None},
    )
    tree = tree.add(last)
    more = Node("a3", "t1", "assistant", text_content("It is 2."), 5, continues="a2")
    return tree.add(more).edit("u1", "u2", "2 + 2?", 6)


def test_a_conversation_is_read_back_as_it_was(schema):
    text = to_json(rich())
    schema.validate(json.loads(text))
    assert from_json(text.encode()) == rich()
    assert to_json(from_json(text.encode())) == text


def test_an_empty_conversation_is_one_too(schema):
    schema.validate(json.loads(to_json(Tree())))
    assert from_json(to_json(Tree()).encode()) == Tree()


texts = st.text(st.characters(codec=None, exclude_categories=()), max_size=8)


@given(st.lists(st.tuples(st.booleans(), texts, texts), max_size=8), st.one_of(st.none(), texts), texts)
def test_any_text_survives_the_way_there_and_back(schema, turns, system, title):
    tree = Tree(system=system, title=title)
    for number, (is_edit, question, words) in enumerate(turns):
        if is_edit and tree.path:
            tree = tree.edit(tree.path[0].id, f"u{number}", question, number)
        else:
            tree = tree.ask(f"u{number}", question, number)
        tree = tree.add(Node(f"a{number}", f"u{number}", "assistant", text_content(words), 0, reasoning=question))
    schema.validate(json.loads(to_json(tree)))
    assert from_json(to_json(tree).encode()) == tree


def changed(place, value):
    """The rich conversation's value with one thing changed; `...` takes it away."""
    whole = json.loads(to_json(rich()))
    at = whole
    for key in place[:-1]:
        at = at[key]
    if value is ...:
        del at[place[-1]]
    elif isinstance(at, list) and place[-1] == len(at):
        at.append(value)
    else:
        at[place[-1]] = value
    return whole


def node(**fields):
    return {"id": "n", "parent": None, "role": "user", "content": [], "created": 1, **fields}


BAD = [  # place, value, field in the error, whether the schema sees it
    (["format"], "other", "format", True),
    (["version"], 2, "version: 2 is not allowed (allowed: 1). Open it with a newer version", True),
    (["version"], "1", "version", True),
    (["version"], True, "version", True),
    (["more"], 1, "'more': 1 is not allowed", True),
    (["title"], None, "title", True),
    (["system"], 5, "system", True),
    (["nodes"], {}, "nodes", True),
    (["chosen"], {}, "chosen", True),
    (["chosen", 0], "u1", "chosen[0]", True),
    (["chosen", 0], [None, 7], "chosen[0]", True),
    (["chosen", 1], [None, "u1"], "chosen[1]", False),
    (["chosen", 0], [None, "a1"], "chosen[None]: 'a1'", False),
    (["nodes", 0], [], "nodes[0]", True),
    (["nodes", 0, "id"], 7, "nodes[0].id", True),
    (["nodes", 0, "id"], "x" * 201, "nodes[0].id", True),
    (["nodes", 1, "id"], "u1", "message 'u1': id", False),
    (["nodes", 0, "parent"], "a2", "message 'u1': parent", False),
    (["nodes", 0, "parent"], "u1", "message 'u1': parent", False),
    (["nodes", 1, "parent"], "gone", "message 'a1': parent", False),
    (["nodes", 1, "parent"], ..., "nodes[1].parent", True),
    (["nodes", 1, "role"], "system", "nodes[1].role", True),
    (["nodes", 1, "role"], {"a": 1}, "nodes[1].role", True),
    (["nodes", 1, "state"], ["done"], "nodes[1].state", True),
    (["nodes", 1, "content"], "text", "nodes[1].content", True),
    (["nodes", 1, "content"], [{"type": "image", "text": ""}], "nodes[1].content[0].type", True),
    (["nodes", 1, "content"], [{"type": "text", "text": 5}], "nodes[1].content[0].text", True),
    (["nodes", 1, "created"], 1.5, "nodes[1].created", True),
    (["nodes", 1, "created"], True, "nodes[1].created", True),
    (["nodes", 1, "wit"], 1, "nodes[1].'wit'", True),
    (["nodes", 1, "calls"], [{}] * 65, "nodes[1].calls[0].id", True),
    (["nodes", 1, "calls", 0, "id"], "", "nodes[1].calls[0].id", True),
    (["nodes", 1, "calls", 0, "arguments"], "[]", "nodes[1].calls[0].arguments", False),
    (["nodes", 1, "calls", 0, "arguments"], "{", "nodes[1].calls[0].arguments", False),
    (["nodes", 2, "call_id"], "call00009", "message 't1': call_id", False),
    (["nodes", 2, "call_id"], "call00002", "message 't1': call_id", False),
    (["nodes", 3, "usage"], {"prompt_tokens": 1.5}, "nodes[3].usage.'prompt_tokens'", True),
    (["nodes", 3, "timings"], {"ttft_ms": "5"}, "nodes[3].timings.'ttft_ms'", True),
    (["nodes", 4, "continues"], "u1", "message 'a3': continues", False),
    (["nodes", 5], node(reasoning="hm"), "nodes[5].reasoning", False),
    (["nodes", 6], node(role="tool", parent="a1"), "nodes[6].call_id", False),
]


@pytest.mark.parametrize(("place", "value", "words", "schema_sees"), BAD)
def test_what_is_wrong_is_told_by_place_and_the_schema_agrees(schema, place, value, words, schema_sees):
    bad = changed(place, value)
    with pytest.raises(FormatError) as caught:
        from_json(json.dumps(bad).encode(), "talk.json")
    assert str(caught.value).startswith(f"talk.json: {words}")
    assert schema.is_valid(bad) is not schema_sees


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a JSON text"),
        (b"[]", "format"),
        (b'{"format": "tinypylm-conversation", "version": 1, "version": 1}', "twice"),
        (b"[" * 100_000, "nested"),
        (b"[" + b"{}," * 2_000_001 + b"{}]", "values"),
        (b"\xff", "not a JSON text"),
    ],
)
def test_what_is_no_conversation_at_all_is_refused(data, words):
    with pytest.raises(FormatError) as caught:
        from_json(data)
    assert words in str(caught.value)


def test_a_file_that_is_too_large_is_refused_before_it_is_read(monkeypatch):
    monkeypatch.setattr(tree_io, "_LARGEST", 1000)
    with pytest.raises(FormatError, match="allowed: at most 1000 bytes"):
        from_json(b" " * 1001)


def test_a_circle_of_fifty_thousand_messages_is_found_and_a_chain_of_as_many_read():
    chain = [node(id=f"n{i}", parent=f"n{i - 1}" if i else None) for i in range(50_000)]
    whole = {"format": "tinypylm-conversation", "version": 1, "nodes": chain, "chosen": []}
    assert len(from_json(json.dumps(whole).encode()).nodes) == 50_000
    chain[0]["parent"] = "n49999"
    with pytest.raises(FormatError, match="parent"):
        from_json(json.dumps(whole).encode())
    chain.append(node(id="one too many"))
    with pytest.raises(FormatError, match="nodes: 'a list of 50001' is not allowed"):
        from_json(json.dumps(whole).encode())


def test_an_older_version_is_brought_up_to_the_current_one(monkeypatch):
    old = copy.deepcopy(json.loads(to_json(rich())))
    old["version"], old["name"] = 0, old.pop("title")
    monkeypatch.setattr(tree_io, "_UPGRADES", {0: lambda value: {**without(value, "name"), "title": value["name"]}})
    assert from_json(json.dumps(old).encode()) == rich()


def without(value, key):
    return {name: item for name, item in value.items() if name != key}


def test_markdown_shows_the_active_path_with_thinking_and_calls_apart():
    text = to_markdown(rich().select("a2"))
    assert text == (
        "# Sums\n\n## System\n\nBe exact.\n\n## User\n\n1 + 1?\n\n## Assistant (Tiny)\n\n"
        "Thinking:\n\n````\nI add.\n```\n````\n\n"
        'Call of add:\n\n```\n{"a": 1, "b": 1}\n```\n\nMalformed call (invalid JSON):\n\n```\n{]\n```\n\n'
        "## Tool\n\n```\n2\n```\n\n## Assistant\n\nIt is 2 \ufffd\n\n*(cancelled)*\n"
    )
    assert to_markdown(Tree()) == "# Conversation\n"
