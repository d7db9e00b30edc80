"""What computing the next prompt ahead saves: `python -m benchmarks ahead [--runs N] [--executor NAME]`. Prints JSON.

The default model gives a first answer of so many tokens, and is then asked again, with nothing computed in between and with
`Session(look_ahead=True)` given the time it wants. Once its template shows an earlier answer as it was written; once the same
template is changed to show it otherwise, as templates do that drop earlier thinking: then the cache ends where the answer
began. Medians over the runs:

    ttft_ms    from the second question to its first text, without and with
    computed   tokens of the second prompt that the cache did not hold, without and with
    ahead_ms   what was computed ahead took so long
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from dataclasses import replace

from pyruntime.chat import ChatTemplate
from pyruntime.conversation import Options, Session
from pyruntime.engine import EXECUTORS, Engine
from pyruntime.events import Finished
from pyruntime.sampling import SamplingParams
from tooling import cache
from tooling.pins import read_pins

_LENGTHS = (50, 200)  # tokens of the first answer
_CONTENT = "message['content']"
_OTHERWISE = f"(('Earlier: ' if message['role'] == 'assistant' else '') + {_CONTENT})"


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Measures what computing the next prompt ahead saves; prints JSON.")
    parser.add_argument("--runs", type=int, default=7, help="how often each case is done (default: %(default)s)")
    parser.add_argument("--executor", choices=EXECUTORS, default="auto", help="what computes (default: %(default)s)")
    options = parser.parse_args()
    json.dump(asyncio.run(_measure(options.runs, options.executor)), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


async def _measure(runs: int, executor: str) -> dict[str, object]:
    model = read_pins().model
    engine = await Engine.load(cache.obtain([model])[model.name], executor=executor)
    engine.check_can_chat()
    plain, tokenizer = engine.model, engine.model.tokenizer
    source = plain.template.source.replace(_CONTENT, _OTHERWISE)
    changed = ChatTemplate(source, tokenizer.special_tokens, tokenizer)
    found: dict[str, object] = {"executor": engine.executor_name, "runs": runs}
    for name, template in (("history as written", plain.template), ("history changed", changed)):
        engine.model = replace(plain, template=template)
        found[name] = {f"{length} tokens": await _case(engine, length, runs) for length in _LENGTHS}
    return found


async def _case(engine: Engine, length: int, runs: int) -> dict[str, object]:
    without, ahead = [], []
    for number in range(runs):
        without.append(await _run(engine, length, f"{number}a", look_ahead=False))
        ahead.append(await _run(engine, length, f"{number}b", look_ahead=True))
    return {
        "ttft_ms": [round(statistics.median(run[0] for run in runs_of), 1) for runs_of in (without, ahead)],
        "computed": [statistics.median(run[1] for run in runs_of) for runs_of in (without, ahead)],
        "ahead_ms": round(statistics.median(run[2] for run in ahead), 1),
    }


async def _run(engine: Engine, length: int, name: str, *, look_ahead: bool) -> tuple[float, int, float]:
    options = Options(params=SamplingParams(temperature=0, max_tokens=length))
    session = Session(engine, options=options, look_ahead=look_ahead)
    async for _ in session.send(f"Tell me the story number {name} of the keeper of a lighthouse."):
        pass
    begun = time.perf_counter()
    await session.rest()
    took = (time.perf_counter() - begun) * 1000
    async for event in session.send("And what became of the lighthouse when the keeper had left it?"):
        if isinstance(event, Finished):
            usage, ttft = event.usage, event.timings.ttft_ms
    return ttft or 0.0, usage.prompt_tokens - usage.cached_tokens, took


if __name__ == "__main__":
    sys.exit(main())
