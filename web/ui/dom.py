"""Small helpers over the browser's DOM, so that the views read as what they show.

A rule for all modules that touch the browser: MicroPython cannot catch what a JavaScript function throws, only what a
promise is rejected with. So a function that throws on bad input is called through `attempt`, or asked beforehand.
"""

import js
from ui.characters import showable

_IME_KEY = 229  # what browsers report for a key that an input method took; Safari has ended composing by then


def find(test_id):
    """The page's element with this data-testid."""
    return js.document.querySelector(f'[data-testid="{test_id}"]')


def make(tag, text="", **attributes):
    """A new element. Attribute names are written with _ for -, and without the final _ where Python needs one."""
    element = js.document.createElement(tag)
    for name, value in attributes.items():
        element.setAttribute(name.rstrip("_").replace("_", "-"), value)
    if text:
        element.textContent = showable(text)
    return element


def show(element, visible):
    """Show or hide an element; hidden ones are also hidden from screen readers and the keyboard."""
    if element.hidden == bool(visible):
        element.hidden = not visible


def set_text(element, text):
    """Set the text, unless it is there already: live regions announce every change."""
    text = showable(text)
    if element.textContent != text:
        element.textContent = text


def button(label, act, **attributes):
    """A quiet button that calls `act`."""
    element = make("button", label, type="button", class_="quiet", **attributes)
    element.addEventListener("click", lambda _: act())
    return element


def is_enter(event):
    """Whether a key is an Enter that means "done": not one that begins a line or belongs to an input method."""
    return event.key == "Enter" and not (event.shiftKey or event.isComposing or event.keyCode == _IME_KEY)


async def attempt(function, *arguments):
    """The result of a JavaScript function that may throw; what it throws is raised here."""
    return await js.Promise.resolve().then(function.bind(None, *arguments))
