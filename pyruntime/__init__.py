"""TinyPyLM's runtime: a small language model, from the model file to the words of an answer, in Python."""

__version__ = "0.1.0"
