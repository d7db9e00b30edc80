"""What a person has set: which tools the model is offered, and whether it is to think. Pure.

Both are the device's, for all conversations, and are kept as one text (`text`). The system prompt is no part of this: it
belongs to the conversation.
"""

import json


class Settings:
    """See the module.

    Args:
        text: as `text` was at an earlier visit; any other text counts as none.

    Attributes:
        tools: those there are, dicts of name, description and needs_approval.
        can_call: whether the model can ask for tools; None while there is no model.
        can_think: whether the model can be told to think or not.
    """

    def __init__(self, text=""):
        self.tools, self.can_call, self.can_think = [], None, False
        self._thinks = False
        kept = _parsed(text)
        names, thinking = kept.get("tools"), kept.get("thinking")
        self._on = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
        self._thinking = thinking if isinstance(thinking, bool) else None

    @property
    def text(self):
        """What to keep for a later visit."""
        return json.dumps({"tools": self._on, "thinking": self._thinking})

    @property
    def offered(self):
        """Names of the tools that the model is offered."""
        return [tool["name"] for tool in self.tools if self.can_call and tool["name"] in self._on]

    @property
    def thinking(self):
        """What the model is told about thinking; None for nothing."""
        return self._thinking if self.can_think else None

    @property
    def thinks(self):
        """Whether the model thinks as things are."""
        return self._thinks if self._thinking is None else self._thinking

    def is_on(self, name):
        """Whether a tool is offered to models that can ask for one."""
        return name in self._on

    def learn(self, abilities):
        """Take in what the worker tells of tools and model (`protocol.Abilities`)."""
        self.tools, self.can_call = abilities.tools, abilities.can_call
        self.can_think, self._thinks = abilities.thinks is not None, bool(abilities.thinks)

    def set_tool(self, name, on):
        """Offer a tool, or do not."""
        self._on = [other for other in self._on if other != name]
        if on:
            self._on.append(name)

    def set_thinking(self, on):
        """Let the model think, or do not."""
        self._thinking = on


def _parsed(text):
    try:
        kept = json.loads(text)
    except ValueError:
        return {}
    return kept if isinstance(kept, dict) else {}
