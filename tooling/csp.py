"""The Content-Security-Policy of the page, in the one place from which the server's header and the page's `<meta>` come.

As strict as PyScript allows: it makes functions from text ('unsafe-eval'), compiles WebAssembly, and starts its worker
from a blob. Neither scripts nor styles may be inline, but for one script, by its hash: that of the sandbox's frame
(`web/sandbox.mjs`), which inherits this policy. Nothing may be loaded into a frame. Formulas are laid out through the DOM,
which needs no permission.
"""

from __future__ import annotations

_DIRECTIVES = {
    "default-src": "'none'",
    "script-src": "'self' 'unsafe-eval' 'wasm-unsafe-eval' 'sha256-2xp6waCudQ9ja5ILOjIf/6TYHg0oQjAqlNrIp+XQA/8='",
    "worker-src": "'self' blob:",
    "frame-src": "'none'",
    "connect-src": "'self'",
    "img-src": "'self' data:",
    "style-src": "'self'",
    "font-src": "'self'",
    "manifest-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
_HEADER_ONLY = {"frame-ancestors"}  # browsers ignore it in a <meta>, and say so in the console


def header() -> str:
    """The policy as the server sends it."""
    return "; ".join(f"{name} {value}" for name, value in _DIRECTIVES.items())


def meta() -> str:
    """The policy for `<meta http-equiv="Content-Security-Policy">`, for hosts that send no headers."""
    return "; ".join(f"{name} {value}" for name, value in _DIRECTIVES.items() if name not in _HEADER_ONLY)
