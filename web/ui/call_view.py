"""A call for a tool on the page: what is to be run, how it stands with it, and the two answers while it waits for the user.

Arguments, malformed calls and results are untrusted: they are shown as text.
"""

from ui import wording
from ui.dom import button, make, set_text

_OPEN_UP_TO = 300  # characters: a result that is no longer is shown without being asked for


class CallView:
    """The element of one call.

    Args:
        call: a `calls.ToolCall`.
        decide: called with the call and whether it may be run.
    """

    def __init__(self, call, decide):
        self.call, self._decide = call, decide
        if call.problem is None:
            self.element = self._valid()
        else:
            self.element = make("details", class_="call", data_testid="tool-call")
            self.element.append(
                make("summary", wording.invalid_call(call.problem)), make("div", call.raw, class_="plain")
            )
        self.update()

    def _valid(self):
        call = self.call
        element = make("div", class_="call", data_testid="tool-call", role="group", aria_label=f"Call of {call.name}")
        self._state = make("span", class_="state", data_testid="tool-state")
        head = make("p", class_="head")
        head.append(make("strong", call.name), " ", self._state)
        allow = button("Allow", lambda: self._decide(call, True), data_testid="allow", aria_label=f"Allow {call.name}")
        deny = button(
            "Don’t allow", lambda: self._decide(call, False), data_testid="deny", aria_label=f"Don’t allow {call.name}"
        )
        self._buttons = make("div", class_="buttons")
        self._buttons.append(allow, deny)
        element.append(head, make("div", call.arguments, class_="plain", data_testid="tool-arguments"))
        return element

    def update(self):
        """Show how it stands with the call now."""
        self.element.dataset.state = self.call.state
        if self.call.problem is None:
            set_text(self._state, wording.call_state(self.call.state))
            if self.call.state != "waiting":
                self._buttons.remove()
            elif not self._buttons.isConnected:
                self.element.append(self._buttons)

    def focus(self):
        """Give the keyboard to the first of the two answers."""
        self._buttons.firstElementChild.focus()


def result_view(message, text):
    """A call's result, which can be closed: of a `conversation.Message` and the element that shows its text."""
    name = message.result_of.name if message.result_of is not None else ""
    element = make("details", class_="aside")
    element.open = len(message.text) <= _OPEN_UP_TO
    text.classList.add("plain")
    element.append(make("summary", wording.result(name)), text)
    return element
