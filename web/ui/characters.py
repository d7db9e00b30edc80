"""The characters that do not survive the way between JavaScript and MicroPython, and what stands for them. Pure."""

_REPLACEMENT = "\ufffd"
_FIRST_HALF, _LAST_HALF = chr(0xD800), chr(0xDFFF)


def well_formed(text):
    """The text with U+FFFD for each half of a UTF-16 pair that stands alone; on its way out it would become three."""
    if not text or max(text) < _FIRST_HALF:
        return text
    return "".join([_REPLACEMENT if _FIRST_HALF <= character <= _LAST_HALF else character for character in text])


def showable(text):
    """The text with U+FFFD for U+0000, as Markdown has it; on its way out a text would end there."""
    return text.replace("\0", _REPLACEMENT)
