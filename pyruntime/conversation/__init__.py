"""Conversations with a model: what is asked, answered, branched, stopped and run, and when."""

from pyruntime.conversation.session import Session
from pyruntime.conversation.states import TRANSITIONS, State
from pyruntime.conversation.turn import Options

__all__ = ["TRANSITIONS", "Options", "Session", "State"]
