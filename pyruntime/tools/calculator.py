"""A calculator for models: arithmetic on numbers, and nothing else of what Python's grammar allows.

The expression is parsed, never executed: each node is looked up in a table, and what is not in a table is refused. Whole
numbers are exact and bounded in size, so no expression costs much time or memory.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from pyruntime.errors import ParameterError
from pyruntime.tools.registry import Tool

Number = int | float

_LONGEST = 500  # characters
_MOST_NODES = 200
_MOST_BITS = 4_096  # of a whole number: 1,233 digits
_MOST_FACTORIAL = 400
_MOST_DIGITS = 300  # that `round` may be asked for


def _factorial(n: Number) -> int:
    if not isinstance(n, int) or n > _MOST_FACTORIAL:
        raise ValueError(f"factorial is for whole numbers up to {_MOST_FACTORIAL}")
    return math.factorial(n)


def _round(number: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > _MOST_DIGITS:
        raise ValueError(f"round is for at most {_MOST_DIGITS} digits")
    return round(number, digits) if digits else round(number)


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in ("sqrt", "exp", "log", "log2", "log10", "floor", "ceil", "trunc")},
    **{name: getattr(math, name) for name in ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "hypot")},
    **{name: getattr(math, name) for name in ("degrees", "radians", "gcd")},
    "abs": abs,
    "min": min,
    "max": max,
    "round": _round,
    "factorial": _factorial,
}


def calculate(expression: str) -> str:
    """The value of an arithmetic expression: exact for whole numbers, otherwise to 15 digits.

    Raises:
        ParameterError: what in it is not allowed, or why it has no value.
    """
    if len(expression) > _LONGEST:
        raise _refused(f"{len(expression)} characters", f"at most {_LONGEST}")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise _refused(expression, "arithmetic such as (2 + 3) * sqrt(4)") from error
    if sum(1 for _ in ast.walk(tree)) > _MOST_NODES:
        raise _refused(expression, f"at most {_MOST_NODES} numbers and operators")
    try:
        value = _value(tree.body)
    except _NotArithmeticError as error:
        allowed = f"numbers, + - * / // % **, {', '.join([*_FUNCTIONS, *_CONSTANTS])}"
        raise _refused(ast.get_source_segment(expression.strip(), error.node), allowed) from error
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise _refused(expression, f"an expression with a value: {error}") from error
    return str(value) if isinstance(value, int) else format(value, ".15g")


def calculator_tool() -> Tool:
    """The calculator as a tool; it needs no approval."""

    async def run(arguments: dict[str, Any]) -> str:
        return calculate(arguments["expression"])

    return Tool(
        "calculator",
        "Computes an arithmetic expression exactly. Operators: + - * / // % **; functions: "
        f"{', '.join(sorted(_FUNCTIONS))}; constants: {', '.join(_CONSTANTS)}.",
        {
            "type": "object",
            "properties": {"expression": {"type": "string", "description": "For example (17 + 4) * 2"}},
            "required": ["expression"],
            "additionalProperties": False,
        },
        run,
        needs_approval=False,
    )


class _NotArithmeticError(Exception):
    """A part of the expression that is in no table."""

    def __init__(self, node: ast.expr) -> None:
        super().__init__()
        self.node = node


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            return _bounded(_SIGNS[type(sign)](_value(operand)))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _bounded(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_value(left), _value(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*map(_value, arguments)))
        case _:
            raise _NotArithmeticError(node)


def _power(base: Number, exponent: Number) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(exponent) * max(1, base.bit_length()) > _MOST_BITS:
        raise OverflowError("the power is too large")
    return base**exponent


def _bounded(value: Any) -> Number:
    if isinstance(value, int):
        if value.bit_length() > _MOST_BITS:
            raise OverflowError("a number is too large")
        return value
    if isinstance(value, complex) or not math.isfinite(value):
        raise ValueError("the value is no finite real number")
    number: Number = value
    return number


def _refused(found: object, allowed: str) -> ParameterError:
    return ParameterError("expression", found, allowed)
