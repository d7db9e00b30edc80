"""Errors under the names that clients of chat completions catch, each in the runtime's own family as well.

`message`, `param`, `code` and `type` are what a server would send; `str(error)` is the message, as everywhere in the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyruntime.errors import (
    BusyError,
    ContextOverflowError,
    ParameterError,
    StoppedError,
    TemplateError,
    TinyPyLMError,
    UnsupportedError,
    compose,
)


class OpenAIError(TinyPyLMError):
    """Base of these errors."""


class APIError(OpenAIError):
    """A request that was not answered, or not to its end.

    Args:
        message: what is wrong and what to do.
        param: the parameter at fault, as it was given: "temperature", "messages[2].content".
        code: what kind of fault it is, for programs.
        kind: the family of faults, to be had as `type`.
    """

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, kind: str | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.param, self.code, self.type = message, param, code, kind

    @property
    def body(self) -> dict[str, str | None]:
        """The same as a server would send it."""
        return {"message": self.message, "type": self.type, "param": self.param, "code": self.code}


class APIConnectionError(APIError, StoppedError):
    """The answer was stopped by somebody else before its end."""


class APIStatusError(APIError):
    """A request that a server would answer with an HTTP status of failure: `status_code`."""

    status_code: int


class BadRequestError(APIStatusError, ValueError):
    """The request asks for something that is malformed, not supported, or too long."""

    status_code = 400

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param, code=code, kind="invalid_request_error")


class RateLimitError(APIStatusError, BusyError):
    """The engine answers somebody else; try again when it has finished."""

    status_code = 429

    def __init__(self, message: str) -> None:
        super().__init__(message, code="rate_limit_exceeded", kind="requests")


class InternalServerError(APIStatusError):
    """The runtime failed while it answered."""

    status_code = 500

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="server_error")


def unsupported(param: str, problem: str, *, allowed: str = "", code: str = "unsupported_value") -> BadRequestError:
    """The refusal of something that is well-formed but cannot be done here."""
    return BadRequestError(compose(param, problem, allowed=allowed), param=param, code=code)


@contextmanager
def translated() -> Iterator[None]:
    """Within it, the runtime's errors are raised as these."""
    try:
        yield
    except OpenAIError:
        raise
    except ParameterError as error:
        raise BadRequestError(str(error), param=error.parameter, code="invalid_value") from error
    except ContextOverflowError as error:
        raise BadRequestError(str(error), param="messages", code="context_length_exceeded") from error
    except TemplateError as error:
        raise BadRequestError(str(error), param="messages", code="invalid_value") from error
    except UnsupportedError as error:
        raise BadRequestError(str(error), param="model", code="unsupported_value") from error
    except BusyError as error:
        raise RateLimitError(str(error)) from error
    except StoppedError as error:
        raise APIConnectionError(str(error)) from error
    except TinyPyLMError as error:
        raise InternalServerError(str(error)) from error
