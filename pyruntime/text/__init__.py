"""Text to token ids and back: normalise, pre-tokenise, byte-pair encoding, streaming decode."""

from pyruntime.text.stream import StreamDecoder
from pyruntime.text.tokenizer import Tokenizer

__all__ = ["StreamDecoder", "Tokenizer"]
