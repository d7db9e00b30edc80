"""Random texts and ids through the runtime and the reference; what differs is made as small as it can be."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.parity.known_tokenizers import Known
from tests.parity.random_text import random_text

_BATCH = 500


@dataclass(frozen=True)
class Difference:
    """Something that the runtime does otherwise than the reference.

    Attributes:
        what: "typed", "written" or "decoded".
        text: the smallest text that shows it.
        expected: what the reference gives.
        found: what the runtime gives.
    """

    what: str
    text: str
    expected: object
    found: object


def differences(known: Known, generator: random.Random, strings: int) -> Iterator[Difference]:
    """What differs in so many random texts; with each, its ids typed and written, and the text of its ids."""
    tokens = [token for token in known.own.control_ids if len(token) > 1]
    for start in range(0, strings, _BATCH):
        texts = [random_text(generator, tokens) for _ in range(min(_BATCH, strings - start))]
        typed = [encoding.ids for encoding in known.typed.encode_batch(texts, add_special_tokens=False)]
        written = [encoding.ids for encoding in known.written.encode_batch(texts, add_special_tokens=False)]
        decoded = known.typed.decode_batch(typed, skip_special_tokens=True)
        for text, ids, control_ids, back in zip(texts, typed, written, decoded, strict=True):
            if known.own.encode(text) != ids:
                yield _smallest(known, "typed", text)
            elif known.own.decode(ids) != back:
                yield Difference("decoded", text, back, known.own.decode(ids))
            if known.own.encode_with_control(text) != control_ids:
                yield _smallest(known, "written", text)


def _smallest(known: Known, what: str, text: str) -> Difference:
    reference = known.typed if what == "typed" else known.written
    encode = known.own.encode if what == "typed" else known.own.encode_with_control

    def expected(shorter: str) -> list[int]:
        return reference.encode(shorter, add_special_tokens=False).ids

    small = shrink(text, lambda shorter: encode(shorter) != expected(shorter))
    return Difference(what, small, expected(small), encode(small))


def shrink(text: str, fails: Callable[[str], bool]) -> str:
    """The shortest text found that still fails: parts are left out, large ones first, then characters made plain."""
    size = max(1, len(text) // 2)
    while True:
        at = 0
        while at < len(text):
            shorter = text[:at] + text[at + size :]
            if fails(shorter):
                text = shorter
            else:
                at += size
        if size == 1:
            break
        size //= 2
    for at, char in enumerate(text):
        plainer = text[:at] + "a" + text[at + 1 :]
        if char != "a" and fails(plainer):
            text = plainer
    return text


def id_differences(known: Known, generator: random.Random, count: int) -> Iterator[Difference]:
    """What differs in the texts of random ids. Control tokens are left out: at them the runtime ends a character."""
    ids = [i for i in range(known.own.vocab_size) if not known.own.is_special(i)]
    batches = [generator.choices(ids, k=generator.randint(1, 12)) for _ in range(count)]
    for chosen, text in zip(batches, known.written.decode_batch(batches, skip_special_tokens=True), strict=True):
        found = known.own.decode(chosen)
        if found != text:
            yield Difference("decoded", repr(chosen), text, found)


def describe(found: Sequence[Difference]) -> str:
    """The differences for a reader."""
    return "\n".join(f"{one.what} {one.text!a}: expected {one.expected!a}, found {one.found!a}" for one in found)
