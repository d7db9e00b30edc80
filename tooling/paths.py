"""Where things are: the repository, the virtual environment, the built site, the cache."""

from __future__ import annotations

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
DIST = ROOT / "dist"


def cache_dir() -> pathlib.Path:
    """The folder of downloads, shared by all clones: `$XDG_CACHE_HOME/tinypylm`, by default `~/.cache/tinypylm`.

    As the XDG specification asks, a relative XDG_CACHE_HOME is ignored.
    """
    base = pathlib.Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else pathlib.Path.home() / ".cache") / "tinypylm"
