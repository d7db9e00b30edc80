"""IndexedDB as Python may use it: a database opened for one transaction, and errors in words.

Every operation opens the database, runs one transaction and closes it again (about a millisecond). So no connection
goes stale when another tab upgrades or deletes the database, and none stands in its way. IndexedDB ends a
transaction when no request is pending, therefore all requests of one are made before anything is awaited; a value that
depends on what is stored is made inside the answer to the request for it (`change`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import js
from pyodide.code import run_js
from pyodide.ffi import JsException, create_proxy, to_js

from pyruntime.delivery.store import Space
from pyruntime.errors import DeliveryError, compose

_WHERE = "browser storage"
_ADVICE = {
    "QuotaExceededError": "Delete stored models or free disk space, and reload",
    "SecurityError": "Allow this site to store data, or leave private browsing",
    "InvalidStateError": "Allow this site to store data, or leave private browsing",
    "VersionError": "A newer version of this app was used here: reload to get it",
    "NotReadableError": "The stored copy is damaged: reload to fetch what is missing",
    "NotFoundError": "The stored copy is damaged: reload to fetch what is missing",
}

# IndexedDB answers by events: as promises they can be awaited, and what it throws at once arrives the same way.
# Errors are copied, because Pyodide never wakes for one whose class it does not know (QuotaExceededError has its own).
_indexeddb = run_js(
    """(() => {
        const promise = (begin) => new Promise((resolve, reject) => {
            const refuse = (error) => reject(Object.assign(new Error(error?.message), { name: error?.name ?? "AbortError" }));
            try { begin(resolve, refuse); } catch (error) { refuse(error); }
        });
        return {
            open: (name, version, stores) => promise((resolve, refuse) => {
                if (!globalThis.indexedDB) throw new DOMException("it has none", "InvalidStateError");
                const request = indexedDB.open(name, version);
                request.onupgradeneeded = () => stores
                    .filter((store) => !request.result.objectStoreNames.contains(store))
                    .forEach((store) => request.result.createObjectStore(store));
                request.onsuccess = () => resolve(request.result);
                request.onerror = () => refuse(request.error);
            }),
            completion: (transaction) => promise((resolve, refuse) => {
                transaction.oncomplete = () => resolve();
                transaction.onabort = () => refuse(transaction.error);
            }),
            change: (store, key, make) => {
                const request = store.get(key);
                request.onsuccess = () => {
                    const made = make(request.result);
                    if (made === undefined) store.transaction.abort();
                    else store.put(made, key);
                };
            },
        };
    })()"""
)


class Database:
    """A database of this site.

    Args:
        name: what it is called.
        version: of its layout.
        stores: all its object stores.
    """

    def __init__(self, name: str, version: int, stores: Sequence[str]) -> None:
        self._name, self._version, self._stores = name, version, tuple(stores)

    @asynccontextmanager
    async def transaction(self, mode: str, *names: str) -> AsyncGenerator[SimpleNamespace, None]:
        """The object stores `names` in one transaction, which is complete when the block has ended.

        Raises:
            DeliveryError: when the browser refuses to open the database or to complete the transaction.
        """
        try:
            database = await _indexeddb.open(self._name, self._version, to_js(self._stores))
        except JsException as error:
            raise await refusal("opening", error) from error
        try:
            transaction = database.transaction(to_js(names), mode)
            yield SimpleNamespace(**{name: transaction.objectStore(name) for name in names})
            await _indexeddb.completion(transaction)
        except JsException as error:
            raise await refusal("reading" if mode == "readonly" else "writing", error) from error
        finally:
            database.close()

    async def change(self, name: str, key: str, make: Callable[[Any], Any], *, also: Callable[[Any], None]) -> None:
        """Replace a value by what `make` makes of it, so that nobody can write in between.

        Args:
            name: the object store.
            key: the value's key.
            make: called with the stored value or None; returns the new one. What it raises is raised here, and nothing
                is written.
            also: called with the database's stores, to write what belongs to it in the same transaction.

        Raises:
            DeliveryError: as `transaction`.
        """
        failures: list[Exception] = []

        def made(value: Any) -> Any:
            try:
                return make(value)
            except Exception as error:  # noqa: BLE001 - raised again, when the transaction has ended
                failures.append(error)
                return None

        callback = create_proxy(made)
        try:
            async with self.transaction("readwrite", *self._stores) as stores:
                _indexeddb.change(getattr(stores, name), key, callback)
                also(stores)
        except DeliveryError:
            if failures:
                raise failures[0] from None
            raise
        finally:
            callback.destroy()


async def free_space() -> Space | None:
    """What the browser says about its room; None if it does not say."""
    storage = getattr(js.navigator, "storage", None)
    if storage is None:  # the page is not a secure context
        return None
    estimate = await storage.estimate()
    return Space(int(estimate.usage), int(estimate.quota))


async def refusal(doing: str, error: JsException) -> DeliveryError:
    """The error to raise for what IndexedDB reported while `doing` something."""
    message = str(error.message)
    if error.name == "QuotaExceededError":
        # Browsers report more quota than there is, so that sites cannot measure the disk: only `used` is worth telling.
        space = await free_space()
        message = "no more room" if space is None else f"no more room beside the {space.used / 1e6:,.1f} MB in use"
    advice = _ADVICE.get(error.name, "Reload; if it happens again, delete this site's data")
    return DeliveryError(compose(_WHERE, f"{doing} failed with {error.name}: {message}", advice=advice))
