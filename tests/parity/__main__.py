"""The parity harness: the runtime's tokenizers against the reference.

    python -m tests.parity record [--force]       write the reference's ids for the acceptance cases and our corpus
    python -m tests.parity check                  make them anew, and compare with what was written and with the runtime
    python -m tests.parity fuzz --strings 20000 --tokenizer all [--seed N] [--json FILE]
                                                  other texts each time; the seed is logged, and gives the same again

Names of tokenizers: qwen3 qwen2_5 llama3_1 deepseek_v3 gptoss gpt4o mistral_nemo gpt2 smollm2.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.parity import fuzz, record
from tests.parity.known_tokenizers import NAMES, load


def write_records(*, force: bool) -> int:
    """Write every record that is missing; refuse to change one, unless `force`."""
    status = 0
    for name in record.RECORDED:
        path = record.path_of(name)
        text = record.to_text(record.make(load(name), record.corpus_texts()))
        if path.exists() and path.read_text(encoding="ascii") != text and not force:
            print(f"{path.name}: differs from what the reference gives now; kept. --force writes it anew")
            status = 1
            continue
        path.write_text(text, encoding="ascii")
        print(f"{path.name}: {len(text)} bytes")
    return status


def check_records() -> int:
    """Compare every record with the reference as it is installed, and with the runtime."""
    status = 0
    for name in record.RECORDED:
        known, recorded = load(name), record.read(name)
        texts = [record.whole(case["text"]) for case in recorded["corpus"]]
        same = record.to_text(record.make(known, texts)) == record.path_of(name).read_text(encoding="ascii")
        wrong = record.own_differences(known, recorded)
        count = len(recorded["cases"]) + len(recorded["corpus"])
        print(
            f"{name}: {count} texts; the reference {'agrees' if same else 'DIFFERS'}; the runtime: {len(wrong)} wrong"
        )
        print(*wrong[:20], sep="\n", end="\n" if wrong else "")
        status |= not same or bool(wrong)
    return status


def run_fuzz(names: list[str], strings: int, seed: int, target: Path | None) -> int:
    """Compare fresh random texts; the number of tokenizers that differ."""
    print(f"seed {seed}")
    outcome: dict[str, Any] = {
        "command": f"python -m tests.parity fuzz --strings {strings} --seed {seed} --tokenizer {','.join(names)}",
        "versions": {"tokenizers": version("tokenizers"), "python": platform.python_version()},
        "tokenizers": {},
    }
    differing = 0
    for name in names:
        begun = time.monotonic()
        known = load(name)
        generator = random.Random(f"{seed} {name}")
        found = [*fuzz.differences(known, generator, strings), *fuzz.id_differences(known, generator, strings)]
        print(f"{name}: {strings} texts and {strings} lists of ids, {len(found)} differences "
              f"({time.monotonic() - begun:.0f} s)", flush=True)  # fmt: skip
        print(fuzz.describe(found[:10]), end="\n" if found else "")
        differing += bool(found)
        outcome["tokenizers"][name] = {
            "source": known.source,
            "sha256": known.sha256,
            "texts": strings,
            "lists_of_ids": strings,
            "differences": len(found),
        }
    if target is not None:
        target.write_text(json.dumps(outcome, indent=1) + "\n", encoding="ascii")
    return differing


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("--force", action="store_true")
    commands.add_parser("check")
    fuzzing = commands.add_parser("fuzz")
    fuzzing.add_argument("--strings", type=int, default=20_000)
    fuzzing.add_argument("--tokenizer", default="all", help="a name, several with commas, or all")
    fuzzing.add_argument("--seed", type=int, default=None)
    fuzzing.add_argument("--json", type=Path, default=None, metavar="FILE", help="write the outcome there")
    options = parser.parse_args()
    if options.command == "record":
        return write_records(force=options.force)
    if options.command == "check":
        return check_records()
    names = list(NAMES) if options.tokenizer == "all" else options.tokenizer.split(",")
    unknown = set(names) - set(NAMES)
    if unknown:
        parser.error(f"no tokenizer is called {', '.join(sorted(unknown))}")
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    return min(1, run_fuzz(names, options.strings, seed, options.json))


if __name__ == "__main__":
    sys.exit(main())
