"""Where conversations are kept between visits: one JSON text each, and which of them was written last.

Two pages may write the same conversation. Each reads what is there, joins it with its own tree and writes the result, in
one step of the store; so no message of either is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyruntime.chat.tree import Tree
from pyruntime.chat.tree_io import from_json, to_json


class TextStore(Protocol):
    """Texts by key."""

    async def get(self, key: str) -> str | None:
        """The text of that key, or None.

        Raises:
            DeliveryError: the store cannot be read.
        """

    async def change(self, key: str, make: Callable[[str | None], str]) -> None:
        """Put what `make` makes of the present text (None: there is none) in its place, with nobody writing in between.

        Raises:
            DeliveryError: the store cannot be written.
            Exception: whatever `make` raises; then nothing changes.
        """

    async def latest(self) -> str | None:
        """The key that was written last, or None.

        Raises:
            DeliveryError: the store cannot be read.
        """


class MemoryTexts:
    """A `TextStore` that lasts as long as its process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    async def get(self, key: str) -> str | None:
        return self._texts.get(key)

    async def change(self, key: str, make: Callable[[str | None], str]) -> None:
        made = make(self._texts.get(key))
        self._texts.pop(key, None)  # the last one written stands last
        self._texts[key] = made

    async def latest(self) -> str | None:
        return next(reversed(self._texts), None)


class Shelf:
    """Conversations in a store.

    Args:
        store: keeps their texts.
    """

    def __init__(self, store: TextStore) -> None:
        self._store = store
        self._written: dict[str, str] = {}  # by key: what the store holds, if nobody else writes
        self._foreign: dict[str, Tree] = {}  # by key: what somebody else wrote last, while it is not in the tree given

    async def latest(self) -> str | None:
        """The key of the conversation that was written last, by whichever page; None if there is none.

        Raises:
            DeliveryError: the store cannot be read.
        """
        return await self._store.latest()

    async def read(self, key: str) -> Tree | None:
        """A conversation, or None.

        Raises:
            DeliveryError: the store cannot be read.
            FormatError: what is stored is no conversation.
        """
        text = await self._store.get(key)
        if text is None:
            return None
        tree = from_json(text.encode("utf-8"), key)
        self._written[key] = text
        return tree

    async def write(self, key: str, tree: Tree) -> Tree:
        """Keep a conversation; returns it with the messages that another page has added meanwhile.

        Raises:
            DeliveryError: the store cannot be written.
            FormatError: what is stored is no conversation.
            ParameterError: it holds another message of the same id.
        """
        joined = tree

        def join(stored: str | None) -> str:
            nonlocal joined
            # What is there is mostly what was written last, and part of this tree already.
            if stored is not None and stored != self._written.get(key):
                self._foreign[key] = from_json(stored.encode("utf-8"), key)
            joined = self._with_foreign(key, tree)
            self._written[key] = to_json(joined)
            return self._written[key]

        await self._store.change(key, join)
        return joined

    def _with_foreign(self, key: str, tree: Tree) -> Tree:
        """The tree with what others have written, until it has all of that itself."""
        foreign = self._foreign.get(key)
        if foreign is None:
            return tree
        if foreign.nodes.keys() <= tree.nodes.keys():
            del self._foreign[key]
        return tree.merge(foreign)
