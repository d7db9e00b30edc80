"""A tiny model file whose weights make it say what a test wants: first a call for a tool, and behind its result an answer.

It is a Markov chain. Each token that is to be followed by a certain other one has an entry of its own in the hidden state, no
layer adds anything to it, and the output head turns it into the next token. All of it is read and computed as in any model.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from tests.gguf_writer import ARRAY, INT32, Typed, gguf_bytes
from tests.tiny_model import (
    CALL,
    CONTROL,
    HIDDEN,
    IM_END,
    IM_START,
    TAGS,
    TOOL,
    UNCALL,
    VOCAB,
    byte_tokens,
    metadata,
    tensors,
)

# The last token of the prompt says what is to come: a call behind a question, an answer behind a result.
TEMPLATE = (
    "{% if tools %}<|im_start|>tools\n{{ tools|tojson }}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}"
    '<call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}\n</call>'
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|tool|>' if messages[-1].role == 'tool' else '<|im_start|>' }}{% endif %}"
)
_CONTEXT = 2048
_LOUD = 8.0


def speaking_gguf(call: str, answer: str) -> bytes:
    """The bytes of a model that behind every question makes a call with this text inside, and behind every result answers."""
    *begin, last = answer.split()
    words = [f"\n{call}\n", *(f"{word} " for word in begin), last]
    inside, *said = range(VOCAB, VOCAB + len(words))
    call_chain = [IM_START, CALL, inside, UNCALL, IM_END]
    answer_chain = [TOOL, *said, IM_END]
    following = {a: b for chain in (call_chain, answer_chain) for a, b in pairwise(chain)}
    letters = byte_tokens()
    tokens = letters + CONTROL + TAGS + ["".join(letters[byte] for byte in word.encode()) for word in words]
    kinds = [1] * 256 + [3] * len(CONTROL) + [4] * len(TAGS) + [1] * len(words)
    header = metadata(
        llama__context_length=_CONTEXT,
        llama__vocab_size=len(tokens),
        tokenizer__ggml__tokens=tokens,
        tokenizer__ggml__token_type=Typed(ARRAY, (INT32, kinds)),
        tokenizer__chat_template=TEMPLATE,
    )
    return gguf_bytes(header, _weights(following, len(tokens)))


def _weights(following: Mapping[int, int], n_tokens: int) -> dict:
    embedding, head = np.zeros((2, n_tokens, HIDDEN), dtype="<f4")
    for place, (token, after) in enumerate(following.items()):
        embedding[token, place] = 1.0
        head[after, place] = _LOUD
    made = tensors()
    for name, (_, shape, _) in made.items():
        if name.endswith(("attn_output.weight", "ffn_down.weight")):
            made[name] = ("F32", shape, np.zeros(shape, dtype="<f4").tobytes())
    made["output_norm.weight"] = ("F32", (HIDDEN,), np.ones(HIDDEN, dtype="<f4").tobytes())
    for name, array in (("token_embd.weight", embedding), ("output.weight", head)):
        made[name] = ("F32", array.shape, array.tobytes())
    return made
