"""Finds the system's Chromium for the browser tests, or installs it where that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess

from tooling.console import ToolingError, say

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PACKAGES = ("chromium", "fonts-liberation")


def find() -> str | None:
    """The path of a Chromium: `$CHROMIUM`, or the first of the usual names on PATH."""
    wanted = os.environ.get("CHROMIUM")
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            raise ToolingError(f"CHROMIUM={wanted}: no such program; correct or unset the variable")
        return found
    return next((path for path in map(shutil.which, _NAMES) if path), None)


def find_or_install() -> str:
    """The path of a Chromium, installed with apt-get when there is none; raises ToolingError that says the command."""
    found = find()
    if found:
        return found
    command = ["apt-get", "install", "-y", "--no-install-recommends", *_PACKAGES]
    advice = (
        f"Install it (on Debian or Ubuntu: {' '.join(command)}), or name one with the environment variable CHROMIUM"
    )
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise ToolingError(f"Chromium was not found, and the browser tests need it. {advice}")
    say("Installing Chromium with apt-get…")
    for step in (["apt-get", "update"], command):
        result = subprocess.run(
            step,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            check=False,
        )
        if result.returncode != 0:
            tail = "\n  ".join((result.stdout + result.stderr).strip().splitlines()[-8:])
            raise ToolingError(f"`{' '.join(step)}` failed:\n  {tail}\n{advice}")
    found = find()
    if found is None:
        raise ToolingError(f"Chromium is still missing after `{' '.join(command)}`. {advice}")
    return found
