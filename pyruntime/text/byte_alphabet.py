"""The byte alphabet of GPT-2: every byte has a printable character, in which vocabularies are written.

Bytes that are printable Latin-1 characters other than the space and the soft hyphen stand for themselves; the
others, in order, are U+0100 and up.

Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019), section 2.2.
"""

from __future__ import annotations


def _characters() -> list[str]:
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte if byte in plain else next(moved)) for byte in range(256)]


CHARACTERS = _characters()  # byte -> character
_BYTES = {character: byte for byte, character in enumerate(CHARACTERS)}
_TRANSLATION = dict(enumerate(CHARACTERS))


def to_alphabet(data: bytes) -> str:
    """`data` written in the byte alphabet."""
    return data.decode("latin-1").translate(_TRANSLATION)


def to_bytes(token: str) -> bytes:
    """The bytes that `token` stands for: its UTF-8 when it is not all written in the byte alphabet."""
    try:
        return bytes([_BYTES[character] for character in token])
    except KeyError:
        return token.encode()
