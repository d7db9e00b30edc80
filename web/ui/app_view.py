"""The page's fixed parts: status, progress, notice, messages and composer. Shows a `Session`; decides nothing.

Enter sends, Shift+Enter begins a line, Escape stops. While an input method composes, Enter is its own.
"""

import js
from ui import wording
from ui.characters import showable, well_formed
from ui.dom import button, find, is_enter, make, set_text, show
from ui.settings_view import SettingsView

_NEAR = 48  # pixels
_ACTIONS = {"retry": "Try again", "reload": "Reload the page"}


class AppView:
    """Args:
    app: gets the user's wishes: send(text), stop(), new_chat(), act(action), and those of `SettingsView`.
    """

    def __init__(self, app):
        self._app = app
        self._root = js.document.documentElement
        self._words = js.document.getElementById("status-words")
        self._detail = js.document.getElementById("status-detail")
        self._progress, self._notice = find("progress"), find("notice")
        self._model = js.document.getElementById("model")
        self._messages, self._scroller = js.document.getElementById("messages"), js.document.getElementById("scroller")
        self._composer, self._send, self._stop = find("composer"), find("send"), find("stop")
        self._new_chat = find("new-chat")
        self._placed, self._left_out = [], make("p", class_="left-out", data_testid="left-out")
        self._state, self._shown_notice = "", (None, True)
        self._was_at_end = True  # when the conversation was last scrolled
        self._settings = SettingsView(app)
        self._listen()

    def _listen(self):
        self._send.addEventListener("click", lambda _: self._submit())
        self._stop.addEventListener("click", lambda _: self._halt())
        self._new_chat.addEventListener("click", lambda _: self._begin_anew())
        self._composer.addEventListener("keydown", self._key_in_composer)
        self._composer.addEventListener("input", lambda _: self._enable())
        js.document.addEventListener("keydown", self._key)
        self._scroller.addEventListener("scroll", lambda _: self._look())
        self._resizes = js.ResizeObserver.new(lambda *_: self._stay_at_end())
        self._resizes.observe(self._scroller)

    def _look(self):
        self._was_at_end = self._is_at_end()

    def _stay_at_end(self):
        # A phone's keyboard and a draft of many lines leave less room, without a word to the scroller.
        if self._was_at_end:
            self.go_to_end()

    def _is_at_end(self):
        scroller = self._scroller
        return scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < _NEAR

    def _key_in_composer(self, event):
        if is_enter(event):
            event.preventDefault()
            self._submit()

    def _key(self, event):
        closes = js.document.querySelector("dialog[open]") is not None
        if event.key == "Escape" and not event.isComposing and not closes and self._state == "busy":
            event.preventDefault()
            self._halt()

    def _submit(self):
        if self._app.send(well_formed(self._composer.value)):
            self._composer.value = ""
            self._enable()
            self.go_to_end()
        self._composer.focus()

    def _halt(self):
        self._app.stop()
        self._composer.focus()

    def _begin_anew(self):
        self._app.new_chat()
        self._composer.focus()

    # --------------------------------------------------------------------------------------------------------- showing

    def show(self, session):
        """Make the page say what the session says."""
        self.following_end(lambda: self._show(session))

    def _show(self, session):
        self._state = session.state
        self._root.setAttribute("data-app-state", session.state)
        self._root.setAttribute("data-conversation", session.conversation.key)  # `early.mjs` keeps it over a reload
        if session.settings.text != self._root.getAttribute("data-settings"):
            self._root.setAttribute("data-settings", session.settings.text)  # and this for all visits
        set_text(self._words, session.status)
        set_text(self._detail, f": {session.detail}" if session.detail else "")
        set_text(self._model, session.model)
        self._show_progress(session)
        self._show_notice(session.notice, session.state != "error")
        show(self._send, session.state != "busy")
        show(self._stop, session.state == "busy")
        self._settings.show(session)
        self._take_draft(session.take_draft())
        self._enable()

    def _show_progress(self, session):
        show(self._progress, session.state in ("starting", "fetching", "loading") or session.fraction is not None)
        if session.fraction is None:
            self._progress.removeAttribute("value")
        else:
            self._progress.value = session.fraction

    def _show_notice(self, notice, closable):
        if (notice, closable) == self._shown_notice:
            return
        self._shown_notice = (notice, closable)
        show(self._notice, notice is not None)
        if notice is None:
            self._notice.replaceChildren()
            return
        buttons = make("span", class_="buttons")
        if notice.action:
            buttons.append(button(_ACTIONS[notice.action], lambda: self._app.act(notice.action)))
        if closable:
            buttons.append(button("Dismiss", lambda: self._app.act("dismiss")))
        text = make("p", notice.text)
        if notice.error:
            text.prepend(make("strong", notice.error), " ")
        self._notice.replaceChildren(text, buttons)

    def _take_draft(self, draft):
        if draft:
            newer = self._composer.value
            self._composer.value = showable(f"{draft}\n{newer}" if newer.strip() else draft)

    def _enable(self):
        self._send.disabled = self._state != "ready" or not self._composer.value.strip()

    # -------------------------------------------------------------------------------------------------------- messages

    def place(self, elements, first):
        """Show these messages; the first `first` of them stand there already."""
        for element in self._placed[first:]:
            element.remove()
        for element in elements[first:]:
            self._messages.append(element)
        self._placed = elements

    def show_left_out(self, count):
        """Say above the first message that the model reads that it does not read the `count` before it."""
        if 0 < count < len(self._placed):
            set_text(self._left_out, wording.left_out(count))
            if not self._placed[count].isSameNode(self._left_out.nextElementSibling):
                self._placed[count].before(self._left_out)
        else:
            self._left_out.remove()

    def write_next(self):
        """Go to where the next message is written."""
        self.go_to_end()
        self._composer.focus()

    def focus_composer(self):
        """Give the keyboard to the composer."""
        self._composer.focus()

    def go_to_end(self):
        """Show the end of the conversation."""
        self._scroller.scrollTop = self._scroller.scrollHeight

    def following_end(self, change):
        """Make a change and stay at the end of the conversation if the user was there."""
        at_end = self._is_at_end()
        change()
        if at_end:
            self.go_to_end()
