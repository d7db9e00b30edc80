"""What the text parity tests do on both sides: inside Pyodide, where the text of this file runs, and natively.

Values cross as JSON texts, which is the fastest way for lists of many numbers. `tokenizers` holds what was loaded, by name.
"""

import hashlib
import json
from datetime import datetime

from pyruntime.chat import ChatTemplate
from pyruntime.errors import TinyPyLMError
from pyruntime.formats.gguf import read_gguf
from pyruntime.text import Tokenizer
from pyruntime.text.tables import compile_tables
from pyruntime.text.tokenizer_config import read_tokenizer_config

_SHOWN = 3  # differences that a test is told of

tokenizers = {}
templates = {}  # chat templates of the models


def keep_gguf(name, metadata):
    """Keep the tokenizer and the template in a GGUF file's metadata."""
    tokenizers[name] = Tokenizer.from_metadata(metadata, f"{name}.gguf")
    templates[name] = metadata["tokenizer.chat_template"]


def keep_json(name, tokenizer, config):
    """Keep the tokenizer of a tokenizer.json, and the template in the tokenizer_config.json beside it."""
    described = read_tokenizer_config(config, "tokenizer_config.json")
    tokenizers[name] = Tokenizer.from_tokenizer_json(tokenizer, described)
    templates[name] = described.chat_templates["default"]


async def load_default_model(name, page_url):
    """Keep what the site's own model has."""
    from pyruntime.delivery.obtain_browser import obtain_model

    model = await obtain_model("seed/default.json", page_url=page_url)
    keep_gguf(name, (await read_gguf(*model.files.values())).metadata)


async def load_files(name, tokenizer, config):
    """Keep what two files have, given by their addresses."""
    from pyodide.http import pyfetch

    keep_json(name, *[await (await pyfetch(address)).bytes() for address in (tokenizer, config)])


def differences(name, cases):
    """Where a tokenizer differs from [[text, ids of typed text, ids with control, text of the first ids], …].

    Returns: how many cases differ, and the first few as [index, which of the three, what was found].
    """
    tokenizer = tokenizers[name]
    found = []
    for index, (text, typed, with_control, decoded) in enumerate(json.loads(cases)):
        for which, expected, actual in (
            ("encode", typed, tokenizer.encode(text)),
            ("encode_with_control", with_control, tokenizer.encode_with_control(text)),
            ("decode", decoded, tokenizer.decode(typed)),
        ):
            if actual != expected:
                found.append([index, which, actual])
    return [len(found), found[:_SHOWN]]


def through_tables(name, source_sha256):
    """Keep the tokenizer, compiled and read again, as "tables"; the SHA-256 of the tables."""
    data = compile_tables(tokenizers[name].spec, source_sha256)
    tokenizers["tables"] = Tokenizer.from_tables(data, source_sha256)
    return hashlib.sha256(data).hexdigest()


def typed_ids(name, units):
    """The ids of texts given as lists of UTF-16 units, each of which becomes a character of its own."""
    return [tokenizers[name].encode("".join(map(chr, row))) for row in json.loads(units)]


def streamed(name, rows):
    """For each list of ids: the text that came with each, what the flush gave, and the whole text at once."""
    results = []
    for ids in json.loads(rows):
        stream = tokenizers[name].stream()
        results.append([[stream.push(token_id) for token_id in ids], stream.flush(), tokenizers[name].decode(ids)])
    return results


def renderings(template, conversations, undefined):
    """What [source, special tokens] makes of each conversation: a text, or [class of the error, its words]."""
    source, special_tokens = json.loads(template)
    compiled = ChatTemplate(source, special_tokens, now=_now, undefined=undefined)
    return [_outcome(compiled.render, conversation) for conversation in json.loads(conversations)]


def prompts(name, conversations):
    """The ids of each conversation with a model's tokenizer and template, or [class of the error, its words]."""
    tokenizer = tokenizers[name]
    compiled = ChatTemplate(templates[name], tokenizer.special_tokens, tokenizer, now=_now)
    return [_outcome(compiled.encode, conversation) for conversation in json.loads(conversations)]


def _outcome(render, conversation):
    try:
        return render(**conversation)
    except TinyPyLMError as error:
        return [type(error).__name__, str(error)]


def _now():
    return datetime(2025, 3, 14, 15, 9, 26)  # noqa: DTZ001 - the reference passes local time
