"""`python -m benchmarks NAME [options]`: one entry to all measurements; `docs/benchmarks.md` tells what they mean."""

from __future__ import annotations

import importlib
import sys

from tooling.console import run_command

# Name → where its command is, and what it measures.
BENCHMARKS = {
    "decode": ("answers", "decode", "how fast answers are in the page, behind short and long prompts"),
    "prefill": ("answers", "prefill", "how fast the page reads prompts"),
    "ttft": ("ttft", "main", "what the time until the first word consists of: first visit, reload, warm"),
    "boot": ("boot", "main", "how long the page takes to start"),
    "memory": ("memory", "main", "how much memory a tab takes, and whether it stays"),
    "step": ("step", "main", "how much of a decode step is Python"),
    "stop": ("stop", "main", "how soon Stop takes effect while a long prompt is read"),
    "sandbox": ("sandbox", "main", "what running Python in the sandbox costs"),
    "kernels": ("kernels", "main", "how fast the native kernels are, without a page"),
    "quality": ("quality", "main", "how faithful the kernels are to float32"),
    "conversion": ("conversion", "main", "what is lost where the kernels keep weights in another form"),
    "text": ("text", "main", "what templates and tokens of a chat cost"),
    "ahead": ("look_ahead", "main", "what computing the next prompt ahead saves"),
    "tokenizer": ("tokenizer", "main", "how fast text becomes tokens"),
}


def main() -> int:
    """Run the benchmark that was named; the exit code."""
    name = sys.argv[1] if len(sys.argv) > 1 else "--help"
    if name not in BENCHMARKS:
        width = max(map(len, BENCHMARKS))
        lines = [f"  {name:{width}}  {about}" for name, (_, _, about) in BENCHMARKS.items()]
        said = "\n".join(["python -m benchmarks NAME [options]   (NAME --help lists the options)", "", *lines])
        wanted = name in {"-h", "--help"}
        sys.stdout.write(f"{said}\n") if wanted else sys.stderr.write(f"{name}: no such benchmark\n{said}\n")
        return 0 if wanted else 2
    module, function, _ = BENCHMARKS[name]
    sys.argv[:2] = [f"python -m benchmarks {name}"]
    return int(getattr(importlib.import_module(f"benchmarks.{module}"), function)())


if __name__ == "__main__":
    sys.exit(run_command(main))
