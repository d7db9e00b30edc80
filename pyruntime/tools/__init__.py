"""Tools that a model may ask for: what they are called, what they take, who runs them."""

from pyruntime.tools.registry import Tool, ToolRegistry

__all__ = ["Tool", "ToolRegistry"]
