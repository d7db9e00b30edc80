"""The app as a test uses it: its parts by their public names, and what its worker posted."""

from __future__ import annotations

import json

from playwright.sync_api import expect

READY_WITHIN_MS = 60_000

_RECORD_POSTS = """() => {
    window.posted = [];
    const worker = document.querySelector('script[name=engine]').xworker;
    worker.addEventListener('message', ({ data }) => {
        if (typeof data !== 'string' || !data.startsWith('[{')) return;
        posted.push(...JSON.parse(data).map((message) => ({ ...message, arrived: performance.now() })));
    });
    // At the window, last of all: the page has sent its word to the worker by then.
    addEventListener('click', ({ target }) => {
        if (target.dataset.testid === 'stop') window.stopSent = performance.timeOrigin + performance.now();
    });
}"""

# WCAG's contrast of every visible text with its ground: the text's beginning → ratio.
_CONTRASTS = """() => {
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const rgb = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data];
    };
    const light = (colour) => {
        const [r, g, b] = rgb(colour).map((x) => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const colour = getComputedStyle(e).backgroundColor;
            if (rgb(colour)[3] === 255) return colour;
        }
        return getComputedStyle(document.body).backgroundColor;
    };
    const ratios = {};
    for (const element of document.querySelectorAll('h1, h2, h3, p, span, a, code, kbd, label, button:not(:disabled), .text, strong, summary, .plain')) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!own || !element.checkVisibility()) continue;
        const [a, b] = [light(getComputedStyle(element).color), light(ground(element))].sort((x, y) => y - x);
        ratios[element.textContent.trim().slice(0, 40)] = (a + 0.05) / (b + 0.05);
    }
    return ratios;
}"""

# The texts of the stored conversations, newest last.
_KEPT = """() => new Promise((resolve, reject) => {
    const request = indexedDB.open("tinypylm-conversations");
    request.onerror = reject;
    request.onsuccess = () => {
        const all = request.result.transaction("conversations").objectStore("conversations").getAll();
        all.onsuccess = () => resolve(all.result.join("\\n"), request.result.close());
    };
})"""


def wait_until_kept(chat, words):
    """Until the device has these words in a stored conversation."""
    look = (
        "for (let looks = 0; !(await kept()).includes(words); looks++) {"
        "  if (looks === 600) throw new Error('not kept: ' + words);"
        "  await new Promise((resolve) => setTimeout(resolve, 50));"
        "}"
    )
    chat.page.evaluate(f"async (words) => {{ const kept = {_KEPT}; {look} }}", words)


def texts(chat):
    """The texts of the messages shown."""
    return [text.inner_text() for text in chat.page.get_by_test_id("message-text").all()]


def edit(chat, place, text):
    """Put a question in other words, and wait for nothing."""
    message = chat.messages("user").nth(place)
    message.get_by_test_id("edit").click()
    message.get_by_test_id("edit-text").fill(text)
    message.get_by_test_id("edit-text").press("Enter")


class ChatPage:
    """Wraps a Playwright page."""

    def __init__(self, page):
        self.page = page
        for part in ("composer", "send", "stop", "new-chat", "notice", "status", "progress", "settings"):
            setattr(self, part.replace("-", "_"), page.get_by_test_id(part))

    def open(self, url, *, until="ready"):
        """Go to the page and wait for a state (None: do not wait)."""
        self.page.goto(url)
        if until is not None:
            self.wait_for(until)
        return self

    @property
    def state(self):
        return self.page.evaluate("document.documentElement.dataset.appState")

    def wait_for(self, state):
        self.page.wait_for_selector(f'html[data-app-state="{state}"]', timeout=READY_WITHIN_MS)

    def messages(self, role=None):
        selector = '[data-testid="message"]' + (f'[data-role="{role}"]' if role else "")
        return self.page.locator(selector)

    @property
    def answer(self):
        """The last answer."""
        return self.messages("assistant").last

    def answer_text(self):
        return self.answer.get_by_test_id("message-text")

    def say(self, text):
        """Send a message, and wait for nothing."""
        self.composer.fill(text)
        self.composer.press("Enter")
        return self

    @property
    def thinking(self):
        """What the last answer shows of its thinking."""
        return self.answer.get_by_test_id("thinking")

    @property
    def calls(self):
        """The cards of all calls for tools."""
        return self.page.get_by_test_id("tool-call")

    @property
    def results(self):
        """The texts of all results of calls."""
        return self.messages("tool").get_by_test_id("message-text")

    def set_tools(self, *names):
        """Offer these tools to the model, and no others."""
        self.settings.click()
        for switch in self.page.get_by_test_id("tool-switch").all():
            switch.set_checked(switch.get_attribute("data-tool") in names)
        self.page.get_by_test_id("settings-close").click()
        return self

    def ask(self, text):
        """Send a message and wait for its answer's end; returns the answer's text."""
        self.say(text)
        self.wait_for("ready")
        return self.answer_text().inner_text()

    def start_anew(self):
        """An empty conversation, no notice, an empty composer, an idle engine."""
        if self.notice.is_visible():
            self.notice.get_by_role("button", name="Dismiss").click()
        self.new_chat.click()
        self.composer.fill("")
        self.wait_for("ready")
        expect(self.messages()).to_have_count(0)
        return self

    def record_posts(self):
        """From now on, keep what the worker posts."""
        self.page.evaluate(_RECORD_POSTS)

    def posted(self, kind=None):
        """The messages the worker has posted, each with the time at which it arrived."""
        return [message for message in self.page.evaluate("window.posted") if kind in (None, message["type"])]

    def receive(self, message):
        """Let the page hear a message as if the worker had just posted it."""
        self.page.evaluate(
            "message => document.querySelector('script[name=engine]').xworker.dispatchEvent(new MessageEvent('message', "
            "{ data: JSON.stringify([{ ...message, at: performance.timeOrigin + performance.now() }]) }))",
            message,
        )

    def deltas_after_stop(self):
        """How many pieces the worker posted after Stop had been sent to it."""
        sent = self.page.evaluate("window.stopSent")
        return sum(message["at"] > sent for message in self.posted("Delta"))

    def contrasts(self):
        """The contrast of each visible text with what is behind it: the text's beginning → ratio."""
        return self.page.evaluate(_CONTRASTS)

    def marks(self):
        """The page's performance marks: name → milliseconds; a name that was set more than once fails."""
        found = json.loads(self.page.evaluate("JSON.stringify(performance.getEntriesByType('mark'))"))
        found = [mark for mark in found if mark["name"].startswith("tinypylm:")]
        names = [mark["name"] for mark in found]
        assert len(names) == len(set(names)), names
        return {mark["name"].removeprefix("tinypylm:"): mark["startTime"] for mark in found}
