"""Markdown of a model's answer as DOM nodes. What a model writes is untrusted: nothing it writes becomes live HTML.

Two walls stand in a row. The Markdown library is told to show raw HTML and images as the text they are; whatever HTML
it makes is then cut down to a fixed list of tags and attributes by the sanitiser, and links lead only to http, https
and mail addresses, in a tab of their own. The page's Content-Security-Policy holds behind both.

Formulas show their source until `enhance` has set them, and code is plain until it has coloured it: both libraries
are fetched from the page's own origin when an answer first needs them.
"""

import js
from ui.characters import showable
from ui.dom import attempt, make
from ui.markdown_text import MATH_MARK, take_math

_TAGS = ("a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol")
_TAGS += ("p", "pre", "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul")
_ATTRIBUTES = ("align", "class", "href", "start", "title")
_SAFE_ADDRESS = r"^(?:https?|mailto):"


class MarkdownView:
    """Renders Markdown.

    Args:
        marked: the Markdown library's module.
        purifier: the sanitiser.
        import_module: awaitable import of a JavaScript module by its address relative to the page.
    """

    def __init__(self, marked, purifier, import_module):
        self._marked = marked.Marked.new()
        self._marked.use(js.JSON.parse('{"gfm": true, "silent": true}'))
        renderer = js.Object.new()
        renderer.html = _html
        renderer.image = lambda token: _escape(token.raw)
        options = js.Object.new()
        options.renderer = renderer
        self._marked.use(options)
        self._sanitize = purifier.sanitize
        self._rules = _rules()
        self._import = import_module

    def render(self, source):
        """A DocumentFragment of `source`; formulas are spans that hold their own source."""
        text, formulas = take_math(showable(source))
        fragment = self._sanitize(self._marked.parse(text), self._rules)
        for link in js.Array["from"](fragment.querySelectorAll("a[href]")):
            link.target = "_blank"
            link.rel = "noopener noreferrer"
        if formulas:
            _place_formulas(fragment, formulas)
        return fragment

    async def enhance(self, element):
        """Colour the code and set the formulas inside `element`; both stay as they are if their library fails."""
        code = js.Array["from"](element.querySelectorAll('pre > code[class^="language-"]'))
        formulas = js.Array["from"](element.querySelectorAll("span.formula"))
        if code:
            await self._colour(code)
        if formulas:
            await self._set(formulas)

    async def _colour(self, blocks):
        highlighter = (await self._import("./lib/highlight.min.js")).default
        for block in blocks:
            language = block.className.replace("language-", "", 1)
            if highlighter.getLanguage(language):
                highlighter.highlightElement(block)

    async def _set(self, formulas):
        katex = (await self._import("./lib/katex.mjs")).default
        if js.document.querySelector("link[data-katex]") is None:
            js.document.head.append(make("link", rel="stylesheet", href="./lib/katex.min.css", data_katex=""))
        options = js.JSON.parse('{"throwOnError": true, "trust": false, "maxSize": 20, "maxExpand": 500}')
        for formula in formulas:
            options.displayMode = formula.dataset.display == "true"
            try:
                await attempt(katex.render, formula.dataset.tex, formula, options)
            except Exception:  # noqa: BLE001 - a JavaScript exception: it is no formula after all
                formula.textContent = formula.dataset.source


def _escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _html(token):
    """Raw HTML as the text it is; line breaks, which models write into tables, are the exception."""
    raw = token.raw.strip("\n")
    if raw.lower() in ("<br>", "<br/>", "<br />"):
        return "<br>"
    if not token.block:
        return _escape(raw)
    return f"<pre><code>{_escape(raw)}</code></pre>" if "\n" in raw else f"<p>{_escape(raw)}</p>"


def _rules():
    rules = js.Object.new()
    rules.ALLOWED_TAGS = js.Array.of(*_TAGS)
    rules.ALLOWED_ATTR = js.Array.of(*_ATTRIBUTES)
    rules.ADD_URI_SAFE_ATTR = js.Array.of("align", "start")  # not addresses, so not held to the next rule
    rules.ALLOWED_URI_REGEXP = js.RegExp.new(_SAFE_ADDRESS, "i")
    rules.ALLOW_DATA_ATTR = False
    rules.ALLOW_ARIA_ATTR = False
    rules.RETURN_DOM_FRAGMENT = True
    return rules


def _place_formulas(fragment, formulas):
    """Put a span with the formula's source where each mark stands, also inside code that the scan took for text."""
    walker = js.document.createTreeWalker(fragment, 4)  # 4: text nodes
    marked = []
    while walker.nextNode():
        if MATH_MARK in walker.currentNode.data:
            marked.append(walker.currentNode)
    for node in marked:
        pieces = node.data.split(MATH_MARK)
        inside_code = node.parentElement is not None and node.parentElement.closest("code") is not None
        parts = []
        for index, piece in enumerate(pieces):
            if index % 2 == 0:
                parts.append(js.document.createTextNode(piece))
                continue
            source, tex, display = formulas[int(piece)]
            if inside_code:
                parts.append(js.document.createTextNode(source))
            else:
                span = make("span", source, class_="formula", data_tex=tex, data_source=source)
                span.dataset.display = "true" if display else "false"
                parts.append(span)
        node.replaceWith(*parts)
