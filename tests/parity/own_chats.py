"""Chat templates and conversations of our own, built to use between them what published templates use."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

_THINKS_AND_CALLS = r"""
{%- if tools %}
    {{- '<|begin|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
    {{- "# Tools\n<tools>" }}
    {%- for tool in tools %}{{ "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools><|end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|begin|>system\n' + messages[0].content + '<|end|>\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == 'user' and message.content is string
        and not (message.content.startswith('<result>') and message.content.endswith('</result>')) %}
        {%- set ns.searching = false %}{%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|begin|>' + message.role + '\n' + content + '<|end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|begin|>assistant\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '<|begin|>assistant\n' + content }}
        {%- endif %}
        {%- for call in message.tool_calls or [] %}
            {%- if (loop.first and content) or not loop.first %}{{- '\n' }}{%- endif %}
            {%- set call = call.function or call %}
            {{- '<call>\n{"name": "' }}{{- call.name }}{{- '", "arguments": ' }}
            {%- if call.arguments is string %}{{- call.arguments }}{%- else %}{{- call.arguments | tojson }}{%- endif %}
            {{- '}\n</call>' }}
        {%- endfor %}
        {{- '<|end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|begin|>user' }}{%- endif %}
        {{- '\n<result>\n' + content + '\n</result>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|end|>\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|begin|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}
{%- endif %}
"""

_DATED_AND_STRICT = r"""
{{- bos_token }}
{%- if not date_string is defined %}{% set date_string = strftime_now("%d %b %Y") %}{% endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set system = "" %}{%- endif %}
{{- "<|head|>system<|/head|>\n\nToday: " + date_string + "\n\n" }}
{%- if documents %}
    {%- for document in documents %}
        {{- "Document " ~ loop.index ~ ": " ~ document['title'] ~ "\n" ~ document.text|replace("\n", " ") ~ "\n" }}
    {%- endfor %}
{%- endif %}
{%- if tools is not none %}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}{%- endif %}
{{- system }}{{- "<|eot|>" }}
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) and message.role not in ['tool', 'ipython'] %}
        {{- raise_exception('After the optional system message, roles must alternate user/assistant: <' ~ message.role ~ '>') }}
    {%- endif %}
    {{- '<|head|>' + message['role'] + '<|/head|>\n\n'+ message['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|/head|>\n\n' }}{%- endif %}
"""

_PARTS_AND_MASKS = """
{% set loop_messages = messages | rejectattr('role', 'equalto', 'system') | list %}
{% for message in loop_messages -%}
  {% if message.role == 'tool' %}{% continue %}{% endif %}
  [{{ message.role | upper }}]
  {%- if message.content is string %} {{ message.content }}
  {%- elif message.content is iterable %}
    {%- for part in message.content %}
      {%- if part.type == 'text' %} {{ part['text'] }}{% elif part.type == 'image' %} <image>{% else %}{% break %}{% endif %}
    {%- endfor %}
  {%- endif %}
  {% if message.role == 'assistant' %}{% generation %}{{ eos_token }}{% endgeneration %}{% endif %}
[/{{ message.role | upper }}]{{ '' if loop.last else '--' }}
{% endfor %}
{% if add_generation_prompt %}[ASSISTANT]{% endif %}
"""

_MACROS = r"""
{%- macro type_of(spec, level=0) -%}
  {%- if spec.type == 'array' -%}{{ type_of(spec['items'], level + 1) if spec['items'] else 'any' }}[]
  {%- elif spec.type == 'object' and spec.properties is defined -%}
    {
    {%- for name, property in spec.properties.items() %}
{{ '  ' * (level + 1) }}{{ name }}{{ '' if name in spec.required|default([]) else '?' }}: {{ type_of(property, level + 1) }},
    {%- if property.description %} // {{ property.description | replace('\n', ' ') | trim }}{% endif %}
    {%- endfor %}
{{ '  ' * level }}}
  {%- elif spec.enum is defined -%}{{ spec.enum | map('tojson') | join(' | ') }}
  {%- elif spec.type is sequence and spec.type is not string -%}{{ spec.type | join(' | ') }}
  {%- else -%}{{ {'integer': 'number', 'string': 'string'}[spec.type] | default(spec.type) }}{%- endif -%}
{%- endmacro -%}
<|start|>developer<|message|>
{%- for tool in tools or [] %}
{%- set f = tool.function %}
type {{ f.name }} = (_: {{ type_of(f.parameters) }}) => any;
{%- endfor %}
<|end|>
{%- for m in messages if m.role != 'system' %}
<|start|>{{ m.role | title }}{% if m.tool_calls is defined and m.tool_calls %} to={{ m.tool_calls | map(attribute='function') | map(attribute='name') | join(',') }}{% endif -%}
<|message|>{{ m.content | default('', true) }}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}{{ '\n<|start|>assistant' }}{% endif %}
"""

# name → (source, special tokens)
TEMPLATES: dict[str, tuple[str, Mapping[str, str]]] = {
    "thinks and calls": (_THINKS_AND_CALLS, {"eos_token": "<|end|>"}),
    "dated and strict": (_DATED_AND_STRICT, {"bos_token": "<s>"}),
    "parts and masks": (_PARTS_AND_MASKS, {"eos_token": "</s>"}),
    "macros": (_MACROS, {}),
}

_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place & what to wear; it's <i>approximate</i>.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "Town,\nin any language, such as 東京"},
                "days": {"type": "integer", "minimum": 1, "maximum": 3.0},
                "units": {"enum": ["metric", "imperial"]},
                "near": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}}}},
                "any": {"type": ["string", "null"]},
            },
            "required": ["place"],
        },
    },
}
_CALL = {"type": "function", "id": "c1", "function": {"name": "weather", "arguments": {"place": "Zürich", "days": 2.0}}}


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _assistant(content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


_TURNS = [_user("Hi"), _assistant("Hello!"), _user("What is 2 + 2?")]

# name → the arguments of a render
CONVERSATIONS: dict[str, dict[str, Any]] = {
    "one question": {"messages": [_user("Hi")], "add_generation_prompt": True},
    "system and turns": {
        "messages": [{"role": "system", "content": "  Be brief.\n"}, *_TURNS],
        "add_generation_prompt": True,
    },
    "an answer to continue": {"messages": [_user("Hi"), _assistant("Well,  ")], "continue_final_message": True},
    "white space and other scripts": {
        "messages": [_user("  a\tb\r\n\u2028c  "), _assistant("\n\n你好 👩\u200d💻\n"), _user("e\u0301 \U0001f600")],
    },
    "what looks like code": {
        "messages": [_user("{{ 7 * 7 }} {% raw %} {# x #} <|end|> </think> \"\\u003c\" & '<b>'"), _assistant("$& \\1")],
    },
    "thinking kept apart": {
        "messages": [
            _user("Hi"),
            _assistant("Hello!", reasoning_content="\nFirst thoughts\n"),
            _user("And?"),
            _assistant("So.", reasoning_content="Second thoughts"),
        ],
    },
    "thinking by another name": {"messages": [_user("Hi"), _assistant("Hello!", thinking="Thoughts", name=None)]},
    "thinking written inline": {"messages": [_user("Hi"), _assistant("<think>\nHm\n</think>\n\nHello!")]},
    "no thinking wanted": {"messages": _TURNS, "add_generation_prompt": True, "enable_thinking": False},
    "tools offered": {"messages": _TURNS, "tools": [_WEATHER], "add_generation_prompt": True},
    "a tool called and answered": {
        "messages": [
            {"role": "system", "content": "Use tools."},
            _user("Is it cold in Zürich?"),
            _assistant("", tool_calls=[_CALL, {**_CALL, "id": "c2"}], reasoning_content="I must look."),
            {"role": "tool", "name": "weather", "tool_call_id": "c1", "content": '{"temperature": -3.5}'},
            {"role": "tool", "name": "weather", "tool_call_id": "c2", "content": "<result>x</result>"},
            _assistant("Yes."),
            _user("Thanks"),
        ],
        "tools": [_WEATHER],
        "add_generation_prompt": True,
    },
    "arguments as text": {
        "messages": [
            _user("Look"),
            _assistant(None, tool_calls=[{"type": "function", "function": {"name": "f", "arguments": '{"a": 1e-7}'}}]),
        ],
    },
    "content in parts": {
        "messages": [
            _user(
                [{"type": "text", "text": "See"}, {"type": "image"}, {"type": "audio"}, {"type": "text", "text": "!"}]
            ),
            _assistant([{"type": "text", "text": "A cat."}]),
        ],
    },
    "documents": {
        "messages": [_user("Summarise")],
        "documents": [{"title": "One", "text": "First\nsecond"}, {"title": "Two & <three>", "text": ""}],
    },
    "roles that do not alternate": {"messages": [_user("Hi"), _user("Hello?")]},
    "a role of its own": {"messages": [{"role": "critic", "content": "No."}, _user("Hi")]},
    "no content": {"messages": [_user("Hi"), {"role": "assistant"}]},
    "a date given": {"messages": [_user("Hi")], "date_string": "1 Jan 2000"},
}


def now() -> datetime:
    """The clock of every render."""
    return datetime(2025, 3, 14, 15, 9, 26)  # noqa: DTZ001 - the reference passes local time
