# Appended to the engine worker's source in the site that benchmarks serve: answers their questions about the engine.

import gc
import json
import time

from pyscript import sync

from pyruntime.engine import Engine
from pyruntime.events import Finished
from pyruntime.sampling import SamplingParams

_calls = []  # of each call into the kernels: when it began, ended, and when a token was drawn from it, seconds


def _engine():
    # However the worker holds it.
    return next(found for found in gc.get_objects() if type(found) is Engine)


def _about():
    executor = _engine()._executor
    host = getattr(executor, "_host", None)
    return {"executor": executor.name, "context": executor.context, "threads": getattr(host, "threads", 1)}


def _forget():
    # The cache then holds one token that no chat begins with.
    engine = _engine()
    first = engine.model.template.encode([{"role": "user", "content": ""}], add_generation_prompt=True)[0]
    engine.logits([0 if first else 1])


def _time_calls():
    executor = _engine()._executor
    # A token's run is begun by one call and finished by another; what is computed in between costs Python nothing.
    owner, names = (executor._host, ("run", "finish")) if hasattr(executor, "_host") else (executor, ("forward",))
    for name in names:
        setattr(owner, name, _timed(getattr(owner, name)))
    kv = _engine()._kv
    kv.draw = _noted(kv.draw)
    return " and ".join(names)


def _timed(call):
    def timed(*arguments):
        began = time.perf_counter()
        result = call(*arguments)
        ended = time.perf_counter()
        _calls.append([began, ended, ended])
        return result

    return timed


def _noted(draw):
    def noted(*arguments):
        token = draw(*arguments)
        _calls[-1][2] = time.perf_counter()
        return token

    return noted


def _alone():
    # A token's pass over and over, at position 64, while the page and Python do nothing; milliseconds.
    engine, times = _engine(), []
    engine._kv._cut(0)
    engine._executor.prefill([0] * 64)
    host = engine._executor._host
    for _ in range(100):
        began = time.perf_counter()
        host.run(host.threads, 1, 64, 1)
        times.append(time.perf_counter() - began)
    engine._executor.truncate(0)
    return 1000 * sorted(times)[50]


def _taken_calls():
    taken = [[1000 * moment for moment in call] for call in _calls]
    _calls.clear()
    return taken


async def _cycles(count, new_tokens):
    # Each chat shares but the template's beginning with the one before, so the cache is cut every time.
    engine, tokens = _engine(), 0
    for number in range(count):
        question = [{"role": "user", "content": f"{number} birds"}]
        async for event in engine.chat(question, SamplingParams(temperature=0, max_tokens=new_tokens)):
            if isinstance(event, Finished):
                tokens += event.usage.new_tokens
    return {"tokens": tokens, "python_heap_bytes": _heap_bytes()}


def _heap_bytes():
    from pyodide_js import _module

    return _module.HEAP8.length


_QUESTIONS = {
    "about": _about,
    "alone": _alone,
    "forget": _forget,
    "time_calls": _time_calls,
    "taken_calls": _taken_calls,
}


async def _probe(text):
    name, *arguments = json.loads(text)
    answer = await _cycles(*arguments) if name == "cycles" else _QUESTIONS[name](*arguments)
    return json.dumps(answer)


sync.probe = _probe
