"""One message on the page: thinking, text, calls for tools, its state, what a finished answer tells about itself, and what
can be done with it.
"""

import asyncio

import js
from ui import wording
from ui.call_view import CallView, result_view
from ui.characters import showable, well_formed
from ui.dom import button, is_enter, make, set_text
from ui.markdown_text import BlockSplitter
from ui.thinking_view import ThinkingView

_SPEAKERS = {"user": "You", "assistant": "Assistant", "tool": "Tool"}
_STATE_WORDS = {"cancelled": "Stopped", "interrupted": "Interrupted", "error": "Broken off by an error"}
_RESULT_WORDS = {"cancelled": "Not allowed", "interrupted": "Failed", "error": "Failed"}


class MessageView:
    """The element of one message.

    Args:
        message: a `conversation.Message`.
        markdown: a `MarkdownView`.
        wishes: gets what the user wants: edit(message, text), regenerate(message), go_on(message), run_again(message),
            select(message, step), decide(call, allowed); and copy(text), which is awaited.
    """

    def __init__(self, message, markdown, wishes):
        self.message, self._markdown, self._wishes = message, markdown, wishes
        self.element = make("article", class_="message", data_testid="message", data_role=message.role)
        self.element.setAttribute("aria-label", _SPEAKERS[message.role])
        self._text = make("div", class_="text", data_testid="message-text")
        self._footer = make("footer")
        self.element.append(self._text)
        self._thinking = self._told = None
        self._calls = []
        self.element.dataset.state = message.state
        if message.state == "streaming":
            self._begin_streaming()

    def _begin_streaming(self):
        # Screen readers wait for the whole answer instead of reading every piece.
        self.element.setAttribute("aria-busy", "true")
        self._blocks = BlockSplitter()
        self._settled, self._tail = make("div", class_="settled"), make("div", class_="tail")
        self._text.append(self._settled, self._tail)
        self.stream(self.message.reasoning, self.message.text)

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

    def update_calls(self):
        """Show the calls for tools as they are now, below the text."""
        calls, views = self.message.calls, self._calls
        while len(views) > len(calls):
            views.pop().element.remove()
        for place, call in enumerate(calls):
            if place == len(views):
                views.append(CallView(call, self._wishes.decide))
                self.element.append(views[place].element)
            elif views[place].call is not call:
                old, views[place] = views[place], CallView(call, self._wishes.decide)
                old.element.replaceWith(views[place].element)
            else:
                views[place].update()

    def focus_waiting(self):
        """Give the keyboard to a call that waits for the user; returns whether there is one."""
        for view in self._calls:
            if view.call.state == "waiting":
                view.focus()
                return True
        return False

    def _thinking_view(self):
        if self._thinking is None:
            self._thinking = ThinkingView(self.message)
            self._text.before(self._thinking.element)
        return self._thinking

    def update(self):
        """Show the message as it is now, unless it is being written; returns an awaitable that makes an answer pretty, or None.

        Whatever is shown already stays as it is.
        """
        message = self.message
        self.update_calls()
        told = (message.id, message.state, message.branches)
        if message.state == "streaming" or told == self._told:
            return None
        is_new, self._told = self._told is None, told
        prettified = self._finish() if is_new else None
        self._show_footer()
        self.element.dataset.state = message.state
        return prettified

    def _finish(self):
        message = self.message
        if message.role != "assistant":
            set_text(self._text, message.text)
            if message.role == "tool":
                self.element.append(result_view(message, self._text))
            return None
        if message.reasoning:
            self._thinking_view().finish()
        self._text.replaceChildren(self._markdown.render(message.text))
        self.element.removeAttribute("aria-busy")
        for name, value in (message.stats or {}).items():
            if value is not None:
                self.element.setAttribute("data-" + name.replace("_", "-"), _attribute(value))
        return self._markdown.enhance(self._text)

    # ------------------------------------------------------------------------------------------------------ the footer

    def _show_footer(self):
        message, parts = self.message, []
        words = (_RESULT_WORDS if message.role == "tool" else _STATE_WORDS).get(message.state)
        if words:
            parts.append(make("span", words, class_="state"))
        if message.stats:
            parts.append(make("span", wording.summary(message.stats), data_testid="stats"))
        if message.role == "assistant" and message.text:
            parts.append(self._copy_button())
        if message.id is not None:
            parts += self._branch_buttons() + self._other_buttons()
        self._footer.replaceChildren(*parts)
        self.element.append(self._footer)

    def _copy_button(self):
        copy = button("Copy", lambda: asyncio.create_task(self._copy_text(copy)), data_testid="copy")
        return copy

    def _other_buttons(self):
        message, wishes = self.message, self._wishes
        if message.role == "user":
            return [_act("Edit", self._open_editor, data_testid="edit")]
        if message.role == "tool":
            return [_act("Retry", lambda: wishes.run_again(message), data_testid="retry")]
        buttons = [_act("Regenerate", lambda: wishes.regenerate(message), data_testid="regenerate")]
        if message.may_go_on:
            buttons.append(_act("Continue", lambda: wishes.go_on(message), data_testid="continue"))
        return buttons

    def _branch_buttons(self):
        message, wishes = self.message, self._wishes
        count = len(message.branches)
        if count < 2:
            return []
        place = message.branches.index(message.id) + 1
        before = _act("‹", lambda: wishes.select(message, -1), data_testid="branch-prev", aria_label="Previous version")
        behind = _act("›", lambda: wishes.select(message, 1), data_testid="branch-next", aria_label="Next version")
        before.disabled, behind.disabled = place == 1, place == count
        return [before, make("span", wording.branch(place, count), data_testid="branch"), behind]

    def focus_branches(self, step):
        """Give the keyboard to the button that goes on in this direction, or back if there is no further branch."""
        for name in ("branch-next", "branch-prev") if step > 0 else ("branch-prev", "branch-next"):
            found = self._footer.querySelector(f'[data-testid="{name}"]:not(:disabled)')
            if found is not None:
                found.focus()
                return

    async def _copy_text(self, copy):
        if await self._wishes.copy(showable(self.message.text)):
            copy.textContent = "Copied"
            js.setTimeout(lambda: setattr(copy, "textContent", "Copy"), 2000)

    # ------------------------------------------------------------------------------------------------------ the editor

    def _open_editor(self):
        editor = make("textarea", data_testid="edit-text", aria_label="Edit message", rows="1")
        editor.value = showable(self.message.text)
        editor.addEventListener("keydown", lambda event: self._key_in_editor(editor, event))
        save, cancel = button("Send", lambda: self._save(editor)), button("Cancel", self._close_editor)
        self._text.replaceChildren(editor)
        self._footer.replaceChildren(save, cancel)
        editor.focus()

    def _key_in_editor(self, editor, event):
        if is_enter(event):
            event.preventDefault()
            self._save(editor)
        elif event.key == "Escape" and not event.isComposing:
            event.preventDefault()
            self._close_editor()

    def _save(self, editor):
        self._wishes.edit(self.message, well_formed(editor.value))

    def _close_editor(self):
        self._text.replaceChildren(showable(self.message.text))
        self._show_footer()
        self._footer.querySelector('[data-testid="edit"]').focus()


def _act(label, act, **attributes):
    """A button for what is possible only while no answer is being written."""
    element = button(label, act, **attributes)
    element.classList.add("act")
    return element


def _attribute(value):
    return f"{value:.3f}" if isinstance(value, float) else str(value)
