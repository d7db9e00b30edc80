"""Markdown as text, before it is rendered: where a growing answer can be cut, and where its mathematics is.

Pure. Rendering itself is the job of a library; this module only decides what is handed to it. A growing answer is cut
at blank lines between blocks, so that a frame renders the last block and not the whole answer. The cut is a guess
about Markdown (a list after a blank line may belong to the list before it), good enough while text is streaming; the
finished answer is rendered whole.
"""

MATH_MARK = "\ue000"  # stands in for a formula while Markdown is rendered; private use, so no answer needs it

_MARKS = "$\\`~"
_MOST_MARKS = 2000  # each can cost a search to the text's end: a text with more of them is not searched for formulas

_FENCES = ("```", "~~~")
_LIST_MARKS = ("- ", "* ", "+ ")
_ENOUGH = 8  # characters of a growing line that tell whether it is a list's item


class BlockSplitter:
    """Cuts a growing Markdown text into settled blocks and a tail; each line is looked at once."""

    def __init__(self):
        self._lines = []  # complete lines of the block that is growing
        self._rest = []  # pieces of the line that is growing
        self._fence = ""
        self._blank = False  # whether the last complete line was blank, outside a fence

    def feed(self, piece):
        """Add a piece; returns the text that settled, usually empty."""
        settled = ""
        start = 0
        while True:
            end = piece.find("\n", start)
            if end < 0:
                break
            line = "".join(self._rest) + piece[start : end + 1]
            self._rest = []
            settled += self._add(line)
            start = end + 1
        if start < len(piece):
            self._rest.append(piece[start:])
            if self._blank:
                settled += self._settle("".join(self._rest), _ENOUGH)
        return settled

    @property
    def tail(self):
        """The text that has not settled."""
        return "".join(self._lines) + "".join(self._rest)

    def _settle(self, line, least):
        """The lines before `line`, when it begins a block and shows at least so many characters to tell by."""
        if len(line) < least or not line.strip():
            return ""
        self._blank = False
        if line[0] in " \t" or (_is_item(line) and _is_item(self._lines[0])):
            return ""
        settled, self._lines = "".join(self._lines), []
        return settled

    def _add(self, line):
        settled = self._settle(line, 1) if self._blank else ""
        self._lines.append(line)
        mark = line.strip()[:3]
        if self._fence:
            if mark == self._fence and not line.strip().strip(mark[0]):
                self._fence = ""
        elif mark in _FENCES:
            self._fence = mark
        self._blank = not self._fence and not line.strip()
        return settled


def _is_item(line):
    number = line.split(".", 1)[0].split(")", 1)[0]
    return line[:2] in _LIST_MARKS or (number.isdigit() and line[len(number) + 1 : len(number) + 2] == " ")


def take_math(text):
    r"""(text with a mark for each formula, formulas): formula n is where the mark, n and the mark again stand.

    A formula is (source, tex, display). Recognised are $$…$$, \[…\] and \(…\), and $…$ where the first dollar is
    followed, and the last one preceded, by something that is not a space and no digit comes after ("$5 and $6" is
    money). Code is left alone.
    """
    if MATH_MARK in text or ("$" not in text and "\\" not in text):
        return text, []
    if sum(text.count(mark) for mark in _MARKS) > _MOST_MARKS:
        return text, []
    pieces, formulas, at = [], [], 0
    while at < len(text):
        start = _next_mark(text, at)
        pieces.append(text[at:start])
        if start == len(text):
            break
        end, tex, display = _formula(text, start)
        if tex:
            pieces.append(f"{MATH_MARK}{len(formulas)}{MATH_MARK}")
            formulas.append((text[start:end], tex, display))
        else:
            pieces.append(text[start:end])
        at = end
    return "".join(pieces), formulas


def _next_mark(text, at):
    """Where the next character is that can begin a formula or code; the text's end if there is none."""
    found = [place for place in (text.find(mark, at) for mark in _MARKS) if place >= 0]
    return min(found) if found else len(text)


def _formula(text, start):
    """(end, tex, display) of what begins at `start`; tex is empty if it is no formula, `end` is where to go on."""
    mark = text[start]
    if mark in "`~":
        return _code(text, start), "", False
    if mark == "\\":
        closing = {"[": "\\]", "(": "\\)"}.get(text[start + 1 : start + 2])
        end = text.find(closing, start + 2) if closing else -1
        if end < 0:
            return min(start + 2, len(text)), "", False
        return end + 2, text[start + 2 : end].strip(), closing == "\\]"
    if text[start : start + 2] == "$$":
        end = text.find("$$", start + 2)
        return (end + 2, text[start + 2 : end].strip(), True) if end >= 0 else (start + 2, "", False)
    end = text.find("$", start + 1)
    if end < 0 or not _is_inline(text[start + 1 : end], text[end + 1 : end + 2]):
        return start + 1, "", False
    return end + 1, text[start + 1 : end], False


def _is_inline(inside, after):
    if not inside or "\n" in inside or after.isdigit():
        return False
    return not inside[0].isspace() and not inside[-1].isspace()


def _code(text, start):
    """Where the code that begins at `start` ends: a run of back-quotes or tildes closes at a run as long."""
    mark = text[start]
    length = _run(text, start)
    if mark == "~" and length < 3:
        return start + length
    at = text.find(mark * length, start + length)
    while at >= 0:
        found = _run(text, at)
        if found == length:
            return at + length
        at = text.find(mark * length, at + found)
    return start + length if length < 3 else len(text)


def _run(text, start):
    end = start
    while text[end : end + 1] == text[start]:
        end += 1
    return end - start
