"""The client: one request at a time on one engine, in the shapes of chat completions.

A request that comes while the engine answers somebody else, a conversation (`pyruntime.conversation`) included, is refused at
once, as a busy server would refuse it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Literal, overload

from pyruntime import __version__
from pyruntime.chat.template_source import literals
from pyruntime.chat.tool_calls import tool_schemas
from pyruntime.errors import BusyError, UnsupportedError
from pyruntime.openai.chunks import Chunks, Head, whole
from pyruntime.openai.errors import translated
from pyruntime.openai.messages import chat_messages
from pyruntime.openai.request import Request, read_request
from pyruntime.openai.shapes import ChatCompletion, ChatCompletionChunk, Model, ModelPage, Shape

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pyruntime.engine import Engine

Messages = Sequence[Mapping[str, Any] | Shape]
Kind = Literal["answer", "call"]


def random_id(kind: Kind) -> str:
    """An id of an answer, or of a call; some templates demand nine letters and digits of the latter."""
    return f"chatcmpl-{secrets.token_hex(12)}" if kind == "answer" else secrets.token_hex(5)[:9]


class AsyncOpenAI:
    """A client of one engine.

    Args:
        engine: answers the requests.
        clock: seconds since the epoch, for `created`.
        new_id: makes the ids of answers and calls.

    Attributes:
        chat: `chat.completions.create` asks for an answer.
        models: `models.list` tells the engine's model.
    """

    def __init__(
        self, engine: Engine, *, clock: Callable[[], float] = time.time, new_id: Callable[[Kind], str] = random_id
    ) -> None:
        self.chat = Chat(Completions(engine, clock, new_id))
        self.models = Models(engine, int(clock()))


class Chat:
    """What the API has under `chat`."""

    def __init__(self, completions: Completions) -> None:
        self.completions = completions


class Models:
    """What the API has under `models`."""

    def __init__(self, engine: Engine, created: int) -> None:
        self._model = Model(engine.model.name, created, "pyruntime")

    async def list(self) -> ModelPage:
        """The engine's model."""
        return ModelPage([self._model])


class AsyncStream:
    """The chunks of an answer, while it is computed.

    Whoever stops reading before the end closes the stream, or uses it as a context manager; that ends the computation.
    """

    def __init__(self, first: ChatCompletionChunk, rest: AsyncGenerator[ChatCompletionChunk, None]) -> None:
        self._first: ChatCompletionChunk | None = first
        self._rest = rest

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatCompletionChunk:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await anext(self._rest)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the computation; no chunk comes any more."""
        self._first = None
        await self._rest.aclose()

    close = aclose  # the API's clients call it so, `contextlib.aclosing` the other


class Completions:
    """What the API has under `chat.completions`."""

    def __init__(self, engine: Engine, clock: Callable[[], float], new_id: Callable[[Kind], str]) -> None:
        self._engine, self._clock, self._new_id = engine, clock, new_id
        template = engine.model.template
        self._knows_developer = template is not None and "developer" in literals(template.source)

    @overload
    async def create(
        self, *, messages: Messages, model: str, stream: Literal[False] | None = None, **parameters: Any
    ) -> ChatCompletion: ...

    @overload
    async def create(
        self, *, messages: Messages, model: str, stream: Literal[True], **parameters: Any
    ) -> AsyncStream: ...

    async def create(
        self, *, messages: Messages, model: str, stream: bool | None = None, **parameters: Any
    ) -> ChatCompletion | AsyncStream:
        """Answer a conversation.

        Args:
            messages: the conversation, oldest first, as the API has it.
            model: any name: there is one model, and the answer says which.
            stream: whether to give the answer while it is computed.
            **parameters: as `docs/python-api.md` lists them.

        Raises:
            BadRequestError: something in the request is malformed, not supported, or too long; `param` says what.
            RateLimitError: the engine answers somebody else.
            APIConnectionError: somebody stopped the answer (`Engine.cancel`).
        """
        with translated():
            request = read_request(model, parameters, stream=stream, vocab_size=self._engine.model.config.vocab_size)
            chunks = self._chunks(self._prompt(messages, request), request, include_usage=not stream)
        if not stream:
            async with aclosing(chunks):
                return whole([chunk async for chunk in chunks])
        # With the first chunk the engine is taken: what is wrong with the request is told here and not to the reader.
        return AsyncStream(await anext(chunks), chunks)

    def _prompt(self, messages: Messages, request: Request) -> list[int]:
        calls = self._engine.model.marks.call
        if request.tools and calls is None:
            problem = "it has no way of asking for tools"
            advice = "Ask without tools, or choose another model"
            raise UnsupportedError(self._engine.model.file_name, "chat template", problem, advice=advice)
        given = chat_messages(
            messages,
            arguments_as_text=calls is not None and calls.arguments_as_text,
            knows_developer=self._knows_developer,
        )
        return self._engine.prompt(given, request.tools or None, **request.template_kwargs)

    async def _chunks(
        self, prompt: Sequence[int], request: Request, *, include_usage: bool
    ) -> AsyncGenerator[ChatCompletionChunk, None]:
        """The answer's chunks; the engine is this request's from the first one to the last."""
        engine, calls = self._engine, self._engine.model.marks.call
        chunks = Chunks(
            Head(self._new_id("answer"), int(self._clock()), engine.model.name, self._fingerprint()),
            engine.model.tokenizer,
            lambda: self._new_id("call"),
            single=calls is not None and calls.single,
            scored=request.params.logprobs is not None,
            include_usage=include_usage or request.include_usage,
        )
        with translated():
            if not engine.turns.is_free:
                raise BusyError("engine: it answers somebody else. Wait until that has ended, or stop it first")
            await engine.turns.take()
            try:
                known = tool_schemas(request.tools)
                async with aclosing(engine.answer(prompt, request.params, known_tools=known)) as events:
                    async for event in events:
                        for chunk in chunks.take(event):
                            yield chunk
            finally:
                engine.turns.give_back()

    def _fingerprint(self) -> str:
        return f"pyruntime-{__version__}-{self._engine.executor_name}"
