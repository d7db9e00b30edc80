"""The `Locks` of a browser: Web Locks, which belong to the site and end with their tab."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from pyodide.code import run_js
from pyodide.ffi import to_js

from pyruntime.delivery.locks import Locks, Release

# A lock is held for as long as the promise that its callback returns is open. (Python has None for JavaScript's undefined,
# and something else for its null.)
_web = run_js(
    """(() => {
        const locks = globalThis.navigator?.locks;
        const hold = (name, options) => new Promise((resolve, reject) => {
            const held = (lock) => lock ? new Promise((release) => resolve(() => release())) : resolve();
            locks.request(name, options, held).catch(reject);
        });
        return {
            isThere: Boolean(locks),
            abort: () => new AbortController(),
            holdAtOnce: (name) => hold(name, { ifAvailable: true }),
            hold: (name, signal) => hold(name, { signal }),
            held: async () => (await locks.query()).held.map((lock) => lock.name),
            anyFree: (names, signal) =>
                Promise.any(names.map((name) => locks.request(name, { mode: "shared", signal }, () => {}))),
        };
    })()"""
)


class WebLocks:
    """Implements `Locks`, where the methods are described."""

    async def hold(self, name: str, on_wait: Callable[[], None] = lambda: None) -> Release:
        release = await _web.holdAtOnce(name)
        if release is None:
            on_wait()
            abort = _web.abort()
            try:
                release = await _web.hold(name, abort.signal)
            except asyncio.CancelledError:
                abort.abort()
                raise
        held: Release = release
        return held

    async def held(self) -> list[str]:
        return list(await _web.held())

    async def any_free(self, names: Sequence[str]) -> None:
        abort = _web.abort()
        try:
            await _web.anyFree(to_js(list(names)), abort.signal)
        finally:
            abort.abort()


def browser_locks() -> Locks | None:
    """The site's locks; None where the browser has none, as on pages that are no secure context."""
    return WebLocks() if _web.isThere else None
