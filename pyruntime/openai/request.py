"""The parameters of a request, read: what the engine can do becomes its own parameters, anything else is refused by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyruntime.errors import ParameterError, shorten
from pyruntime.openai.errors import unsupported
from pyruntime.sampling import SamplingParams

# Those that the engine has under the same name.
_SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "thinking_budget",
)
_OWN = (
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "tools",
    "tool_choice",
    "stream_options",
    "chat_template_kwargs",
    "enable_thinking",
)
# Those of which only what this runtime does anyway can be asked for.
_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "parallel_tool_calls": (True,),
    "store": (False,),
    "service_tier": ("auto", "default"),
}
# What `Engine.prompt` and the template get from elsewhere.
_RESERVED = {"self", "messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
_MOST_TOP_LOGPROBS = 20


@dataclass(frozen=True)
class Request:
    """What is asked of the engine, beside the messages.

    Attributes:
        params: how tokens are drawn and when to stop.
        tools: descriptions of the functions offered.
        template_kwargs: further variables of the template.
        include_usage: whether a stream ends with the counts.
    """

    params: SamplingParams
    tools: list[dict[str, Any]]
    template_kwargs: dict[str, Any]
    include_usage: bool


def read_request(model: str, given: Mapping[str, Any], *, stream: bool | None, vocab_size: int) -> Request:
    """The request of these parameters; None stands for a parameter that was not given.

    Args:
        model: any name will do, since there is one model.
        given: all but the messages, the model and `stream`. The contents of `extra_body` count as parameters.
        stream: whether the answer is streamed.
        vocab_size: how many tokens the model has.

    Raises:
        ParameterError: a value is malformed or outside its interval.
        BadRequestError: a parameter or value that this runtime does not support.
    """
    if not isinstance(model, str) or not model:
        raise ParameterError("model", model, "a name")
    body = {name: value for name, value in _merged(given).items() if value is not None}
    for name, value in body.items():
        if name in _ONLY:
            _check_only(name, value)
        elif name not in _SAME and name not in _OWN:
            problem = "this runtime has no such parameter"
            raise unsupported(name, problem, allowed=", ".join((*_SAME, *_OWN)), code="unsupported_parameter")
    is_streamed = _flag({"stream": stream}, "stream")
    return Request(
        _params(body, vocab_size), _tools(body), _template_kwargs(body), _include_usage(body, stream=is_streamed)
    )


def _merged(given: Mapping[str, Any]) -> dict[str, Any]:
    extra = given.get("extra_body")
    if extra is None:
        extra = {}
    elif not isinstance(extra, Mapping):
        raise ParameterError("extra_body", extra, "a mapping of further parameters")
    return {name: value for name, value in given.items() if name != "extra_body"} | dict(extra)


def _check_only(name: str, value: object) -> None:
    choices = _ONLY[name]
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise unsupported(name, f"{shorten(value)} is not supported", allowed=", ".join(map(repr, choices)))


def _params(body: Mapping[str, Any], vocab_size: int) -> SamplingParams:
    stop = body.get("stop", ())
    options = {name: body[name] for name in _SAME if name in body}
    return SamplingParams(
        **options,
        stop=(stop,) if isinstance(stop, str) else stop,
        max_tokens=_max_tokens(body),
        logit_bias=_logit_bias(body, vocab_size),
        logprobs=_logprobs(body),
    )


def _max_tokens(body: Mapping[str, Any]) -> int | None:
    names = [name for name in ("max_completion_tokens", "max_tokens") if name in body]
    for name in names:
        if type(body[name]) is not int or body[name] < 1:
            raise ParameterError(name, body[name], "an integer >= 1")
    if len(names) == 2 and body[names[0]] != body[names[1]]:
        raise ParameterError("max_tokens", body["max_tokens"], "not together with another max_completion_tokens")
    return body[names[0]] if names else None


def _logit_bias(body: Mapping[str, Any], vocab_size: int) -> Mapping[int, float]:
    """The biases, whose token ids may be numbers in text, as JSON has keys."""
    given = body.get("logit_bias", {})
    if not isinstance(given, Mapping):
        raise ParameterError("logit_bias", given, "a mapping of token id to number")
    found: dict[int, float] = {}
    for key, bias in given.items():
        is_number = isinstance(key, str) and len(key) <= 9 and key.isascii() and key.isdigit()
        token_id = int(key) if is_number else key
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise ParameterError("logit_bias", key, f"token ids in [0, {vocab_size - 1}]")
        found[token_id] = bias
    return found


def _logprobs(body: Mapping[str, Any]) -> int | None:
    wanted = _flag(body, "logprobs")
    count = body.get("top_logprobs")
    if count is None:
        return 0 if wanted else None
    if type(count) is not int or not 0 <= count <= _MOST_TOP_LOGPROBS:
        raise ParameterError("top_logprobs", count, f"an integer in [0, {_MOST_TOP_LOGPROBS}]")
    if not wanted:
        raise ParameterError("top_logprobs", count, "only with logprobs=True")
    return count


def _tools(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The functions offered: none where none may be called."""
    tools = body.get("tools", [])
    if not isinstance(tools, Sequence) or isinstance(tools, str):
        raise ParameterError("tools", tools, "a list of {'type': 'function', 'function': …}")
    found = [_tool(f"tools[{index}]", tool) for index, tool in enumerate(tools)]
    choice = body.get("tool_choice", "auto")
    if choice not in ("auto", "none"):
        raise unsupported("tool_choice", f"{shorten(choice)} is not supported", allowed="'auto', 'none'")
    return found if choice == "auto" else []


def _tool(where: str, tool: object) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise ParameterError(where, tool, "{'type': 'function', 'function': …}")
    if tool.get("type") != "function":
        problem = f"{shorten(tool.get('type'))} is no tool that this runtime can offer"
        raise unsupported(f"{where}.type", problem, allowed="'function'")
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise ParameterError(f"{where}.function", function, "{'name': …, 'description': …, 'parameters': JSON Schema}")
    if function.get("strict"):
        raise unsupported(f"{where}.function.strict", "arguments cannot be forced to fit their schema", allowed="False")
    if not isinstance(function.get("parameters", {}), Mapping):
        raise ParameterError(f"{where}.function.parameters", function["parameters"], "a JSON Schema")
    return {"type": "function", "function": {key: value for key, value in function.items() if key != "strict"}}


def _template_kwargs(body: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = body.get("chat_template_kwargs", {})
    if not isinstance(kwargs, Mapping):
        raise ParameterError("chat_template_kwargs", kwargs, "a mapping of names to values")
    for name in kwargs:
        if not isinstance(name, str) or name in _RESERVED:
            raise ParameterError("chat_template_kwargs", name, "names of the template's own further variables")
    thinking = {"enable_thinking": _flag(body, "enable_thinking")} if "enable_thinking" in body else {}
    return {**kwargs, **thinking}


def _include_usage(body: Mapping[str, Any], *, stream: bool) -> bool:
    options = body.get("stream_options")
    if options is None:
        return False
    if not stream:
        raise ParameterError("stream_options", options, "only with stream=True")
    if not isinstance(options, Mapping):
        raise ParameterError("stream_options", options, "{'include_usage': True}")
    for name in options:
        if name != "include_usage":
            param = f"stream_options.{name}"
            problem = "this runtime has no such option"
            raise unsupported(param, problem, allowed="include_usage", code="unsupported_parameter")
    return _flag(options, "include_usage", "stream_options.include_usage")


def _flag(body: Mapping[str, Any], name: str, where: str = "") -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise ParameterError(where or name, value, "True, False")
    return bool(value)
