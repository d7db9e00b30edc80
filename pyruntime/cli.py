"""The runtime from a terminal.

    python -m pyruntime chat MODEL                 talk to a model
    python -m pyruntime tokenize MODEL TEXT        the ids of a text, and the piece each one stands for
    python -m pyruntime inspect MODEL              what a model holds
    python -m pyruntime logits MODEL TEXT          the most probable next tokens

A thin skin over the engine: arguments in, events out. Errors of the runtime are printed as one line and end with
status 1; wrong usage ends with status 2.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from pyruntime import __version__
from pyruntime.chat.tree import Tree
from pyruntime.conversation import Options, Session
from pyruntime.engine import EXECUTORS, KV_CACHES, Engine, OpenedModel, open_model
from pyruntime.errors import TinyPyLMError
from pyruntime.formats.string_array import StringArray
from pyruntime.sampling import SamplingParams
from pyruntime.terminal_chat import TerminalChat
from pyruntime.text import Tokenizer
from pyruntime.tools import ToolRegistry
from pyruntime.tools.calculator import calculator_tool
from pyruntime.tools.clock import current_time_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHOWN_METADATA = 100  # characters of a metadata value that `inspect` shows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the process's exit status."""
    options = _parser().parse_args(arguments)
    try:
        status: int = options.run(options)
    except TinyPyLMError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read the output has had enough; what is left to write goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"{error.filename}: {error.strerror}. Give the path of a .gguf file or a model folder", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyruntime", description="Small language models, in Python.")
    parser.add_argument("--version", action="version", version=f"pyruntime {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_chat(commands)
    _add_tokenize(commands)
    _add_inspect(commands)
    _add_logits(commands)
    return parser


def _add_command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("model", metavar="MODEL", help="path of a .gguf file or of a model folder")
    command.set_defaults(run=run)
    return command


def _add_chat(commands: Any) -> None:
    command = _add_command(commands, "chat", _chat, "Talk to a model; /help tells the commands.")
    command.add_argument("--message", help="answer this one message and end")
    command.add_argument("--system", help="the system prompt; by default whatever the model's template says")
    defaults = SamplingParams()
    command.add_argument("--temperature", type=float, default=defaults.temperature, help="default %(default)s")
    command.add_argument("--top-k", type=int, default=defaults.top_k, help="0 switches it off (default)")
    command.add_argument("--top-p", type=float, default=defaults.top_p, help="1 switches it off (default)")
    command.add_argument("--min-p", type=float, default=defaults.min_p, help="default %(default)s")
    command.add_argument("--presence-penalty", type=float, default=defaults.presence_penalty)
    command.add_argument("--frequency-penalty", type=float, default=defaults.frequency_penalty)
    command.add_argument("--seed", type=int, help="makes the answers reproducible")
    command.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this text; repeatable")
    command.add_argument("--max-tokens", type=int, help="the longest answer")
    command.add_argument("--tools", action="store_true", help="let the model use a calculator and the clock")
    command.add_argument("--stats", action="store_true", help="print tokens and speed after each answer")
    _add_engine_options(command)


def _add_tokenize(commands: Any) -> None:
    command = _add_command(commands, "tokenize", _tokenize, "Print the token ids of a text.")
    command.add_argument("text", metavar="TEXT", help="the text, or - to read it from standard input")
    command.add_argument("--control", action="store_true", help="recognise control tokens in the text")
    command.add_argument("--json", action="store_true", help="print a JSON list of ids only")


def _add_inspect(commands: Any) -> None:
    command = _add_command(commands, "inspect", _inspect, "Print what a model holds.")
    command.add_argument("--json", action="store_true", help="print JSON")


def _add_logits(commands: Any) -> None:
    about = "Print the most probable next tokens after a text. A begin token comes first where the model wants one."
    command = _add_command(commands, "logits", _logits, about)
    command.add_argument("text", metavar="TEXT", help="the text, or - to read it from standard input")
    command.add_argument("--control", action="store_true", help="recognise control tokens in the text")
    command.add_argument("--top", type=int, default=10, help="how many (default %(default)s)")
    command.add_argument("--json", action="store_true", help="print JSON")
    _add_engine_options(command)


def _add_engine_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--executor", choices=EXECUTORS, default="auto", help="what computes (default %(default)s)")
    command.add_argument("--context", type=int, help="positions of the KV cache")
    command.add_argument("--precise", action="store_true", help="nearly as exact as float32, and slower")
    command.add_argument("--kv-cache", choices=KV_CACHES, default="int16", help="int8 halves it (default %(default)s)")
    command.add_argument("--threads", type=int, help="how many compute (default: one for each core)")


def _chat(options: argparse.Namespace) -> int:
    params = SamplingParams(
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        min_p=options.min_p,
        presence_penalty=options.presence_penalty,
        frequency_penalty=options.frequency_penalty,
        seed=options.seed,
        stop=tuple(options.stop),
        max_tokens=options.max_tokens,
    )
    tools = ToolRegistry([calculator_tool(), current_time_tool(_here_and_now)] if options.tools else [])
    session = Session(_load(options), Tree().with_system(options.system), Options(params, tools))
    chat = TerminalChat(session, stats=options.stats)
    if options.message is None:
        chat.talk()
    else:
        chat.answer(session.send(options.message))
    return 0


def _here_and_now() -> datetime:
    return datetime.now(UTC).astimezone()


def _tokenize(options: argparse.Namespace) -> int:
    tokenizer = open_model(options.model).tokenizer
    text = _text(options)
    ids = _encode(options, tokenizer, text)
    if options.json:
        print(json.dumps(ids))
    else:
        for token_id in ids:
            print(f"{token_id:>8}  {tokenizer.decode([token_id])!r}")
        dropped = 0 if options.control else tokenizer.dropped_bytes(text)
        note = f", {dropped} bytes have no token in this vocabulary" if dropped else ""
        print(f"{len(ids)} tokens{note}", file=sys.stderr)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    report = _report(open_model(options.model))
    if options.json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return 0
    for section, values in report.items():
        print(section)
        for key, value in values.items():
            print(f"  {key}: {value}")
    return 0


def _report(model: OpenedModel) -> dict[str, dict[str, Any]]:
    types = Counter(tensor.type for tensor in model.tensors.values())
    scaling = model.config.rope_scaling
    config = asdict(model.config) | {"rope_scaling": scaling and {"kind": type(scaling).__name__, **asdict(scaling)}}
    return {
        "file": {
            "name": model.file_name,
            "bytes": sum(source.size for source in model.weights.sources.values()),
            "tensors": len(model.tensors),
            "parameters": sum(int(np.prod(tensor.shape)) for tensor in model.tensors.values()),
            **{f"{kind} tensors": count for kind, count in sorted(types.items())},
        },
        "config": config,
        "tokenizer": {
            "vocabulary": model.tokenizer.vocab_size,
            "control tokens": len(model.tokenizer.control_ids),
            "special tokens": dict(model.tokenizer.special_tokens),
            "stop ids": sorted(model.generation.stop_ids),
            "chat template": "yes" if model.template else "none",
        },
        "metadata": {key: _shown(value) for key, value in model.metadata.items()},
    }


def _shown(value: Any) -> Any:
    if isinstance(value, list | tuple | StringArray) and len(value) > 8:
        return f"{len(value)} values, first {list(value[:3])}"
    if isinstance(value, str) and len(value) > _SHOWN_METADATA:
        return value[: _SHOWN_METADATA - 1] + "…"
    return value


def _logits(options: argparse.Namespace) -> int:
    engine = _load(options)
    tokenizer = engine.model.tokenizer
    ids = _encode(options, tokenizer, _text(options))
    if tokenizer.add_bos and tokenizer.bos_id is not None and ids[:1] != [tokenizer.bos_id]:
        ids = [tokenizer.bos_id, *ids]
    last = engine.logits(ids)[-1]
    log_probabilities = last - last.max()
    log_probabilities -= np.log(np.exp(log_probabilities, dtype=np.float64).sum())
    best = np.argsort(-last, kind="stable")[: max(1, options.top)]
    rows: list[dict[str, Any]] = [
        {
            "id": int(i),
            "text": tokenizer.decode([int(i)]),
            "logit": float(last[i]),
            "logprob": float(log_probabilities[i]),
        }
        for i in best
    ]
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
    else:
        for row in rows:
            print(f"{row['id']:>8}  {row['logit']:>9.4f}  {np.exp(row['logprob']):>7.2%}  {row['text']!r}")
    return 0


def _text(options: argparse.Namespace) -> str:
    text: str = sys.stdin.read() if options.text == "-" else options.text
    return text


def _encode(options: argparse.Namespace, tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode_with_control(text) if options.control else tokenizer.encode(text)


def _load(options: argparse.Namespace) -> Engine:
    show = sys.stderr.isatty()

    def on_progress(done: int, total: int) -> None:
        if show:
            print(f"\rReading {options.model}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", end="", file=sys.stderr)
            if done >= total:
                print(file=sys.stderr)

    load = Engine.load(
        options.model,
        executor=options.executor,
        context=options.context,
        threads=options.threads,
        precise=options.precise,
        kv_cache=options.kv_cache,
        on_progress=on_progress,
        on_notice=_warn,
    )
    return asyncio.run(load)


def _warn(text: str) -> None:
    print(text, file=sys.stderr)
