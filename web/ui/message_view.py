"""One message on the page: thinking, text, calls for tools, its state, and what a finished answer tells about itself."""

import asyncio

import js
from ui import wording
from ui.characters import showable
from ui.dom import make, set_text
from ui.markdown_text import BlockSplitter
from ui.parts_view import ThinkingView, call_view

_SPEAKERS = {"user": "You", "assistant": "Assistant"}
_STATE_WORDS = {"cancelled": "Stopped", "error": "Broken off by an error"}


class MessageView:
    """The element of one message.

    Args:
        message: a `conversation.Message`.
        markdown: a `MarkdownView`.
        copy: awaited with the text when the user wants it on the clipboard; tells whether it got there.
    """

    def __init__(self, message, markdown, copy):
        self.message, self._markdown, self._copy = message, markdown, copy
        self.element = make("article", class_="message", data_testid="message", data_role=message.role)
        self.element.setAttribute("aria-label", _SPEAKERS[message.role])
        self._text = make("div", class_="text", data_testid="message-text")
        self.element.append(self._text)
        self._thinking = None
        self.element.dataset.state = message.state
        if message.role == "user":
            set_text(self._text, message.text)
        else:
            self._begin_streaming()

    def _begin_streaming(self):
        # Screen readers wait for the whole answer instead of reading every piece.
        self.element.setAttribute("aria-busy", "true")
        self._blocks = BlockSplitter()
        self._settled, self._tail = make("div", class_="settled"), make("div", class_="tail")
        self._text.append(self._settled, self._tail)

    def stream(self, thought, piece):
        """Show one more piece of the thinking, and one of the text; either may be empty."""
        if thought:
            self._thinking_view().append(thought)
        if self._thinking is not None:
            self._thinking.show()
        if piece:
            settled = self._blocks.feed(piece)
            if settled:
                self._settled.append(self._markdown.render(settled))
            self._tail.replaceChildren(self._markdown.render(self._blocks.tail))

    def call(self, call):
        """Show a call for a tool, below the text."""
        self.element.append(call_view(call))

    def _thinking_view(self):
        if self._thinking is None:
            self._thinking = ThinkingView(self.message)
            self.element.prepend(self._thinking.element)
        return self._thinking

    def finish(self):
        """Show the message in its last state; returns an awaitable that colours code and sets formulas."""
        message = self.message
        if message.reasoning:
            self._thinking_view().finish()
        self._text.replaceChildren(self._markdown.render(message.text))
        self.element.removeAttribute("aria-busy")
        self.element.append(self._footer())
        for name, value in (message.stats or {}).items():
            if value is not None:
                self.element.setAttribute("data-" + name.replace("_", "-"), _attribute(value))
        self.element.dataset.state = message.state
        return self._markdown.enhance(self._text)

    def _footer(self):
        footer = make("footer")
        words = _STATE_WORDS.get(self.message.state)
        if words:
            footer.append(make("span", words, class_="state"))
        if self.message.stats:
            footer.append(make("span", wording.summary(self.message.stats), data_testid="stats"))
        if not self.message.text:
            return footer
        button = make("button", "Copy", type="button", class_="quiet", data_testid="copy")
        button.addEventListener("click", lambda _: asyncio.create_task(self._copy_text(button)))
        footer.append(button)
        return footer

    async def _copy_text(self, button):
        if await self._copy(showable(self.message.text)):
            button.textContent = "Copied"
            js.setTimeout(lambda: setattr(button, "textContent", "Copy"), 2000)


def _attribute(value):
    return f"{value:.3f}" if isinstance(value, float) else str(value)
