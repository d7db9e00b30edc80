import asyncio
import io
import json

import pytest

from pyruntime.cli import main
from pyruntime.engine import Engine
from tests.tiny_model import IM_END, IM_START, tiny_gguf


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf())
    return str(path)


def test_chat_answers_one_message_and_prints_the_figures(model, capsys):
    assert main(["chat", model, "--message", "Hi", "--max-tokens", "5", "--seed", "1", "--stats"]) == 0
    captured = capsys.readouterr()
    assert captured.out.endswith("\n")
    assert "21 prompt tokens (0 cached), 5 new" in captured.err


def test_the_same_seed_gives_the_same_answer(model, capsys):
    answers = []
    for _ in range(2):
        main(["chat", model, "--message", "Hi", "--max-tokens", "8", "--seed", "1"])
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_a_talk_goes_on_until_the_input_ends_and_reuses_the_cache(model, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\nAnd?\n"))
    assert main(["chat", model, "--system", "Be brief.", "--max-tokens", "3", "--temperature", "0", "--stats"]) == 0
    first, second = [line for line in capsys.readouterr().err.splitlines() if line.startswith("[length")]
    assert "(0 cached)" in first
    assert "(0 cached)" not in second


def test_commands_are_told_and_tools_offered_only_to_a_model_that_can_call_them(model, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Hi\n/help\n"))
    assert main(["chat", model, "--tools", "--max-tokens", "1"]) == 0
    captured = capsys.readouterr()
    assert "UnsupportedError: tiny.gguf: chat template: it has no way of asking for tools" in captured.err
    assert "/continue " in captured.out


def test_an_error_in_one_turn_is_told_and_the_talk_goes_on(model, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("x" * 300 + "\nHi\n"))
    assert main(["chat", model, "--max-tokens", "1", "--stats"]) == 0
    err = capsys.readouterr().err
    assert "ContextOverflowError: prompt: too long" in err
    assert "1 new" in err


def test_tokenize_prints_ids_and_pieces(model, capsys):
    assert main(["tokenize", model, "Hé"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "      72  'H'"


def test_tokenize_takes_control_tokens_only_when_asked(model, capsys):
    text = "<|im_start|>a<|im_end|>"
    main(["tokenize", model, text, "--json"])
    assert json.loads(capsys.readouterr().out) == list(text.encode())
    main(["tokenize", model, text, "--json", "--control"])
    assert json.loads(capsys.readouterr().out) == [IM_START, ord("a"), IM_END]


def test_a_dash_reads_the_text_from_standard_input(model, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n"))
    main(["tokenize", model, "-", "--json"])
    assert json.loads(capsys.readouterr().out) == list(b"ab\n")


def test_inspect_tells_shape_tokenizer_and_metadata(model, capsys):
    assert main(["inspect", model, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["file"]["F32 tensors"] == 20
    assert report["config"]["n_layers"] == 2
    assert report["tokenizer"]["stop ids"] == [IM_END, 258]
    assert report["metadata"]["tokenizer.ggml.tokens"].startswith("264 values")


def test_logits_are_sorted_and_their_logprobs_are_those_of_the_whole_distribution(model, capsys):
    assert main(["logits", model, "Hi", "--top", "264", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["logit"] for row in rows] == sorted((row["logit"] for row in rows), reverse=True)
    assert sum(2.718281828459045 ** row["logprob"] for row in rows) == pytest.approx(1, abs=1e-6)


def test_the_text_before_logits_begins_with_the_begin_token_once_where_the_model_wants_one(tmp_path, capsys):
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_gguf(tokenizer__ggml__bos_token_id=IM_START, tokenizer__ggml__add_bos_token=True))
    expected = asyncio.run(Engine.load(path)).logits([IM_START, *b"Hi"])[-1]
    for arguments in (["Hi"], ["<|im_start|>Hi", "--control"]):
        main(["logits", str(path), *arguments, "--top", "1", "--json"])
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["id"], row["logit"]) == (expected.argmax(), pytest.approx(expected.max(), abs=1e-4))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "missing.gguf"], "missing.gguf: No such file or directory. Give the path of a .gguf file"),
        (["inspect", "."], "files: 0 files end in .gguf and none in .safetensors"),
        (["chat", "MODEL", "--temperature", "-1"], "ParameterError: temperature: -1.0 is not allowed"),
        (["chat", "MODEL", "--context", "100000"], "ParameterError: context: 100000 is not allowed"),
        (["logits", "MODEL", ""], "ParameterError: ids"),
    ],
)
def test_an_error_is_one_line_that_names_the_thing_and_status_one(model, capsys, arguments, words):
    assert main([model if argument == "MODEL" else argument for argument in arguments]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_file_that_is_not_a_model_is_named(tmp_path, capsys):
    path = tmp_path / "page.gguf"
    path.write_text("<!doctype html>")
    assert main(["inspect", str(path)]) == 1
    assert "page.gguf" in capsys.readouterr().err
