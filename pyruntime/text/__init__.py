"""Text to token ids and back: normalise, pre-tokenise, byte-pair encoding, streaming decode."""

from pyruntime.text.stream import StreamDecoder
from pyruntime.text.tokenizer import Tokenizer
from pyruntime.text.tokenizer_config import TokenizerConfig, read_tokenizer_config

__all__ = ["StreamDecoder", "Tokenizer", "TokenizerConfig", "read_tokenizer_config"]
