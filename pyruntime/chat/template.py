"""The model's own chat template, rendered by minijinja, and turned into ids so that typed text stays text.

Strict by default: a template that prints, loops over or compares something undefined stops with an error that names
it; truth tests and `is defined` are allowed, because every real template relies on them. Rendering is bounded in
steps, and the template sees copies of its inputs and nothing else.

What a control token, a role word or a turn looks like is nowhere written here: it all comes from the model's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Protocol

import minijinja

from pyruntime.chat.environment import CompiledTemplate
from pyruntime.chat.messages import REASONING, Message, copy_value, normalise
from pyruntime.chat.provenance import ControlTokens, Marker, Segment, strings_in, unused_character
from pyruntime.chat.template_source import literals
from pyruntime.errors import ParameterError, TemplateError
from pyruntime.text.normalize import replace_lone_surrogates

Undefined = Literal["strict", "reference"]
# Whether a prompt ends inside the last message, and in which of its texts: True is the content.
ContinueFinal = bool | Literal["reasoning_content"]
Variables = dict[str, Any]

_UNDEFINED_BEHAVIOURS = {"strict": "semi_strict", "reference": "lenient"}


class _Tokenizer(Protocol):
    @property
    def control_ids(self) -> Mapping[str, int]: ...

    def encode(self, text: str) -> list[int]: ...


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt.

    Attributes:
        segments: control tokens of the template and the text between them.
        text: the segments' texts, joined.
        is_plain: whether that is what `render` gives. It is not where a template's logic looks for control-like text
            inside messages, such as thinking written into an assistant's content: what stands here is the safe text.
    """

    segments: tuple[Segment, ...]
    text: str
    is_plain: bool


class ChatTemplate:
    """A compiled chat template.

    Args:
        source: the template's text, as the model's file has it.
        special_tokens: name → text of the tokenizer's special tokens (`bos_token`, `eos_token`, …), which
            templates read as variables.
        tokenizer: turns the rendered prompt into ids; needed by `encode`.
        now: the clock that `strftime_now` reads.
        undefined: "strict", or "reference" to render undefined values as nothing, as the reference does.

    Raises:
        TemplateError: the template does not compile, or is refused.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, str] | None = None,
        tokenizer: _Tokenizer | None = None,
        now: Callable[[], datetime] = datetime.now,
        undefined: Undefined = "strict",
    ) -> None:
        if undefined not in _UNDEFINED_BEHAVIOURS:
            raise ParameterError("undefined", undefined, ", ".join(map(repr, _UNDEFINED_BEHAVIOURS)))
        self.source = source
        self._special_tokens = dict(special_tokens or {})
        self._tokenizer = tokenizer
        self._control_ids = frozenset(_control(tokenizer).values())
        self._undefined = undefined
        try:
            self._compiled = CompiledTemplate(source, _UNDEFINED_BEHAVIOURS[undefined], now)
        except minijinja.TemplateError as error:
            raise self._explain(error) from error
        written = [*literals(source), *self._special_tokens.values()]
        self._control_tokens = ControlTokens(_control(tokenizer), written)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: ContinueFinal = False,
        **kwargs: Any,
    ) -> str:
        """The prompt as text, byte for byte what the reference renders.

        Args:
            messages: the conversation, oldest first.
            tools: descriptions of tools, each a mapping.
            documents: documents for retrieval, each a mapping.
            add_generation_prompt: end with what opens an assistant's turn.
            continue_final_message: end inside the last message, so that the model goes on with it: with its content, or,
                with "reasoning_content", with its thinking.
            **kwargs: further variables of the template.

        Raises:
            TemplateError: the template refused the conversation (in the template's words), printed something
                undefined, or took too long.
            ParameterError: a message or argument of the wrong type.
        """
        variables = self._variables(messages, tools, documents, kwargs, add_generation_prompt=add_generation_prompt)
        if not continue_final_message:
            return self._render(variables)
        cut = self._open_end(variables, continue_final_message)
        return cut.apply(self._render(variables))

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: ContinueFinal = False,
        **kwargs: Any,
    ) -> Prompt:
        """The prompt cut at the control tokens that the template itself wrote; arguments as `render`.

        Raises:
            as `render`; and TemplateError if the template takes typed text apart in a way that could turn it into
            control tokens.
        """
        self._need_tokenizer()
        variables = self._variables(messages, tools, documents, kwargs, add_generation_prompt=add_generation_prompt)
        marker = Marker(self._control_tokens, strings_in(variables))

        def rendered(inputs: Variables) -> str:
            cut = self._open_end(inputs, continue_final_message) if continue_final_message else None
            return cut.apply(self._render(inputs)) if cut else self._render(inputs)

        marked = rendered(marker.change_inputs(variables, marker.mark))
        harmless = rendered(marker.change_inputs(variables, marker.disarm))
        if marker.control_tokens(marked) != marker.control_tokens(harmless):
            raise TemplateError(
                "chat template: it takes text apart in a way that could turn typed text into control tokens, so this "
                "prompt is refused. Remove what looks like a control token from the messages"
            )
        segments = tuple(marker.split(marked))
        text = "".join(segment.text for segment in segments)
        return Prompt(segments, text, is_plain=text == rendered(variables))

    def encode(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> list[int]:
        """The prompt as token ids, control ids from the template only; options and errors as `prompt`."""
        tokenizer = self._need_tokenizer()
        ids: list[int] = []
        for segment in self.prompt(messages, tools, documents, **options).segments:
            if segment.is_control:
                ids.append(tokenizer.control_ids[segment.text])
            else:
                ids.extend(self._text_ids(tokenizer, segment.text))
        return ids

    def _text_ids(self, tokenizer: _Tokenizer, text: str) -> list[int]:
        """The ids of text, checked: merging must not have led to a control token by way of the vocabulary."""
        ids = tokenizer.encode(text)
        forged = self._control_ids.intersection(ids)
        if forged:
            problem = f"text became the control token {min(forged)}, so this prompt is refused"
            raise TemplateError(f"tokenizer: {problem}. Choose another model")
        return ids

    def _need_tokenizer(self) -> _Tokenizer:
        if self._tokenizer is None:
            raise ParameterError("tokenizer", None, "a Tokenizer", advice="Pass it to ChatTemplate to get token ids")
        return self._tokenizer

    def _variables(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        documents: Sequence[Mapping[str, Any]] | None,
        kwargs: Mapping[str, Any],
        *,
        add_generation_prompt: bool,
    ) -> Variables:
        return {
            **{key: copy_value(value, replace_lone_surrogates, key) for key, value in kwargs.items()},
            "messages": normalise(messages),
            "tools": _mappings("tools", tools),
            "documents": _mappings("documents", documents),
            "add_generation_prompt": bool(add_generation_prompt),
        }

    def _open_end(self, variables: Variables, where: ContinueFinal) -> _OpenEnd:
        if variables["add_generation_prompt"]:
            allowed = "one of the two: a turn is either opened or continued"
            raise ParameterError("add_generation_prompt and continue_final_message", (True, True), allowed)
        sign = unused_character([self.source, *strings_in(variables)])
        return _OpenEnd(variables["messages"][-1], sign, in_reasoning=where == "reasoning_content")

    def _render(self, variables: Variables) -> str:
        try:
            return self._compiled.render({**self._special_tokens, **variables}, list(strings_in(variables)))
        except minijinja.TemplateError as error:
            raise self._explain(error) from error
        except TemplateError:
            raise
        except Exception as error:
            # What a template does to a Python value (calling `.startswith` of a list) fails as Python fails.
            raise TemplateError(f"chat template: {error}") from error

    def _explain(self, error: minijinja.TemplateError) -> TemplateError:
        text = f"chat template, line {error.line}: {error.detail or error.message}"
        if error.kind == "UndefinedError" and self._undefined == "strict":
            text += '. Give the value, or render as the reference does with undefined="reference"'
        return TemplateError(text)


def _control(tokenizer: _Tokenizer | None) -> dict[str, int]:
    """Text → id of the control tokens. White space and single characters are text, whatever list they are in."""
    ids = tokenizer.control_ids if tokenizer else {}
    return {token: token_id for token, token_id in ids.items() if len(token) > 1 and not token.isspace()}


class _OpenEnd:
    """A prompt that ends inside its last message: a sign is put behind the message, and the rendering cut at it.

    The sign ends with a space. If the template strips the message, the space goes, and what the template would have
    stripped from the message itself goes too, as in the reference.

    Args:
        message: the last, normalised message, which gets the sign.
        character: occurs nowhere else.
        in_reasoning: whether the sign goes behind its thinking and not behind its content.
    """

    def __init__(self, message: dict[str, Any], character: str, *, in_reasoning: bool) -> None:
        self._character = character
        signed = f"{character} "
        if in_reasoning:
            if not isinstance(message.get("reasoning_content"), str):
                raise ParameterError("continue_final_message", "reasoning_content", "a last message with thinking")
            message.update({name: message[name] + signed for name in REASONING if name in message})
            return
        content = message.get("content")
        if isinstance(content, str):
            message["content"] = content + signed
            return
        texts = [part for part in content or () if isinstance(part.get("text"), str)]
        if not texts:
            raise ParameterError("continue_final_message", True, "a last message with text to continue")
        texts[-1]["text"] += signed

    def apply(self, rendered: str) -> str:
        """The rendering up to the sign.

        Raises:
            TemplateError: the template dropped the last message.
        """
        end = rendered.rfind(self._character)
        if end < 0:
            raise TemplateError("chat template: it leaves out the last message, so that message cannot be continued")
        is_stripped = not rendered.startswith(" ", end + 1)
        return rendered[:end].rstrip() if is_stripped else rendered[:end]


def _mappings(name: str, values: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    if values is None:
        return None
    if not isinstance(values, list | tuple) or not all(isinstance(value, Mapping) for value in values):
        raise ParameterError(name, values, "a list of mappings")
    copied: list[dict[str, Any]] = copy_value(values, replace_lone_surrogates, name)
    return copied
