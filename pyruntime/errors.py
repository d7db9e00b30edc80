"""The errors of the runtime: one small family, each of which names the thing and says what to do.

Every message is built from the same four parts, in the same order, so that a person reads the same words in
the page, the terminal and a traceback:

    WHERE (file, field, parameter) : WHAT is wrong, with the value found (what is allowed). ADVICE.

Each class also subclasses the built-in it resembles, so `except ValueError` keeps working for callers who do
not know this family. Nothing here knows files, models or the browser.
"""

from __future__ import annotations

_SHOWN_VALUE_LIMIT = 120


class TinyPyLMError(Exception):
    """Base of the family. `str(error)` is the sentence shown to the user."""


def shorten(value: object) -> str:
    """`repr(value)`, cut to a length that a hostile file cannot use to flood the screen."""
    text = value if isinstance(value, _Verbatim) else repr(value)
    return text if len(text) <= _SHOWN_VALUE_LIMIT else text[: _SHOWN_VALUE_LIMIT - 1] + "…"


def label(name: str) -> str:
    """A key or name as errors show it: itself when it is short and printable, otherwise quoted and cut."""
    return name if 0 < len(name) <= 100 and name.isprintable() else shorten(name)


class _Verbatim(str):
    """Text that `shorten` shows as it is, without quotes."""

    __slots__ = ()


def compose(where: str, problem: str, *, allowed: str = "", advice: str = "") -> str:
    """The sentence `WHERE: PROBLEM (allowed: ALLOWED). ADVICE`."""
    text = f"{where}: {problem}"
    if allowed:
        text += f" (allowed: {allowed})"
    if advice:
        text += f". {advice}"
    return text


class FormatError(TinyPyLMError, ValueError):
    """A file is not what it claims to be: truncated, lying, or malformed.

    Args:
        file: the file's name.
        field: the field, key or tensor at fault.
        problem: what is wrong, with the value found.
        allowed: what would have been accepted.
        advice: what the user can do.
    """

    def __init__(
        self,
        file: str,
        field: str,
        problem: str,
        *,
        allowed: str = "",
        advice: str = "Get the file again from its publisher",
    ) -> None:
        self.file, self.field, self.problem = file, field, problem
        where = f"{file}: {field}" if field else file
        super().__init__(compose(where, problem, allowed=allowed, advice=advice))


class UnsupportedError(FormatError):
    """A well-formed file needs something this runtime does not do: it is refused by name, never approximated."""

    def __init__(
        self,
        file: str,
        field: str,
        problem: str,
        *,
        allowed: str = "",
        advice: str = "Choose another model",
    ) -> None:
        super().__init__(file, field, problem, allowed=allowed, advice=advice)


class ParameterError(TinyPyLMError, ValueError):
    """A parameter given by the caller is out of its interval or of the wrong type."""

    def __init__(self, parameter: str, value: object, allowed: str, *, advice: str = "") -> None:
        self.parameter, self.value, self.allowed = parameter, value, allowed
        super().__init__(compose(parameter, f"{shorten(value)} is not allowed", allowed=allowed, advice=advice))


class TemplateError(TinyPyLMError, ValueError):
    """The model's chat template refused the conversation, or could not be rendered."""


class ContextOverflowError(TinyPyLMError, ValueError):
    """The prompt and the room kept for the answer do not fit into the context.

    Attributes:
        needed: tokens of the prompt plus tokens reserved for the answer.
        have: tokens of the context.
    """

    def __init__(self, needed: int, have: int, *, advice: str) -> None:
        self.needed, self.have = needed, have
        super().__init__(
            compose("prompt", f"too long: it needs {needed} tokens and the context has {have}", advice=advice)
        )


class BusyError(TinyPyLMError, RuntimeError):
    """A generation is already running on this engine."""


class ClosedError(TinyPyLMError, RuntimeError):
    """A conversation was closed and takes no more requests."""


class StoppedError(TinyPyLMError, RuntimeError):
    """A computation was stopped from outside before it was finished."""


class SandboxError(TinyPyLMError, RuntimeError):
    """Code could not be run in the sandbox: its interpreter did not start, or broke down."""

    def __init__(self, problem: str) -> None:
        super().__init__(compose("python", f"the code could not be run to its end: {problem}"))


class OutOfMemoryError(TinyPyLMError, MemoryError):
    """The model would not fit into memory; the message has the numbers."""


class DeliveryError(TinyPyLMError, OSError):
    """Bytes could not be fetched, checked or stored."""
