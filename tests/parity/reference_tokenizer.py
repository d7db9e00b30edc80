"""The reference: a `tokenizers` tokenizer rebuilt from the metadata of a GGUF file.

Conversions of GGUF tokenizers that ship elsewhere are not trusted here (one that is widely used adds a begin
token and does not split digits for SmolLM2); what each `tokenizer.ggml.pre` stands for is written down from the
models' own tokenizer files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from pyruntime.text.gguf_reader import PRE_TOKENIZERS

_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5


def reference_tokenizer(metadata: Mapping[str, Any], *, control: bool) -> Tokenizer:
    """The reference's tokenizer. With `control`, text that spells an added token becomes that token."""
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    pre = metadata["tokenizer.ggml.pre"]
    vocab = {token: i for i, (token, type_) in enumerate(zip(tokens, types, strict=True)) if type_ != _UNUSED}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab, merges, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    if control:
        for token, type_ in zip(tokens, types, strict=True):
            if type_ in (_CONTROL, _USER_DEFINED):
                tokenizer.add_tokens([AddedToken(token, special=type_ == _CONTROL, normalized=False)])
    return tokenizer


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    if pre == "gpt-2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    split = pre_tokenizers.Split(Regex(PRE_TOKENIZERS[pre].pre_tokenizer[0].pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
