"""The settings: a dialog that the browser closes with Escape, and then gives the keyboard back to the button that opened it.

What is switched counts at once, and what is written when its field or the dialog is left; so there is nothing to save.
"""

import js
from ui import wording
from ui.characters import showable, well_formed
from ui.dom import find, make, set_text, show


class SettingsView:
    """Args:
    app: gets the user's wishes: set_system(text), set_tool(name, on), set_thinking(on).
    """

    def __init__(self, app):
        self._app = app
        self._dialog = find("settings-dialog")
        self._system, self._hint = find("system-prompt"), js.document.getElementById("system-hint")
        self._tools, self._about_tools = js.document.getElementById("tools"), js.document.getElementById("about-tools")
        self._thinking_part, self._thinking = js.document.getElementById("thinking-part"), find("thinking-switch")
        self._session = self._listed = None
        find("settings").addEventListener("click", lambda _: self._open())
        find("settings-close").addEventListener("click", lambda _: self._dialog.close())
        self._system.addEventListener("change", lambda _: self._take_system())
        self._dialog.addEventListener("close", lambda _: self._take_system())
        self._thinking.addEventListener("change", lambda _: app.set_thinking(self._thinking.checked))

    def show(self, session):
        """Make the dialog say what the session says."""
        self._session = session
        if self._dialog.open:
            self._show()

    def _open(self):
        if not self._dialog.open:
            self._system.value = showable(self._session.system)
            self._show()
            self._dialog.showModal()

    def _show(self):
        session, settings = self._session, self._session.settings
        self._system.readOnly = not session.can_set_system
        set_text(self._hint, wording.system_hint(session.can_set_system))
        set_text(self._about_tools, wording.tools(settings.can_call))
        tools = settings.tools if settings.can_call else []
        if tools is not self._listed:
            self._listed = tools
            self._tools.replaceChildren(*[self._tool(tool) for tool in tools])
        show(self._thinking_part, settings.can_think)
        self._thinking.checked = settings.thinks

    def _tool(self, tool):
        name = tool["name"]
        box = make("input", type="checkbox", data_testid="tool-switch", data_tool=name)
        box.checked = self._session.settings.is_on(name)
        box.addEventListener("change", lambda _: self._app.set_tool(name, box.checked))
        words = make("span")
        words.append(make("strong", name), " ", make("span", wording.tool(tool), class_="description"))
        label = make("label", class_="choice")
        label.append(box, words)
        return label

    def _take_system(self):
        if not self._system.readOnly:
            self._app.set_system(well_formed(self._system.value))
