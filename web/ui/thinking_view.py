"""An answer's thinking on the page: plain text, as the model wrote it, closed until the reader opens it."""

from ui import wording
from ui.characters import showable
from ui.dom import make, set_text


class ThinkingView:
    """The element of a message's thinking.

    Args:
        message: a `conversation.Message`.
    """

    def __init__(self, message):
        self._message = message
        self._summary, self._text = make("summary"), make("div", class_="plain")
        self.element = make("details", class_="aside", data_testid="thinking")
        self.element.append(self._summary, self._text)

    def append(self, piece):
        """Show one more piece."""
        self._text.append(showable(piece))

    def show(self):
        """Say how it stands with the thinking."""
        set_text(self._summary, wording.thinking(self._message.thinking, self._message.thought_ms))
        self.element.dataset.state = self._message.thinking

    def finish(self):
        """Show all of it, as it stays."""
        set_text(self._text, self._message.reasoning)
        self.show()
