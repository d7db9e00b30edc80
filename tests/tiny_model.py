"""A tiny chat model for tests: 256 byte tokens, a few control tokens, a ChatML-like template, two random layers.

It is a real model file, read by the real code; only its wits are missing. `ScriptedExecutor` stands in for the
arithmetic where a test wants to say what the model answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyruntime.engine import Engine
from pyruntime.formats.source import BytesSource, run_without_waiting
from pyruntime.opening import OpenedModel, read_model
from tests.gguf_writer import ARRAY, INT32, Typed, gguf_bytes

CONTROL = ["<|im_start|>", "<|im_end|>", "<|pad|>", "<|tool|>"]
TAGS = ["<think>", "</think>", "<call>", "</call>"]  # added tokens that print their text
IM_START, IM_END, PAD, TOOL, THINK, UNTHINK, CALL, UNCALL = range(256, 264)
VOCAB = 264
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As TEMPLATE, with thinking and tool calls.
TAG_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>\n{{ c.function|tojson }}\n</call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if open_thinking %}<think>\n{% endif %}{% endif %}"
)
HIDDEN, HEADS, KV_HEADS, FFN, LAYERS, CONTEXT = 32, 4, 2, 64, 2, 256


def byte_tokens() -> list[str]:
    """The 256 characters by which byte-level BPE writes the bytes 0 to 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = (chr(256 + i) for i in range(256))
    return [chr(byte) if byte in printable else next(other) for byte in range(256)]


def metadata(**changes) -> dict:
    """The header of the tiny model; `changes` replace values (None removes), with `__` for each dot in a key."""
    values = {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "llama.block_count": LAYERS,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": HIDDEN // HEADS,
        "llama.vocab_size": VOCAB,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": byte_tokens() + CONTROL + TAGS,
        "tokenizer.ggml.token_type": Typed(ARRAY, (INT32, [1] * 256 + [3] * len(CONTROL) + [4] * len(TAGS))),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": IM_END,
        "tokenizer.ggml.padding_token_id": PAD,
        "tokenizer.chat_template": TEMPLATE,
    }
    values.update({key.replace("__", "."): value for key, value in changes.items()})
    return {key: value for key, value in values.items() if value is not None}


def tensors(seed: int = 0) -> dict:
    """Random weights of the tiny model, F32."""
    random = np.random.default_rng(seed)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes = {"token_embd.weight": (VOCAB, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {
            f"blk.{i}.attn_norm.weight": (HIDDEN,),
            f"blk.{i}.attn_q.weight": (HIDDEN, HIDDEN),
            f"blk.{i}.attn_k.weight": (kv, HIDDEN),
            f"blk.{i}.attn_v.weight": (kv, HIDDEN),
            f"blk.{i}.attn_output.weight": (HIDDEN, HIDDEN),
            f"blk.{i}.ffn_norm.weight": (HIDDEN,),
            f"blk.{i}.ffn_gate.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_up.weight": (FFN, HIDDEN),
            f"blk.{i}.ffn_down.weight": (HIDDEN, FFN),
        }
    return {
        name: ("F32", shape, random.standard_normal(shape).astype("<f4").tobytes()) for name, shape in shapes.items()
    }


def tiny_gguf(**changes) -> bytes:
    """The bytes of the tiny model's file."""
    return gguf_bytes(metadata(**changes), tensors())


def open_tiny(**changes) -> OpenedModel:
    return run_without_waiting(read_model(BytesSource(tiny_gguf(**changes), "tiny.gguf")))


class ScriptedExecutor:
    """An executor that "answers" with given ids: after every prompt (which begins with a cut) it walks through the next
    script.

    `log` records every computation, so that tests can see it, and `story` the cuts as well; `on_forward` is called in the
    middle of each.
    """

    name = "scripted"
    prefill_chunk = 32

    def __init__(self, scripts: Sequence[Sequence[int]], *, context: int = CONTEXT, vocab_size: int = VOCAB) -> None:
        self.context, self.vocab_size = context, vocab_size
        self.tokens: list[int] = []
        self.log: list[tuple] = []
        self.story: list[tuple] = []
        self.fail_after: int | None = None
        self.on_forward = lambda: None
        self._scripts = [list(script) for script in scripts]
        self._script: list[int] = []
        self._is_cut = True

    @property
    def length(self) -> int:
        return len(self.tokens)

    def prefill(self, ids: Sequence[int]) -> None:
        self._take("prefill", ids)

    def forward(self, ids: Sequence[int]) -> np.ndarray:
        self._take("forward", ids)
        self.on_forward()
        if self._is_cut or not self._script:
            self._script, self._is_cut = self._scripts.pop(0), False
        logits = np.zeros(self.vocab_size, dtype=np.float32)
        logits[self._script.pop(0)] = 50.0
        return logits

    def forward_all(self, ids: Sequence[int]) -> np.ndarray:
        self._take("forward_all", ids)
        return np.zeros((len(ids), self.vocab_size), dtype=np.float32)

    def truncate(self, length: int) -> None:
        self.story.append(("cut", [length]))
        del self.tokens[length:]
        self._is_cut = True

    def _take(self, call: str, ids: Sequence[int]) -> None:
        self.log.append((call, list(ids)))
        self.story.append(self.log[-1])
        if self.fail_after is not None and len(self.log) > self.fail_after:
            raise RuntimeError("the executor broke")
        assert len(self.tokens) + len(ids) <= self.context
        self.tokens.extend(ids)


def scripted_engine(
    *answers: str | Sequence[int], context: int = CONTEXT, **changes
) -> tuple[Engine, ScriptedExecutor]:
    """An engine whose model gives these answers, each followed by the end of its turn."""
    scripts = [[*(a.encode() if isinstance(a, str) else a), IM_END] for a in answers]
    executor = ScriptedExecutor(scripts, context=context)
    return Engine(open_tiny(**changes), executor), executor
