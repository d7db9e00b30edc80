"""A minijinja environment that behaves as the one `transformers` gives chat templates, as far as templates go.

Source: `transformers.utils.chat_template_utils` (an `ImmutableSandboxedEnvironment` with trim_blocks, lstrip_blocks, loop
controls, `tojson`, `raise_exception` and `strftime_now`). What differs is listed in docs/text-contract.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn, cast

import minijinja

from pyruntime.chat.template_source import FORMAT_FILTER, JSON_FILTER, adapt, check_widths
from pyruntime.errors import TemplateError, shorten

_NAME = "chat_template"

# Steps of one render: some for the template, and some for each string and character of the inputs, so that a short
# message buys no long loop. 2,000 messages and 30 tools take a third of what they get in the longest published templates.
_FUEL, _FUEL_PER_STRING, _FUEL_PER_CHARACTER = 50_000, 300, 1
_WIDEST_INDENT = 32


class CompiledTemplate:
    """A template that can be rendered with variables.

    Args:
        source: the template's text, as the model's file has it.
        undefined_behavior: minijinja's name for how undefined values are treated.
        now: the clock that `strftime_now` reads.

    Raises:
        minijinja.TemplateError: the source does not compile.
        TemplateError: the source is refused.
    """

    def __init__(self, source: str, undefined_behavior: str, now: Callable[[], datetime]) -> None:
        # minijinja's own stubs leave out `add_function` and "semi_strict".
        environment = cast("Any", minijinja.Environment(trim_blocks=True, lstrip_blocks=True))
        environment.undefined_behavior = undefined_behavior
        environment.add_function("raise_exception", _raise_exception)
        environment.add_function("strftime_now", lambda layout: now().strftime(layout))
        environment.add_filter(JSON_FILTER, reference_json)
        environment.add_filter(FORMAT_FILTER, lambda text: check_widths(str(text)))
        environment.add_test("iterable", lambda value: isinstance(value, str | list | tuple | Mapping))
        environment.add_test("sequence", lambda value: isinstance(value, str | list | tuple | Mapping))
        environment.add_template(_NAME, adapt(source))
        self._environment = environment

    def render(self, variables: Mapping[str, Any], inputs: Sequence[str] = ()) -> str:
        """The template's output; `inputs` are the strings in the variables.

        Raises:
            minijinja.TemplateError: the template failed, or took too many steps.
            TemplateError: the template called `raise_exception`; the message is the template's.
        """
        text_fuel = _FUEL_PER_CHARACTER * sum(map(len, inputs))
        self._environment.fuel = _FUEL + _FUEL_PER_STRING * len(inputs) + text_fuel
        text: str = self._environment.render_template(_NAME, **variables)
        return text


def reference_json(
    text: str,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Minijinja's JSON text as the reference's `tojson` writes the same value.

    The value itself cannot be taken: on its way to Python a float such as 3.0 would become an integer. Its JSON keeps it.
    """
    if indent is not None and not (isinstance(indent, int) and 0 <= indent <= _WIDEST_INDENT):
        raise TemplateError(f"chat template: tojson with indent {shorten(indent)} (allowed: 0 to {_WIDEST_INDENT})")
    if separators is not None and [type(part) for part in separators] != [str, str]:
        raise TemplateError("chat template: tojson with separators that are not two texts")
    value = json.loads(text)  # which also undoes the escapes for HTML that the reference does not write
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: object) -> NoReturn:
    """What `raise_exception` in a template does: the template's own words, shown to the user."""
    raise TemplateError(str(message))
