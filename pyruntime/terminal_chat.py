"""A conversation in a terminal: what is typed becomes requests of a `Session`, and its events become lines.

A line that begins with a slash is a command, of which `/help` tells; `//` begins a message with a slash. Ctrl-C stops an
answer, of which stays what came; a question without a word of an answer is taken back.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from pyruntime.chat.tree import Call, Node, Tree
from pyruntime.chat.tree_io import from_json, to_json
from pyruntime.conversation import Session
from pyruntime.conversation.events import ApprovalNeeded, PromptFitted, SessionEvent, ToolRoundsExhausted, ToolStarted
from pyruntime.errors import ParameterError, TinyPyLMError
from pyruntime.events import CallInvalid, Delta, Finished

HELP = """\
/edit TEXT    put the last question in other words
/retry        answer the last question again
/continue     go on with the last answer where it ends
/undo         take the last question and its answer back
/system TEXT  another system prompt; without TEXT, none
/save FILE    keep the conversation, all its branches, in a .json file
/load FILE    go on with a conversation that was kept
/help         these lines
//TEXT        say TEXT with one slash before it
An empty line or Ctrl-D ends the talk; Ctrl-C stops an answer."""

Request = AsyncGenerator[SessionEvent, None]


class TerminalChat:
    """Args:
    session: the conversation.
    stats: whether to print tokens and speed after each answer.
    """

    def __init__(self, session: Session, *, stats: bool = False) -> None:
        self._session, self._stats = session, stats
        self._commands: dict[str, Callable[[str], None]] = {
            "edit": self._edit,
            "retry": self._retry,
            "continue": self._continue,
            "undo": self._undo,
            "system": self._system,
            "save": self._save,
            "load": self._load,
            "help": lambda _: print(HELP),
        }

    def talk(self) -> None:
        """Answer line by line until there are no more; errors are told, and the talk goes on."""
        while (line := _ask("> ")) is not None:
            try:
                self.take(line)
            except TinyPyLMError as error:
                _tell(f"{type(error).__name__}: {error}")
            except OSError as error:
                _tell(f"{error.filename}: {error.strerror}")

    def take(self, line: str) -> None:
        """Do what a line says: a command, or a message.

        Raises:
            ParameterError: there is no such command, or it cannot be done now.
            TinyPyLMError: whatever the request fails with.
            OSError: a file cannot be read or written.
        """
        if not line.startswith("/"):
            self.answer(self._session.send(line))
        elif line.startswith("//"):
            self.answer(self._session.send(line[1:]))
        else:
            name, _, text = line[1:].partition(" ")
            if name not in self._commands:
                raise ParameterError("command", f"/{name}", ", ".join(f"/{one}" for one in self._commands))
            self._commands[name](text.strip())

    def answer(self, request: Request) -> None:
        """Print a request's answer as it comes; Ctrl-C stops it and keeps what is there."""
        before = self._session.tree
        try:
            asyncio.run(self._print(request))
        except KeyboardInterrupt:
            print(" [stopped]")
        finally:
            leaf = self._session.tree.leaf
            if leaf is not None and leaf.role == "user":
                self._session.change(before)

    async def _print(self, request: Request) -> None:
        async with aclosing(request) as events:
            async for event in events:
                self._show(event)

    def _show(self, event: SessionEvent) -> None:
        if isinstance(event, Delta):
            print(event.text, end="", flush=True)
        elif isinstance(event, Finished):
            print()
            if self._stats:
                _tell(_figures(event))
        elif isinstance(event, PromptFitted) and event.left_out:
            n = len(event.left_out)
            what = "1 earlier message is" if n == 1 else f"{n} earlier messages are"
            _tell(f"[{what} left out of what the model reads: the context has no room for more]")
        elif isinstance(event, ApprovalNeeded):
            self._decide(event.call)
        elif isinstance(event, ToolStarted):
            _tell(f"[{event.call.name} {event.call.arguments}]")
        elif isinstance(event, CallInvalid):
            _tell(f"[invalid tool call: {event.call.problem}]")
        elif isinstance(event, ToolRoundsExhausted):
            _tell(f"[no more calls: the model asked for tools {event.rounds} times]")

    def _decide(self, call: Call) -> None:
        """Ask whether a call may be run; only yes means yes."""
        # While asyncio runs, Ctrl-C would wait for the end of the line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            said = _ask(f"May {call.name} be run with {call.arguments}? [y/N] ")
        finally:
            signal.signal(signal.SIGINT, before)
        if said is not None and said.strip().lower() in ("y", "yes"):
            self._session.approve(call.id)
        else:
            self._session.deny(call.id)

    # -------------------------------------------------------------------------------------------------------- commands

    def _edit(self, text: str) -> None:
        if not text:
            raise ParameterError("/edit", text, "the question in other words, behind the command")
        self.answer(self._session.edit(self._last("user").id, text))

    def _retry(self, _: str) -> None:
        path, asked = self._session.tree.path, self._last("user")
        answers = [node for node in path[path.index(asked) :] if node.role == "assistant"]
        # After tools were used there are several: the first is the one that all others follow from.
        self.answer(self._session.regenerate((answers or [self._last("assistant")])[0].id))

    def _continue(self, _: str) -> None:
        self.answer(self._session.continue_answer(self._last("assistant").id))

    def _undo(self, _: str) -> None:
        tree, asked = self._session.tree, self._last("user")
        if asked.parent is None:  # nothing is shown then, and the branch stays
            below: dict[str | None, str] = {
                parent: child for parent, child in tree.chosen.items() if parent is not None
            }
            self._change(replace(tree, chosen=MappingProxyType(below)))
        else:
            self._change(tree.before(asked.id))

    def _system(self, text: str) -> None:
        self._session.change(self._session.tree.with_system(text or None))

    def _save(self, name: str) -> None:
        _conversation_file(name).write_text(to_json(self._session.tree), encoding="utf-8")

    def _load(self, name: str) -> None:
        self._change(from_json(_conversation_file(name).read_bytes(), name))

    def _change(self, tree: Tree) -> None:
        self._session.change(tree)
        shown = tree.path
        _tell(f"[{len(shown)} messages]" if shown else "[an empty conversation]")

    def _last(self, role: str) -> Node:
        found = next((node for node in reversed(self._session.tree.path) if node.role == role), None)
        if found is None:
            wanted = "a question" if role == "user" else "an answer"
            raise ParameterError(
                "conversation", f"without {wanted}", f"one with {wanted}", advice="Say something first"
            )
        return found


def _conversation_file(name: str) -> Path:
    """The path of a conversation's file: no other kind of file is overwritten by a slip."""
    path = Path(name).expanduser()
    if path.suffix != ".json":
        raise ParameterError("file", name, "a name that ends in .json")
    return path


def _ask(prompt: str) -> str | None:
    """A line that was typed; None at the end of the input, and for an empty one."""
    try:
        text = input(prompt)
    except EOFError:
        print()
        return None
    return text if text.strip() else None


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _figures(event: Finished) -> str:
    usage, timings = event.usage, event.timings
    parts = [f"{usage.prompt_tokens} prompt tokens ({usage.cached_tokens} cached)", f"{usage.new_tokens} new"]
    for name, value, unit in (
        ("first text after", timings.ttft_ms, "ms"),
        ("prefill", timings.prefill_tps, "tok/s"),
        ("decode", timings.decode_tps, "tok/s"),
    ):
        if value is not None:
            parts.append(f"{name} {value:.1f} {unit}")
    return f"[{event.reason}: {', '.join(parts)}]"
