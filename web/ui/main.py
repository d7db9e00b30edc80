"""The page's Python starts here."""

import asyncio

import js
from pyscript import js_import, js_modules
from ui.app import App
from ui.markdown_view import MarkdownView


async def import_module(address):
    """A JavaScript module of this site, by its address relative to the page."""
    return (await js_import(js.URL.new(address, js.document.baseURI).href))[0]


markdown = MarkdownView(js_modules.marked, js_modules.dompurify.default, import_module)
asyncio.create_task(App(markdown, import_module).run(js_modules.pyscript_core.whenDefined("py")))
