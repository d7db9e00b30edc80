"""tokenizer_config.json: the names of the special tokens, the chat templates, and whether begin and end are wanted.

The map of special tokens is what transformers 5 passes to templates: the seven common names, then the model's own
(`extra_special_tokens` as an object, and every other key that ends in `_token` and holds a token).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyruntime.errors import FormatError, shorten
from pyruntime.formats.strict_json import parse_json
from pyruntime.text.json_fields import Fields, check_text

MAX_BYTES = 16 << 20
MAX_DEPTH = 100
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class TokenizerConfig:
    """What a tokenizer_config.json says.

    Attributes:
        special_tokens: "bos_token", "eos_token", … to text.
        chat_templates: name to template; a single one is called "default". Some models have one for tools as well,
            "tool_use". Empty where the file has none (it may be in a file of its own, chat_template.jinja).
        add_bos_token, add_eos_token: what the file says; None where it does not.
    """

    special_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None


def read_tokenizer_config(data: bytes, name: str) -> TokenizerConfig:
    """The tokenizer_config.json with these bytes.

    Args:
        data: the whole file.
        name: the file's name, for errors.

    Raises:
        FormatError: it is damaged, or a token or template is of the wrong type.
    """
    parsed = parse_json(data, name=name, max_bytes=MAX_BYTES, max_depth=MAX_DEPTH)
    if not isinstance(parsed, dict):
        raise FormatError(name, "JSON", shorten(parsed), allowed="an object")
    file = Fields(parsed, "", name)
    return TokenizerConfig(
        special_tokens=_special_tokens(file),
        chat_templates=_chat_templates(file),
        add_bos_token=file.optional("add_bos_token", bool),
        add_eos_token=file.optional("add_eos_token", bool),
    )


def _special_tokens(file: Fields) -> dict[str, str]:
    tokens = {key: _token(file, key) for key in NAMES if file.values.get(key) is not None}
    for key, value in file.values.items():
        if key.endswith("_token") and key not in NAMES and (isinstance(value, str) or _is_added_token(value)):
            tokens[key] = _token(file, key)
    for group in ("extra_special_tokens", "model_specific_special_tokens"):
        if isinstance(file.values.get(group), dict):
            named = file.object(group)
            tokens |= {key: _token(named, key) for key, value in named.values.items() if value is not None}
    return tokens


def _is_added_token(value: Any) -> bool:
    return isinstance(value, dict) and "content" in value


def _token(fields: Fields, key: str) -> str:
    """A token, written as its text or as an object that has it."""
    value = fields.values[key]
    if isinstance(value, dict):
        return fields.object(key).get("content", str)
    if not isinstance(value, str):
        raise fields.error(key, shorten(value), allowed="a string, or an object with the content")
    return fields.get(key, str)


def _chat_templates(file: Fields) -> dict[str, str]:
    value = file.values.get("chat_template")
    if value is None:
        return {}
    if isinstance(value, str):
        check_text(value, file.file, "chat_template")
        return {"default": value}
    if not isinstance(value, list):
        raise file.error("chat_template", shorten(value), allowed="a string, or a list of named templates")
    templates: dict[str, str] = {}
    for entry in file.objects("chat_template"):
        called = entry.get("name", str)
        if called in templates:
            raise entry.error("name", f"{shorten(called)} is the name of two templates")
        templates[called] = entry.get("template", str)
    return templates
