"""What `benchmarks.text` measures, on whichever Python runs it: CPython, or Pyodide, where the text of this file runs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyruntime.chat import ChatTemplate
from pyruntime.chat.marks import find_marks
from pyruntime.chat.output import OutputParser
from pyruntime.text import Tokenizer
from pyruntime.text.tables import compile_tables
from pyruntime.text.tokenizer_config import read_tokenizer_config

_SHA256 = "0" * 64  # of no file: tables only compare it


def measure_gguf(metadata: Mapping[str, Any], chat: Sequence[Mapping[str, str]], runs: int) -> dict[str, float]:
    """What the text of a model costs, given its GGUF file's metadata; see `_measure`."""
    template = metadata["tokenizer.chat_template"]
    return _measure(lambda: Tokenizer.from_metadata(metadata, "model.gguf"), template, chat, runs)


def measure_files(tokenizer: bytes, config: bytes, chat: Sequence[Mapping[str, str]], runs: int) -> dict[str, float]:
    """What the text of a model costs, given its tokenizer.json and tokenizer_config.json; see `_measure`."""
    described = read_tokenizer_config(config, "tokenizer_config.json")
    template = described.chat_templates["default"]
    return _measure(lambda: Tokenizer.from_tokenizer_json(tokenizer, described), template, chat, runs)


def _measure(
    load: Callable[[], Tokenizer], source: str, chat: Sequence[Mapping[str, str]], runs: int
) -> dict[str, float]:
    """Milliseconds, medians of `runs`.

    Args:
        load: reads the tokenizer from the model's own file.
        source: of its template.
        chat: the messages of a conversation.
        runs: how often each is done; reading the file is done three times.
    """
    tokenizer = load()
    tables = compile_tables(tokenizer.spec, _SHA256)

    def compile_template() -> ChatTemplate:
        return ChatTemplate(source, tokenizer.special_tokens, tokenizer)

    template = compile_template()
    marks = find_marks(template, tokenizer)
    ids = template.encode(chat, add_generation_prompt=True)

    def stream() -> None:
        parser = OutputParser(tokenizer, marks)
        for token_id in ids:
            parser.push(token_id)
        parser.finish()

    return {
        "load_file": _median(load, 3),
        "load_tables": _median(lambda: Tokenizer.from_tables(tables, _SHA256), runs),
        "compile_template": _median(compile_template, runs),
        "find_marks": _median(lambda: find_marks(template, tokenizer), runs),
        "render": _median(lambda: template.render(chat, add_generation_prompt=True), runs),
        "render_checked": _median(lambda: template.prompt(chat, add_generation_prompt=True), runs),
        "render_and_encode": _median(lambda: template.encode(chat, add_generation_prompt=True), runs),
        "stream_one_token": _median(stream, runs) / len(ids),
        "prompt_characters": len(template.render(chat, add_generation_prompt=True)),
        "prompt_tokens": len(ids),
    }


def _median(work: Callable[[], Any], runs: int) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(times), 4)
