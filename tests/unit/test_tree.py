"""The conversation as a tree: branches are added, nothing is overwritten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.chat.history import as_messages
from pyruntime.chat.tree import Call, Node, TextPart, Tree, checked, text_content
from pyruntime.errors import ParameterError


def answer(node_id, parent, text="", **fields):
    return Node(node_id, parent, "assistant", text_content(text), 0, **fields)


def result(node_id, parent, call_id, text):
    return Node(node_id, parent, "tool", text_content(text), 0, call_id=call_id)


def talk():
    """Two turns: u1 a1 u2 a2."""
    tree = Tree().ask("u1", "My name is Ada.", 1).add(answer("a1", "u1", "Hello, Ada."))
    return tree.ask("u2", "And yours?", 2).add(answer("a2", "u2", "I have none."))


def shown(tree):
    return [node.id for node in tree.path]


def test_a_conversation_grows_at_its_end():
    assert shown(talk()) == ["u1", "a1", "u2", "a2"]
    assert [node.text for node in talk().path][:2] == ["My name is Ada.", "Hello, Ada."]


def test_an_edit_is_a_branch_with_nothing_below_and_the_old_one_stays_reachable():
    before = talk()
    edited = before.edit("u1", "u1b", "My name is Eve.", 3)
    assert shown(edited) == ["u1b"]
    assert edited.siblings("u1b") == ("u1", "u1b")
    assert shown(edited.select("u1")) == ["u1", "a1", "u2", "a2"]
    assert shown(before) == ["u1", "a1", "u2", "a2"]


def test_a_new_attempt_stands_beside_the_old_answer():
    tree = talk().before("a1")
    assert shown(tree) == ["u1"]
    tree = tree.add(answer("a1b", "u1", "Good day."))
    assert (shown(tree), tree.siblings("a1")) == (["u1", "a1b"], ("a1", "a1b"))


def test_selecting_a_branch_shows_what_was_last_shown_below_it():
    tree = talk().edit("u2", "u2b", "Or so?", 3)
    tree = tree.edit("u1", "u1b", "Hi", 4).select("u1")
    assert shown(tree) == ["u1", "a1", "u2b"]
    assert shown(tree.select("a2")) == ["u1", "a1", "u2", "a2"]


def test_a_continuation_is_a_branch_that_says_what_it_goes_on_with():
    tree = Tree().ask("u1", "Count", 1).add(answer("a1", "u1", "1, 2", state="cancelled"))
    tree = tree.before("a1").add(answer("a2", "u1", "1, 2, 3", continues="a1"))
    assert [(node.text, node.continues) for node in tree.path] == [("Count", None), ("1, 2, 3", "a1")]
    assert tree.node("a1").state == "cancelled"


def test_the_answer_of_the_assistant_can_be_edited_too_and_a_tools_result_cannot():
    assert shown(talk().edit("a1", "a1b", "Hi!", 5)) == ["u1", "a1b"]
    tree = Tree().ask("u", "?", 0).add(answer("a", "u", calls=(Call("c", "now", "{}", ""),)))
    with pytest.raises(ParameterError, match="a tool's result stays"):
        tree.add(result("t", "a", "c", "12:00")).edit("t", "t2", "13:00", 0)


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (lambda: answer("a1", "u1"), "id: 'a1' is not allowed"),
        (lambda: answer("x", "nowhere"), "parent: 'nowhere' is not allowed"),
        (lambda: result("x", "u1", "c", ""), "role: 'tool' is not allowed (allowed: user, assistant after the user)"),
        (lambda: result("x", "a1", "c", ""), "call_id: 'c' is not allowed"),
        (lambda: answer("x", "u1", continues="u1"), "continues: 'u1' is not allowed"),
        (lambda: answer("x", "u2", continues="a1"), "continues: 'a1' is not allowed"),
        (lambda: answer("", "u1"), "id: '' is not allowed"),
        (lambda: answer("x", "u1", state="fine"), "state: 'fine' is not allowed"),
        (lambda: Node("x", "u1", "system", (), 0), "role: 'system' is not allowed"),
        (lambda: Node("x", "u1", "tool", (), 0), "call_id: None is not allowed"),
        (lambda: Node("x", "u1", "user", (), 0, reasoning="hm"), "reasoning: 'hm' is not allowed"),
        (lambda: answer("x", "u1", calls=tuple(Call(str(i), "f", "{}", "") for i in range(65))), "calls: 65 is not"),
        (lambda: answer("x", "u1", calls=(Call("c", "f", "{}", ""),) * 2), "an id of its own for each call"),
        (lambda: answer("x", "u1", params={"seed": object()}), "params.seed"),
    ],
)
def test_what_does_not_fit_is_refused_by_field(node, words):
    with pytest.raises(ParameterError) as caught:
        talk().add(node())
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "chosen", "words"),
    [
        ([("a", "b"), ("b", "a")], {}, "message 'a': parent: 'b' is not allowed"),
        ([("a", "a")], {}, "message 'a': parent: 'a' is not allowed"),
        ([("a", "z")], {}, "message 'a': parent: 'z' is not allowed"),
        ([("a", None), ("a", None)], {}, "message 'a': id: 'a' is not allowed"),
        ([("a", None)], {"a": "a"}, "chosen['a']: 'a' is not allowed"),
        ([("a", None)], {None: "z"}, "chosen[None]: 'z' is not allowed"),
    ],
)
def test_parts_that_make_no_tree_are_refused(nodes, chosen, words):
    with pytest.raises(ParameterError) as caught:
        checked([Node(node_id, parent, "user", (), 0) for node_id, parent in nodes], chosen)
    assert words in str(caught.value)


def test_a_node_does_not_change_when_what_it_was_made_from_does():
    params = {"seed": 1, "logit_bias": {"5": 1.0}}
    node = answer("a", "u", params=params)
    params["logit_bias"]["5"] = 2.0
    assert node.params == {"seed": 1, "logit_bias": {"5": 1.0}}
    with pytest.raises(TypeError):
        node.params["seed"] = 2


def test_two_pages_that_added_to_one_conversation_lose_nothing():
    base = talk()
    one, two = base.ask("u3", "Here", 5), base.ask("u4", "There", 6).with_title("Names")
    merged = one.merge(two)
    assert set(merged.nodes) == {"u1", "a1", "u2", "a2", "u3", "u4"}
    assert (shown(merged)[-1], merged.title) == ("u3", "Names")
    assert merged.siblings("u3") == ("u3", "u4")


def test_of_an_interrupted_answer_and_what_became_of_it_the_latter_stays():
    asked = Tree().ask("u", "?", 0)
    partial, whole = asked.add(answer("a", "u", "He", state="interrupted")), asked.add(answer("a", "u", "Hello"))
    longer = asked.add(answer("a", "u", "Hell", state="interrupted"))
    assert partial.merge(whole).node("a").text == whole.merge(partial).node("a").text == "Hello"
    assert partial.merge(longer).node("a").text == "Hell"
    with pytest.raises(ParameterError, match="merge"):
        whole.merge(asked.add(answer("a", "u", "Bye")))


def test_a_model_is_given_the_system_prompt_and_the_path_and_thinking_apart():
    tree = Tree(system="Be kind.").ask("u", "?", 0).add(answer("a", "u", "Yes", reasoning="hm"))
    assert as_messages(tree.path, tree.system) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "Yes", "reasoning_content": "hm"},
    ]


def test_a_model_is_given_only_calls_that_are_well_formed_and_answered():
    calls = (
        Call("c1", "add", '{"a": 1}', ""),
        Call("c2", "", "", "{", problem="invalid JSON"),
        Call("c3", "now", "{}", ""),
    )
    tree = Tree().ask("u", "?", 0).add(answer("a", "u", calls=calls))
    assert "tool_calls" not in as_messages(tree.path)[1]
    messages = as_messages(tree.add(result("t", "a", "c1", "2")).path)
    assert messages[1]["tool_calls"] == [
        {"type": "function", "id": "c1", "function": {"name": "add", "arguments": {"a": 1}}}
    ]
    assert messages[2] == {"role": "tool", "content": "2", "tool_call_id": "c1", "name": "add"}
    as_text = as_messages(tree.add(result("t", "a", "c1", "2")).path, arguments_as_text=True)
    assert as_text[1]["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "answer", "edit", "again", "select"]), st.integers(0, 50)), max_size=25)
)
def test_whatever_is_done_every_message_stays_as_it_was_and_reachable(steps):
    tree = Tree()
    for number, (step, choice) in enumerate(steps):
        before, node_id = tree, f"n{number}"
        users = [node.id for node in tree.nodes.values() if node.role == "user"]
        answers = [node.id for node in tree.nodes.values() if node.role == "assistant" and node.parent]
        if step == "ask":
            tree = tree.ask(node_id, f"text {number}", number)
        elif step == "answer" and tree.leaf is not None:
            tree = tree.add(answer(node_id, tree.leaf.id, f"text {number}"))
        elif step == "edit" and users:
            tree = tree.edit(users[choice % len(users)], node_id, f"text {number}", number)
        elif step == "again" and answers:
            old = answers[choice % len(answers)]
            tree = tree.before(old)
            assert shown(tree)[-1] == tree.node(old).parent
        elif step == "select" and tree.nodes:
            tree = tree.select(list(tree.nodes)[choice % len(tree.nodes)])
        assert all(tree.nodes[known] == node for known, node in before.nodes.items())
    for node_id in tree.nodes:
        assert node_id in shown(tree.select(node_id))
    assert checked(tree.nodes.values(), tree.chosen) == tree


def test_content_has_parts_and_one_text():
    node = Node("u", None, "user", (TextPart("a"), TextPart("b")), 0)
    assert node.text == "ab"
    assert text_content("") == ()
