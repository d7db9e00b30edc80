"""The recorded reference: what it makes of the acceptance cases and of our own corpus, one file for each model.

A file is written once. It says which tokenizer file and which reference it was made with, and is not overwritten by
another one unless that is asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.parity.acceptance_texts import Text, acceptance_texts, whole
from tests.parity.known_tokenizers import Known
from tests.parity.random_text import random_text
from tests.parity.texts import CHATS, TEXTS

DATA = Path(__file__).parent / "data"
RECORDED = {"qwen3": "Qwen3", "smollm2": "SmolLM2-135M-Instruct"}
_CORPUS_SEED, _CORPUS_TEXTS = 20_240, 150


def path_of(name: str) -> Path:
    """Where the record of a tokenizer lies."""
    return DATA / f"{name}_tokenizer.json"


def read(name: str) -> dict[str, Any]:
    """The record of a tokenizer."""
    return json.loads(path_of(name).read_text(encoding="ascii"))


def corpus_texts() -> Iterator[str]:
    """Our own corpus: prose, code, chats, and texts that were drawn once."""
    yield from (*TEXTS, *CHATS)
    generator = random.Random(_CORPUS_SEED)
    yield from (random_text(generator) for _ in range(_CORPUS_TEXTS))


def reference_case(known: Known, text: Text) -> dict[str, Any]:
    """Of a text: its ids as typed by a user, as written by a template, and what the first decode to."""
    content = whole(text)
    ids = known.typed.encode(content, add_special_tokens=False).ids
    case: dict[str, Any] = {"text": text, "ids": ids}
    with_control = known.written.encode(content, add_special_tokens=False).ids
    if with_control != ids:
        case["ids_with_control"] = with_control
    decoded = known.typed.decode(ids, skip_special_tokens=True)
    if decoded != content:
        case["decoded"] = decoded
    return case


def make(known: Known, corpus: Iterable[str]) -> dict[str, Any]:
    """The record of a tokenizer, made anew."""
    texts = acceptance_texts(known.own.control_ids)
    return {
        "made_by": "python -m tests.parity record",
        "model": RECORDED[known.name],
        "revision": known.source,
        "tokenizer_sha256": known.sha256,
        "versions": {name: version(name) for name in ("tokenizers", "gguf")},
        "cases": [{"case": name, **reference_case(known, text)} for name, some in texts.items() for text in some],
        "corpus": [reference_case(known, text) for text in corpus],
    }


def to_text(record: dict[str, Any]) -> str:
    """The record as it is written: a line for each case."""
    lists = {key: record[key] for key in ("cases", "corpus")}
    head = json.dumps({key: value for key, value in record.items() if key not in lists})[:-1]
    for key, cases in lists.items():
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        head += f', "{key}": [\n{lines}\n]'
    return head + "}\n"


def own_differences(known: Known, record: dict[str, Any]) -> list[str]:
    """What the runtime makes otherwise than the record."""
    wrong = []
    for case in (*record["cases"], *record["corpus"]):
        text = whole(case["text"])
        ids = known.own.encode(text)
        with_control = known.own.encode_with_control(text)
        found = (ids, with_control, known.own.decode(case["ids"]))
        if found != (case["ids"], case.get("ids_with_control", case["ids"]), case.get("decoded", text)):
            wrong.append(f"{case.get('case', 'corpus')}: {text[:80]!a}")
    return wrong
