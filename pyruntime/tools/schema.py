"""Whether a value is an instance of a JSON Schema, for the part of JSON Schema that descriptions of tools use.

A keyword that is not known here is refused by name when the schema is read, so no rule is passed over in silence. The
model's arguments are checked as they are; nothing is converted.

Source: JSON Schema 2020-12, "Validation".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

from pyruntime.errors import ParameterError, shorten

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# They describe and demand nothing; `format` is among them by the standard's default.
_ANNOTATIONS = frozenset({"$schema", "title", "description", "default", "examples", "format", "deprecated"})
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_KNOWN = frozenset(
    {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf", *_COUNTS, *_LIMITS}
)
_DEEPEST = 32


def check_schema(schema: object, where: str = "parameters", depth: int = 0) -> None:
    """Refuse a schema that is malformed or demands something that `fault` would not see.

    Raises:
        ParameterError: names the place in the schema, and the keyword.
    """
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        raise ParameterError(where, schema, f"a JSON Schema, nested at most {_DEEPEST} deep")
    for keyword in schema:
        if keyword not in _KNOWN and keyword not in _ANNOTATIONS:
            allowed = ", ".join(sorted(_KNOWN))
            raise ParameterError(f"{where}: keyword", keyword, allowed, advice="Describe the tool without it")
    _check_values(schema, where)
    for name, inner in _inner(schema):
        check_schema(inner, f"{where}.{name}", depth + 1)


def fault(schema: Any, value: Any, where: str = "arguments") -> str | None:
    """What makes `value` no instance of a checked schema, in words with the place; None if it is one."""
    if isinstance(schema, bool):
        return None if schema else f"{where}: nothing is allowed here"
    types = schema.get("type", _TYPES)
    types = (types,) if isinstance(types, str) else types
    if not any(_is_of(value, name) for name in types):
        return f"{where}: {shorten(value)} is not of type {' or '.join(types)}"
    for allowed in [
        [schema[name]] if name == "const" else schema[name] for name in ("const", "enum") if name in schema
    ]:
        if not any(_equal(value, one) for one in allowed):
            return f"{where}: {shorten(value)} is not one of {shorten(list(allowed))}"
    choices = schema.get("anyOf")
    if choices is not None and all(fault(choice, value, where) for choice in choices):
        return f"{where}: {shorten(value)} is none of the allowed kinds"
    if isinstance(value, dict):
        return _object_fault(schema, value, where)
    if isinstance(value, list):
        return _array_fault(schema, value, where)
    if isinstance(value, str):
        return _count_fault(schema, "Length", len(value), where)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_fault(schema, value, where)
    return None


def _check_values(schema: Mapping[str, Any], where: str) -> None:
    types = schema.get("type", "object")
    listed = [types] if isinstance(types, str) else types
    if not isinstance(listed, list | tuple) or not listed or any(name not in _TYPES for name in listed):
        raise ParameterError(f"{where}.type", types, ", ".join(_TYPES))
    for name in _COUNTS:
        count = schema.get(name, 0)
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ParameterError(f"{where}.{name}", count, "an integer >= 0")
    for name in _LIMITS:
        limit = schema.get(name, 0)
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit):
            raise ParameterError(f"{where}.{name}", limit, "a number")
    for name, of, words in (
        ("enum", (list, tuple), "a list"),
        ("required", (list, tuple), "a list of names"),
        ("properties", (Mapping,), "an object of schemas"),
        ("anyOf", (list, tuple), "a list of schemas"),
    ):
        if name in schema and not isinstance(schema[name], of):
            raise ParameterError(f"{where}.{name}", schema[name], words)


def _inner(schema: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The schemas inside a schema, with their places."""
    found = [(f"properties.{name}", inner) for name, inner in schema.get("properties", {}).items()]
    found += [(f"anyOf[{i}]", inner) for i, inner in enumerate(schema.get("anyOf", ()))]
    return found + [(name, schema[name]) for name in ("items", "additionalProperties") if name in schema]


def _object_fault(schema: Mapping[str, Any], value: dict[str, Any], where: str) -> str | None:
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{where}: {missing[0]!r} is missing"
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        if name not in properties and rest is False:
            return f"{where}: {shorten(name)} is no argument (allowed: {', '.join(properties) or 'none'})"
        found = fault(properties.get(name, rest), item, f"{where}.{name}")
        if found:
            return found
    return _count_fault(schema, "Properties", len(value), where)


def _array_fault(schema: Mapping[str, Any], value: list[Any], where: str) -> str | None:
    for index, item in enumerate(value):
        found = fault(schema.get("items", True), item, f"{where}[{index}]")
        if found:
            return found
    return _count_fault(schema, "Items", len(value), where)


def _count_fault(schema: Mapping[str, Any], kind: str, count: int, where: str) -> str | None:
    least, most = schema.get(f"min{kind}", 0), schema.get(f"max{kind}", math.inf)
    if least <= count <= most:
        return None
    return f"{where}: {kind.lower()} {count} is outside [{least}, {most}]"


def _number_fault(schema: Mapping[str, Any], value: float, where: str) -> str | None:
    for keyword, sign, holds in (
        ("minimum", ">=", operator.ge),
        ("maximum", "<=", operator.le),
        ("exclusiveMinimum", ">", operator.gt),
        ("exclusiveMaximum", "<", operator.lt),
    ):
        if keyword in schema and not holds(value, schema[keyword]):
            return f"{where}: {shorten(value)} is not {sign} {schema[keyword]}"
    return None


def _is_of(value: Any, name: str) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "integer":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            return is_whole and not isinstance(value, bool)
        case _:
            return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(one: Any, other: Any) -> bool:
    """Equal as JSON has it, where true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return bool(one == other)
