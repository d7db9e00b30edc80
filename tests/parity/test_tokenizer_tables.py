"""The committed Unicode tables and our normal forms, against the reference itself."""

from __future__ import annotations

import json
import unicodedata

import pytest
from tokenizers import normalizers

from pyruntime.text.normalize import FORMS, to_form
from tests.parity.make_unicode_tables import SCALARS, TABLES, codes_of, make_tables


def test_the_committed_tables_are_what_the_reference_answers():
    committed = json.loads(TABLES.read_text())
    assert make_tables(codes_of(committed["newer"])) == committed


@pytest.mark.parametrize("form", FORMS)
def test_a_normal_form_is_the_references_for_every_character_among_marks(form):
    reference = getattr(normalizers, form)()
    interesting = [
        char
        for char in map(chr, SCALARS)
        if unicodedata.combining(char)
        or unicodedata.decomposition(char)
        or unicodedata.category(char) in ("Mn", "Mc", "Cn")
    ]
    assert len(interesting) > 800_000, "unassigned characters are among them"
    texts = [f"a\u0301{char}\u0323{char}\u0307\n" for char in interesting]
    for start in range(0, len(texts), 10_000):
        some = "".join(texts[start : start + 10_000])
        ours, theirs = to_form(some, form).split("\n"), reference.normalize_str(some).split("\n")
        assert ours == theirs, [ascii(line) for line, other in zip(ours, theirs, strict=True) if line != other][:5]
