"""From messages to prompt ids: the model's own template, and the boundary between template and typed text."""

from pyruntime.chat.template import ChatTemplate

__all__ = ["ChatTemplate"]
