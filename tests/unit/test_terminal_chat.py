"""What is typed into a terminal chat, and what it says."""

import io
import signal

import pytest

from pyruntime.chat.tree_io import from_json, to_json
from pyruntime.conversation import Options
from pyruntime.terminal_chat import TerminalChat
from pyruntime.tools import Tool, ToolRegistry
from tests.conversation_lab import GREEDY, OPTIONS, converse, path, prompts, scripted
from tests.tiny_model import CALL, UNCALL


@pytest.fixture(autouse=True)
def heeds_control_c():
    """A shell starts what it puts in the background with Ctrl-C ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def talk(monkeypatch, capsys):
    """A function that types lines into a chat with a model that gives certain answers: (Session, executor, out, err)."""

    def type_in(lines, *answers, at=None, options=OPTIONS, name="n", **scripted_options):
        engine, executor = scripted(*answers, **scripted_options)
        conversation = converse(engine, options, name=name)
        if at is not None:
            place, happening = at

            take = executor._take

            def take_and_happen(*computation):
                take(*computation)
                if len(executor.log) == place:
                    happening()

            executor._take = take_and_happen
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        TerminalChat(conversation).talk()
        return conversation, executor, *capsys.readouterr()

    return type_in


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_an_edit_a_new_attempt_and_a_continuation_are_branches(talk):
    lines = ["one", "/retry", "/continue", "/edit two"]
    conversation, _, out, err = talk(lines, "first", "second", " and on", "third")
    assert out.replace("> ", "").split("\n")[:4] == ["first", "second", " and on", "third"]
    assert path(conversation) == [("user", "two"), ("assistant", "third")]
    texts = [node.text for node in conversation.tree.nodes.values()]
    assert texts == ["one", "first", "second", "second and on", "two", "third"]
    assert err == ""


def test_undo_takes_the_last_question_and_its_answer_back(talk):
    conversation, _, _, err = talk(["one", "two", "/undo"], "first", "second")
    assert path(conversation) == [("user", "one"), ("assistant", "first")]
    assert err == "[2 messages]\n"


def test_another_system_prompt_counts_from_the_next_question_on(talk):
    conversation, executor, _, _ = talk(["/system Be brief.", "one", "/system", "two"], "first", "second")
    first, second = prompts(executor, conversation.engine.model)
    assert first.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\none")
    assert second.startswith("<|im_start|>user\none")
    assert conversation.tree.system is None


def test_a_conversation_is_kept_and_gone_on_with(talk, tmp_path):
    file = tmp_path / "talk.json"
    kept, *_ = talk(["one", "/retry", f"/save {file}"], "first", "second")
    assert from_json(file.read_bytes()) == kept.tree
    conversation, _, _, err = talk([f"/load {file}", "two"], "third", name="m")
    assert err == "[2 messages]\n"
    assert path(conversation)[:3] == [("user", "one"), ("assistant", "second"), ("user", "two")]


def test_a_slash_that_is_meant_is_written_twice_and_help_tells_the_commands(talk):
    conversation, _, out, _ = talk(["//etc/hosts", "/help"], "first")
    assert conversation.tree.path[0].text == "/etc/hosts"
    assert "/continue     go on with the last answer" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("/nonsense", "command: '/nonsense' is not allowed (allowed: /edit, /retry, "),
        ("/retry", "conversation: 'without a question' is not allowed (allowed: one with a question). Say something"),
        ("/continue", "conversation: 'without an answer' is not allowed"),
        ("/undo", "conversation: 'without a question' is not allowed"),
        ("/edit", "/edit: '' is not allowed (allowed: the question in other words"),
        ("/save model.gguf", "file: 'model.gguf' is not allowed (allowed: a name that ends in .json)"),
        ("/load missing.json", "missing.json: No such file or directory"),
    ],
)
def test_what_cannot_be_done_is_told_and_the_talk_goes_on(talk, line, words):
    conversation, _, _, err = talk([line, "one"], "first")
    assert words in err
    assert path(conversation) == [("user", "one"), ("assistant", "first")]


def test_a_file_that_is_no_conversation_is_told(talk, tmp_path):
    (tmp_path / "bad.json").write_text("[1]")
    conversation, _, _, err = talk(["one", f"/load {tmp_path / 'bad.json'}"], "first")
    assert "FormatError: " in err
    assert len(conversation.tree.path) == 2


def test_control_c_stops_an_answer_of_which_stays_what_came_and_can_be_continued(talk):
    conversation, _, out, _ = talk(["one", "/continue"], "first", "and on", at=(4, interrupt))
    assert "fir [stopped]" in out or "firs [stopped]" in out
    stopped = next(node for node in conversation.tree.nodes.values() if node.state == "cancelled")
    assert "first".startswith(stopped.text)
    assert conversation.tree.leaf.text == stopped.text + "and on"


def test_a_question_that_was_stopped_before_a_word_came_is_taken_back(talk):
    conversation, _, out, _ = talk(["one " * 20, "two"], "first", at=(1, interrupt))  # read in several chunks
    assert "[stopped]" in out
    assert path(conversation) == [("user", "two"), ("assistant", "first")]


def test_what_is_left_out_of_the_prompt_is_told(talk):
    _, _, _, err = talk(
        ["x" * 60, "y" * 60], "first", "second", context=180, options=Options(params=GREEDY, reserve=16)
    )
    assert err == "[2 earlier messages are left out of what the model reads: the context has no room for more]\n"


@pytest.mark.parametrize(("said", "ran"), [("y", True), ("no", False), (None, False)])
def test_a_call_that_needs_approval_is_asked_about(talk, said, ran):
    runs = []

    async def ring(arguments):
        runs.append(arguments)
        return "rang"

    tools = ToolRegistry([Tool("ring", "", {"type": "object"}, ring)])
    call = [CALL, '{"name": "ring", "arguments": {}}', UNCALL]
    lines = ["one"] + ([said] if said else [])
    conversation, _, out, err = talk(lines, call, "done", options=Options(params=GREEDY, tools=tools))
    assert "May ring be run with {}? [y/N] " in out
    assert bool(runs) == ran
    assert ("[ring {}]" in err) == ran
    assert conversation.tree.leaf.text == "done"


def test_a_call_that_cannot_be_run_is_told(talk):
    tools = ToolRegistry([Tool("ring", "", {"type": "object"}, None)])
    _, _, _, err = talk(["one"], [CALL, '{"name": "sing", "arguments": {}}', UNCALL], options=Options(GREEDY, tools))
    assert err.startswith("[invalid tool call: ")


def test_the_first_question_can_be_taken_back_too_and_stays_as_a_branch(talk):
    conversation, _, _, err = talk(["one", "/undo", "two"], "first", "second")
    assert err == "[an empty conversation]\n"
    assert path(conversation) == [("user", "two"), ("assistant", "second")]
    assert from_json(to_json(conversation.tree).encode()) == conversation.tree
    assert len(conversation.tree.nodes) == 4
