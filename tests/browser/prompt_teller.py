# Appended to the engine worker's source: what the model is given is told to the console, as "prompt [1, 2, …]". All else
# is the real worker.

import json

import js

from pyruntime.engine import Engine

_plain_answer = Engine.answer


def _told_answer(self, prompt, *args, **kwargs):
    js.console.log(f"prompt {json.dumps(list(prompt))}")
    return _plain_answer(self, prompt, *args, **kwargs)


Engine.answer = _told_answer
