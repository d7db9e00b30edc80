"""The engine: one model, one KV cache, one answer at a time.

    engine = await Engine.load("model.gguf")
    async for event in engine.chat([{"role": "user", "content": "Hello!"}]):
        if isinstance(event, Delta):
            print(event.text, end="")

A request is rendered and tokenised whole each time; whatever prefix of its *ids* the KV cache already holds is kept
and the rest is cut off and computed (an id prefix, never an assumption that text only grows). `kv_tokens` are at all
times exactly the tokens the executor's cache holds.

Nothing here knows pages, terminals or how the arithmetic is done.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import aclosing, suppress
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from pyruntime.answer import Answer, KVState, Stopwatch
from pyruntime.chat.marks import ends_inside_thinking
from pyruntime.chat.messages import move_inline_thinking
from pyruntime.chat.output import OutputParser
from pyruntime.chat.thinking_switch import thinks_by_default
from pyruntime.chat.tool_calls import tool_schemas
from pyruntime.errors import (
    BusyError,
    ContextOverflowError,
    ParameterError,
    StoppedError,
    TemplateError,
    UnsupportedError,
)
from pyruntime.executors import EXECUTORS, KV_CACHES, ExecutorName, KVCacheName, Wanted, build_executor
from pyruntime.formats.model_files import ModelFiles
from pyruntime.formats.source import ByteSource
from pyruntime.opening import GenerationDefaults, OpenedModel, files_at, open_model, read_model
from pyruntime.sampling import SamplingParams
from pyruntime.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from pyruntime.chat.messages import Message
    from pyruntime.chat.template import ChatTemplate, ContinueFinal
    from pyruntime.chat.tool_calls import Schemas
    from pyruntime.events import Event
    from pyruntime.model.executor import Executor
    from pyruntime.tables_cache import TablesCache

__all__ = ["EXECUTORS", "KV_CACHES", "Engine", "GenerationDefaults", "OpenedModel", "open_model"]

DEFAULT_CONTEXT = 4096
_IDLE_CHUNK = 8  # tokens: who asks while they are computed waits no longer than for a few tokens of an answer
_WARM_UP_S = 0.3
_WARM_UP_TOKENS = 15  # at first; a machine that is fast enough takes more at a time


class Engine:
    """A loaded model that answers chats.

    Args:
        model: the opened model.
        executor: computes its logits.
        clock: seconds, for the timings of an answer.

    Attributes:
        model: the opened model.
        turns: the queue of those who hold the engine for longer than one answer.
    """

    def __init__(
        self, model: OpenedModel, executor: Executor, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.model = model
        self.turns = Turns()
        self._executor = executor
        self._kv = KVState(executor)
        self._clock = clock
        self._busy = False
        self._cancelled = False
        self._answers = 0  # begun so far

    @classmethod
    async def load(  # noqa: PLR0913 - keywords, each a choice of the user
        cls,
        source: str | os.PathLike[str] | ByteSource | ModelFiles,
        *,
        executor: ExecutorName = "auto",
        context: int | None = None,
        threads: int | None = None,
        precise: bool = False,
        kv_cache: KVCacheName = "int16",
        on_progress: Callable[[int, int], None] | None = None,
        on_notice: Callable[[str], None] | None = None,
        tables: TablesCache | None = None,
        admit: Callable[[int], Awaitable[None]] | None = None,
    ) -> Engine:
        """Open a model and read its weights.

        Args:
            source: path of a `.gguf` file or of a model folder; or the file's bytes, or the model's files, from elsewhere.
            executor: what computes; "auto" takes the fastest that runs here.
            context: positions of the KV cache; by default the model's own, at most 4096.
            threads: how many compute, 1 … 8; by default one for each core. numpy has its own.
            precise: let the kernels compute nearly as exactly as float32, at two thirds of the speed or more.
            kv_cache: how the kernels cache keys and values; "int8" takes half the memory, for long contexts.
            on_progress: called with the bytes of weights read so far and in all.
            on_notice: told, in a sentence, when "auto" had to take a slower executor than it should, and why.
            tables: where the tokenizer's compiled tables are kept, if anywhere.
            admit: awaited before the executor takes its memory, with the number of bytes; it may wait for room, or raise.

        Raises:
            ParameterError: unknown executor or cache, or a context or number of threads outside what is allowed.
            FormatError, UnsupportedError, TemplateError: as `open_model`; UnsupportedError also when the executor asked for
                cannot be had here.
            OutOfMemoryError: the model would not fit; the message has the numbers.
        """
        wanted = Wanted.checked(executor, threads, precise, kv_cache)
        files = files_at(source) if isinstance(source, str | os.PathLike) else source
        model = await read_model(files, tables=tables)
        built = await build_executor(
            wanted,
            model,
            context=_checked_context(context, model.config.context_length),
            on_progress=on_progress,
            on_notice=on_notice,
            admit=admit,
        )
        return cls(model, built)

    @property
    def kv_tokens(self) -> tuple[int, ...]:
        """The token ids whose keys and values the cache holds."""
        return self._kv.tokens

    @property
    def context(self) -> int:
        """Positions of the KV cache: the longest prompt and answer together, in tokens."""
        return self._executor.context

    @property
    def executor_name(self) -> str:
        """Which executor computes: "native", "wasm" or "numpy"."""
        return self._executor.name

    @property
    def in_8_bits(self) -> tuple[str, ...]:
        """Types of the model's file whose matrices the kernels keep as 8-bit integers, though they were not stored as
        such: "Q6_K", "F16", … `docs/kernels.md` says what that costs.
        """
        return self._executor.in_8_bits

    @property
    def can_call(self) -> bool:
        """Whether the model's template has a way of asking for tools."""
        return self.model.marks.call is not None

    @property
    def thinks_by_default(self) -> bool | None:
        """Whether the model thinks when `enable_thinking` is not given; None where its template does not know that."""
        return thinks_by_default(self.model.template) if self.model.template else None

    def cancel(self) -> None:
        """Stop the answer that is running: at once where the executor can be stopped from another thread, and at the
        latest after the token or prefill chunk being computed.
        """
        self._cancelled = True
        if self._busy:
            self._kv.stop()

    def stop_word(self) -> Any:
        """What another thread may write 1 into, to stop what is being computed within milliseconds: in the browser, on an
        isolated page, an Int32Array of shared memory. None where there is no such thing. `cancel` has to follow.
        """
        return self._kv.stop_word()

    def logits(self, ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits after each of `ids`, computed from an empty cache, (n, vocab) float32; for tests and measurements.

        Raises:
            BusyError: an answer is running.
            ParameterError: no ids, or an id outside the vocabulary.
            ContextOverflowError: more ids than the context has positions.
        """
        self._refuse_if_busy()
        self._kv.resume()
        return self._kv.forward_all(ids)

    def close(self) -> None:
        """Give memory and threads back, for another model to take; the engine cannot be used any more."""
        self._kv.close()

    async def chat(
        self,
        messages: Sequence[Message],
        params: SamplingParams | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **template_kwargs: Any,
    ) -> AsyncGenerator[Event, None]:
        """Answer a conversation; see `pyruntime.events` for what is yielded.

        Args:
            messages: the conversation, oldest first.
            params: how tokens are drawn and when to stop; the defaults of `SamplingParams` if not given.
            tools: descriptions of tools for the template.
            **template_kwargs: further variables of the template, such as `enable_thinking`.

        Raises:
            BusyError: an answer is already running on this engine.
            ParameterError, TemplateError: the messages are malformed, or the template refuses them.
            ContextOverflowError: the prompt leaves no room for an answer.
        """
        self._refuse_if_busy()
        stopwatch = self.stopwatch()
        prompt = self.prompt(messages, tools, **template_kwargs)
        answer = self.answer(prompt, params, known_tools=tool_schemas(tools or ()), stopwatch=stopwatch)
        async with aclosing(answer) as events:
            async for event in events:
                yield event

    def prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        continue_final_message: ContinueFinal = False,
        **template_kwargs: Any,
    ) -> list[int]:
        """The token ids of a conversation, up to where the model is to go on; as long as it is.

        Args:
            messages: as `chat`, like the tools and the further variables.
            tools: as `chat`.
            continue_final_message: end inside the last message and not behind what opens an answer; as `ChatTemplate.prompt`.
            **template_kwargs: as `chat`.

        Raises:
            ParameterError, TemplateError: as `chat`.
        """
        prompt = self._template().encode(
            move_inline_thinking(messages, self._thinking_tags()),
            tools,
            add_generation_prompt=not continue_final_message,
            continue_final_message=continue_final_message,
            **template_kwargs,
        )
        if not prompt:
            problem = "it rendered nothing for these messages"
            raise UnsupportedError(self.model.file_name, "chat template", problem)
        return prompt

    def stopwatch(self) -> Stopwatch:
        """A stopwatch on the engine's clock, started now: for a request that does something before `answer`."""
        return Stopwatch(self._clock)

    async def answer(
        self,
        prompt: Sequence[int],
        params: SamplingParams | None = None,
        *,
        known_tools: Schemas | None = None,
        continues: bool = False,
        stopwatch: Stopwatch | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Go on from a prompt; yields as `chat`.

        Args:
            prompt: token ids, as `prompt` makes them.
            params: as `chat`.
            known_tools: the tools that the prompt offers, by name, with the JSON Schema of their arguments.
            continues: whether the prompt ends inside an answer, so that white space which comes next is part of it.
            stopwatch: started when the request came; by default now.

        Raises:
            BusyError: an answer is already running on this engine.
            ContextOverflowError: the prompt leaves no room for an answer.
        """
        self._refuse_if_busy()
        if len(prompt) >= self.context:
            advice = "Shorten the conversation, or load the model with a larger context"
            raise ContextOverflowError(len(prompt) + 1, self.context, advice=advice)
        params = params or SamplingParams()
        parser = OutputParser(
            self.model.tokenizer,
            self.model.marks,
            stops=params.stop,
            known_tools=known_tools or {},
            inside_thinking=ends_inside_thinking(prompt, self.model.marks),
            continues=continues,
        )
        answer = Answer(
            self._kv,
            parser,
            self.model.generation.stop_ids,
            prompt,
            params,
            stopwatch or self.stopwatch(),
            lambda: self._cancelled,
            self.model.marks.end_of_thinking,
        )
        self._busy, self._cancelled = True, False
        self._answers += 1
        self._kv.resume()
        try:
            async with aclosing(answer.events()) as events:
                async for event in events:
                    yield event
        finally:
            self._kv.settle()
            self._kv.resume()  # a stop that came behind the last computation must not meet the next one
            self._busy = False

    async def prefill(self, prompt: Sequence[int]) -> int:
        """Compute the beginning of a prompt that is expected, while nobody waits for an answer.

        An answer that is asked for ends this behind the few tokens being computed, and goes on from what is there.

        Args:
            prompt: token ids, fewer than the context has positions.

        Returns:
            How many of them the cache holds now.

        Raises:
            BusyError: an answer is running.
        """
        self._refuse_if_busy()
        answers = self._answers
        try:
            while self._answers == answers:
                if not self._kv.extend_towards(prompt, _IDLE_CHUNK):
                    break
                await asyncio.sleep(0)
        except StoppedError:
            self._kv.settle()
        except Exception:
            self._kv.settle()
            raise
        return self._kv.shared_with(prompt)

    async def warm_up(self) -> None:
        """Compute for nothing for a quarter of a second, where nobody waits for an answer.

        Browsers compile WebAssembly quickly at first, and what is used much once more and better; Python and the
        template engine prepare things when they are first used. Without this, that happens during the first answer.
        A request ends it.
        """
        with suppress(TemplateError, ContextOverflowError, StoppedError):  # a conversation may avoid the first two
            prompt = self.prompt([{"role": "user", "content": "Hello"}])
            begun, n = self._clock(), _WARM_UP_TOKENS
            while not self._busy and not self.kv_tokens and self._clock() - begun < _WARM_UP_S:
                step = self._clock()
                self._kv.warm_up(list(islice(cycle(prompt), min(n, self.context - 2))))
                if self._clock() - step < _WARM_UP_S / 4:
                    n = min(2 * n, 4 * _WARM_UP_TOKENS)
                await asyncio.sleep(0)

    def check_can_chat(self) -> None:
        """Raise UnsupportedError if the model has no chat template."""
        self._template()

    def _template(self) -> ChatTemplate:
        if self.model.template is None:
            problem = "the model has no chat template, so it cannot chat"
            raise UnsupportedError(self.model.file_name, "chat template", problem)
        return self.model.template

    def _refuse_if_busy(self) -> None:
        if self._busy:
            raise BusyError("engine: an answer is already running. Wait for it to finish, or stop it first")

    def _thinking_tags(self) -> tuple[str, str] | None:
        if self.model.marks.think is None:
            return None
        texts = {token_id: text for text, token_id in self.model.tokenizer.control_ids.items()}
        opening, closing = self.model.marks.think
        return texts[opening], texts[closing]


def _checked_context(context: int | None, limit: int) -> int:
    if context is None:
        return min(limit, DEFAULT_CONTEXT)
    if isinstance(context, bool) or not isinstance(context, int) or not 2 <= context <= limit:
        raise ParameterError("context", context, f"an integer in [2, {limit}], the model's own limit")
    return context
