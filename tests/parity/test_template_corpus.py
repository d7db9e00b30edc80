"""Real chat templates and one-line templates, against what the reference made of them."""

import json
from datetime import datetime

import minijinja
import pytest

from pyruntime.chat import ChatTemplate
from pyruntime.chat.environment import CompiledTemplate
from pyruntime.errors import ParameterError, TemplateError


def now():
    return datetime(2025, 3, 14, 15, 9, 26)  # noqa: DTZ001 - the reference passes local time


def tables(shared):
    folder = shared / "corpus" / "template_cases"
    conversations = {row["id"]: row for row in json.loads((folder / "conversations.json").read_text())}
    for path in sorted(folder.glob("*.json")):
        if path.name != "conversations.json":
            table = json.loads(path.read_text())
            source = (shared / "templates" / table["template"]).read_text()
            yield path.stem, source, table["special_tokens"], table["cases"], conversations


def rendering(template, conversation):
    """(text, None) or (None, error)."""
    arguments = {key: value for key, value in conversation.items() if key not in ("id", "kwargs")}
    try:
        return template.render(**arguments, **conversation.get("kwargs", {})), None
    except (TemplateError, ParameterError) as error:
        return None, error


def test_strict_rendering_is_the_references_or_names_what_is_undefined(shared):
    seen = 0
    for name, source, special_tokens, cases, conversations in tables(shared):
        template = ChatTemplate(source, special_tokens, now=now)
        for case in cases:
            text, error = rendering(template, conversations[case["conversation"]])
            where, status = f"{name}: {case['conversation']}", case["semi_strict"]
            seen += 1
            if status == "same":
                assert text == case["expected"], where
            elif status.startswith("error: undefined value: "):
                undefined = status.removeprefix("error: undefined value: ").split(" is undefined")[0]
                assert undefined in str(error), where
            elif status.startswith("error"):
                assert error is not None, where
    assert seen >= 972


def test_undefined_reference_renders_as_the_reference_does(shared):
    for name, source, special_tokens, cases, conversations in tables(shared):
        template = ChatTemplate(source, special_tokens, now=now, undefined="reference")
        for case in cases:
            text, error = rendering(template, conversations[case["conversation"]])
            where, status = f"{name}: {case['conversation']}", case["minijinja_shimmed"]["status"]
            if status == "same":
                assert text == case["expected"], where
            elif status == "both-error":
                assert error is not None, where


def test_one_line_templates_render_as_the_reference_does_where_minijinja_can(shared):
    rows = [json.loads(line) for line in (shared / "corpus" / "minijinja_micro.jsonl").read_text().splitlines()]
    context = rows[0]["context"]
    # JSON has no tuples; the reference's context has this one.
    context["tup"] = tuple(context["tup"])
    for row in rows[1:]:
        try:
            text = CompiledTemplate(row["template"], "lenient", now).render(
                json.loads(json.dumps(context)) | {"tup": context["tup"]}
            )
        except (minijinja.TemplateError, TemplateError, AttributeError):  # a method that Python's list has not
            text = None
        status = row["minijinja_shimmed"]["status"]
        if status == "same":
            assert text == row["expected"], row["id"]
        elif status == "both-error":
            assert text is None, row["id"]


def test_hostile_templates_end_with_an_error_or_render_safely(shared):
    folder = shared / "corpus" / "malformed"
    entries = {e["file"]: e for e in json.loads((folder / "MANIFEST.json").read_text())["entries"]}
    messages = [{"role": "user", "content": "Hi"}]
    seen = 0
    for file, entry in entries.items():
        source = json.loads((folder / file).read_text()).get("chat_template") if file.startswith("cfg_") else None
        if not isinstance(source, str):
            continue
        seen += 1
        try:
            ChatTemplate(source, undefined="reference").render(messages)
            outcome = "ok"
        except TemplateError:
            outcome = "error"
        assert outcome in entry["expect"].split("-or-"), file
    assert seen >= 12
    assert messages == [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ {'a': '<b> & \\'c\\''}|tojson }}", '{"a": "<b> & \'c\'"}'),
        ("{{ [3.0, 1.5e-7, 'é']|tojson }}", '[3.0, 1.5e-07, "é"]'),
        ("{{ {'b': 1, 'a': 'é'}|tojson(sort_keys=true, ensure_ascii=true) }}", '{"a": "\\u00e9", "b": 1}'),
        ("{{ [1, 2]|tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ {'a': [1]}|tojson(indent=2) }}", '{\n  "a": [\n    1\n  ]\n}'),
        ("{{ '\\\\u003c'|tojson }}", '"\\\\u003c"'),
        ("a{% generation %}x{% endgeneration %}b", "axb"),
        ("a {%- generation -%} x {%- endgeneration %} b", "ax b"),
        ("{{ '{% generation %} |tojson' }}", "{% generation %} |tojson"),
        ("{{ ['<x>']|map('tojson')|join }}{% filter tojson %}<x>{% endfilter %}", '"<x>""<x>"'),
        ("{{ '{}-{}'.format(1, 'a100000') }}", "1-a100000"),
        ("{% raw %}{{ x|tojson }}{% generation %}{% endraw %}", "{{ x|tojson }}{% generation %}"),
        ("{# {% generation %} #}a", "a"),
        ("{{ none is iterable }} {{ 'a' is iterable }} {{ 'a' is sequence }}", "False True True"),
        ("{{ {'a': {'b': 1}}|tojson }}", '{"a": {"b": 1}}'),
        ("{{ '%05d'|format(7) }} {{ '{:>4}'.format(1) }}", "00007    1"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
    ],
)
def test_what_minijinja_does_differently_is_made_to_match(source, expected):
    assert CompiledTemplate(source, "lenient", now).render({}) == expected


@pytest.mark.parametrize(
    "source",
    [
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ ('{:>' ~ '1000000000}').format(1) }}",
        "{{ '%1000000000d'|format(1) }}",
        "{{ '%*d'|format(1000000000, 1) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'a\\nb'|indent(1000000000) }}",
        "{{ range(10000)|join('a' * 100000) }}",
        "{{ '\\u007b:>1000000000\\u007d'.format(1) }}",
        "{{ '{:>1\\x30\\x30\\x30\\x30\\x30\\x30'.format(1) }}",
        "{{ [1]|tojson(indent=1000000000) }}",
        "{{ [1]|tojson(separators=(1, 2)) }}",
        "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
        "{% set ns = namespace() %}{% set y = [ns] %}{% set ns.x = y %}{{ ns.x|tojson }}",
        "{% set x = [namespace()] %}{{ x }}",
        "{% set _ = messages.append(messages) %}{{ messages }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}",
        "{{ 1" + "+1" * 20_000 + " }}",
        "{{ " + "(" * 1000 + "1" + ")" * 1000 + " }}",
        "{% if 0 %}" + "{% elif 0 %}" * 20_000 + "{% endif %}",
        "{{ '" + "\\'" * 50_000,
        "{{ 1" + "|int" * 40_000 + " }}",
        "{# x #}" * 100_000,
        "x" * 200_001,
    ],
)
def test_a_template_that_would_take_too_much_time_or_memory_is_stopped(source):
    with pytest.raises(TemplateError):
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}])
