"""Other runtimes, measured in turns with the page: `--peer NAME=COMMAND`.

A peer's command is run once in each round. It prints one line of JSON, last; what is read of it (all of it optional):

    gen         anything → {"prompt_tokens", "ttft_ms", "prefill_tps", "decode_tps"}; ours is compared with the entry whose
                prompt is nearest in length
    memory      {"renderer_peak_rss_mib"}, or peak_rss_mib beside it for what runs outside a browser
    cold, warm  {"nav_to_ready_ms"}: from navigation to ready on a first and on a later visit

`docs/benchmarks.md` tells how peers are installed.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.results import Contender
from tooling.console import ToolingError

NEAR = 0.1  # a prompt is comparable when its length differs by at most so much

_PATIENCE = 1200  # seconds for a round


def add_peer_option(parser: argparse.ArgumentParser) -> None:
    """`--peer`, any number of times."""
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        type=parse_peer,
        metavar="NAME=COMMAND",
        help="measure another runtime in turns with the page; see benchmarks/peers.py",
    )


def parse_peer(text: str) -> tuple[str, list[str]]:
    """The name and the command's words."""
    name, mark, command = text.partition("=")
    if not (name and mark and command.strip()):
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=COMMAND")
    return name, shlex.split(command)


def peer_contenders(
    peers: list[tuple[str, list[str]]], read: Callable[[Mapping[str, Any]], Mapping[str, float]]
) -> dict[str, Contender]:
    """A contender for each peer; `read` gives the figures of what its command printed."""

    def step(name: str, command: list[str]) -> Mapping[str, float]:
        return read(run_peer(name, command))

    return {
        name: Contender([lambda name=name, command=command: step(name, command)], is_ours=False)
        for name, command in peers
    }


def run_peer(name: str, command: list[str]) -> dict[str, Any]:
    """What the command printed last; ToolingError when it failed or printed something else."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired as error:
        raise ToolingError(f"--peer {name}: not done after {_PATIENCE} s; let it do less in a round") from error
    except OSError as error:
        raise ToolingError(f"--peer {name}: {command[0]} cannot be run: {error.strerror}") from error
    last = (done.stdout.strip().splitlines() or [""])[-1]
    try:
        told = json.loads(last)
    except ValueError:
        told = None
    if done.returncode != 0 or not isinstance(told, dict):
        tail = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        raise ToolingError(
            f"--peer {name}: it should print a line of JSON and exit with 0 (it said {done.returncode})\n  {tail}"
        )
    return told


def entry_for(told: Mapping[str, Any], prompt_tokens: int) -> Mapping[str, Any]:
    """The peer's figures for the prompt nearest in length; empty when none is near."""
    entries = [entry for entry in told.get("gen", {}).values() if isinstance(entry.get("prompt_tokens"), int)]
    entries = [entry for entry in entries if abs(entry["prompt_tokens"] - prompt_tokens) <= NEAR * prompt_tokens]
    return min(entries, key=lambda entry: abs(entry["prompt_tokens"] - prompt_tokens), default={})
