"""Ways in which templates write calls, in small templates of our own, and what stands in for their tokenizers."""

from __future__ import annotations

import json
import re
from functools import cache

from pyruntime.chat import ChatTemplate
from pyruntime.chat.call_format import find_call_format
from pyruntime.chat.marks import Marks
from pyruntime.chat.output import ContentText, OutputParser
from pyruntime.chat.tool_calls import InvalidToolCall, ToolCall
from pyruntime.text.stream import StreamDecoder

_HEAD = "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}"
_TAIL = "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"


def _calls(one, before="", behind="", between=""):
    loop = "{% for c in m.tool_calls %}" + one + "{% if not loop.last %}" + between + "{% endif %}{% endfor %}"
    return _HEAD + "{% if m.tool_calls %}" + before + loop + behind + "{% endif %}" + _TAIL


_FIELDS = (
    "{% for k, v in c.function.arguments|items %}<p={{ k }}>\n{{ v if v is string else v|tojson }}\n</p>\n{% endfor %}"
)
OWN = {
    # As Hermes and Qwen: JSON between two tokens.
    "json between tokens": _calls(
        '<call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}\n</call>',
        between="\n",
    ),
    # As Qwen3-Coder: tags for each argument.
    "fields": _calls("<call>\n<f={{ c.function.name }}>\n" + _FIELDS + "</f>\n</call>", between="\n"),
    # As Mistral: a token before the name and one before the arguments, and nothing behind.
    "name and arguments": _calls("[CALLS]{{ c.function.name }}[ID]{{ c.id }}[ARGS]{{ c.function.arguments|tojson }}"),
    # As older Mistral: one list, behind one token.
    "list": _calls(
        '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}, "id": "{{ c.id }}"}',
        before="[CALLS] [",
        behind="]",
        between=", ",
    ),
    # As DeepSeek: tokens around all calls, around each, and between its parts.
    "framed": _calls(
        "<|call|>function<|sep|>{{ c.function.name }}\n```json\n{{ c.function.arguments|tojson }}\n```<|/call|>",
        before="<|calls|>",
        behind="<|/calls|>",
        between="\n",
    ),
    # As Llama 3.1: an answer that is nothing but JSON, one at a time.
    "bare": _HEAD
    + "{% if m.tool_calls %}{% if m.tool_calls|length != 1 %}{{ raise_exception('one call only') }}{% endif %}"
    + '{% set c = m.tool_calls[0].function %}{"name": "{{ c.name }}", "parameters": {{ c.arguments|tojson }}}{% endif %}'
    + _TAIL,
    # As the first, with tags that are no tokens.
    "json between texts": _calls(
        '[call]\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}\n[/call]',
        between="\n",
    ),
    # Arguments wanted as text.
    "arguments as text": _calls("<call>{{ c.function.name }}<|sep|>{{ c.function.arguments + '' }}</call>"),
    # As SmolLM3: the instructions show the model how to call, and calls of earlier turns are not shown again.
    "described": "{% if tools %}<|turn|>system\nTools:\n{% for t in tools %}{{ t|tojson }}\n{% endfor %}For a call write\n"
    '<call>\n{"name": <its name>, "arguments": <an object>}\n</call><|end|>\n{% endif %}' + _HEAD + _TAIL,
}
TOKENS = ["<|turn|>", "<|end|>", "<call>", "</call>", "<|sep|>", "<|call|>", "<|/call|>", "<|calls|>", "<|/calls|>"]
TOKENS += ["[CALLS]", "[ID]", "[ARGS]"]


class Bytes:
    """A tokenizer of 256 bytes and some control tokens, which print their text."""

    def __init__(self, tokens):
        self.control_ids = {token: 256 + i for i, token in enumerate(tokens)}
        self._texts = {token_id: token.encode() for token, token_id in self.control_ids.items()}

    def encode(self, text):
        return list(text.encode())

    def pieces(self, text):
        """The text cut into control tokens and single characters."""
        tokens = "|".join(map(re.escape, sorted(self.control_ids, key=len, reverse=True)))
        return re.findall(f"{tokens}|.", text, re.DOTALL)

    def with_control(self, text):
        """Ids of a text in which control tokens count as such."""
        ids = self.control_ids
        return [i for piece in self.pieces(text) for i in ([ids[piece]] if piece in ids else piece.encode())]

    def stream(self):
        return StreamDecoder(lambda token_id: self._texts.get(token_id) or bytes([token_id]))


@cache
def own(name):
    """One of our own templates, its tokenizer, and how it writes calls."""
    tokenizer = Bytes(TOKENS)
    template = ChatTemplate(OWN[name], {}, tokenizer)
    return template, tokenizer, find_call_format(template, tokenizer.control_ids)


def read(tokenizer, calls, text, tools, **options):
    """Text, (name, arguments) of the calls, and the malformed calls in an answer; control tokens in the text count."""
    parser = OutputParser(tokenizer, Marks(call=calls), known_tools=tools, **options)
    parts = [part for token_id in tokenizer.with_control(text) for part in parser.push(token_id)] + parser.finish()
    return (
        "".join(part.text for part in parts if isinstance(part, ContentText)),
        [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)],
        [part for part in parts if isinstance(part, InvalidToolCall)],
    )


def written(template, tokenizer, calls, content="", *, as_text=False, tools=None):
    """The text of an answer with calls, as the template writes it behind the opening of the turn."""
    arguments = json.dumps if as_text else dict
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {"type": "function", "id": f"call0000{i}", "function": {"name": name, "arguments": arguments(given)}}
            for i, (name, given) in enumerate(calls)
        ],
    }
    question = [{"role": "user", "content": "Q"}]
    opened = tokenizer.pieces(template.render(question, tools, add_generation_prompt=True))
    whole = tokenizer.pieces(template.render([*question, message], tools))
    shared = next((i for i, (a, b) in enumerate(zip(opened, whole, strict=False)) if a != b), len(opened))
    return "".join(whole[shared:])
