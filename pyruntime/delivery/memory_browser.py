"""Giving the browser's memory back at once.

A large ArrayBuffer is a small object to the garbage collector, which is in no hurry: while a model was fetched and read,
what had been used lay around by the hundred megabytes. Moving a buffer elsewhere empties it; here it is moved into a
message to nobody. (`transfer(0)` empties it too, but what once went through fetch, a Blob or WebCrypto stays in memory.)
"""

from __future__ import annotations

from typing import Any

from pyodide.code import run_js

_drop = run_js(
    """(() => {
        const { port1, port2 } = new MessageChannel();
        port2.close();
        return (buffer) => port1.postMessage(buffer, [buffer]);
    })()"""
)


def release(buffer: Any) -> None:
    """Give the memory of a JavaScript ArrayBuffer back; it cannot be used any more."""
    _drop(buffer)
