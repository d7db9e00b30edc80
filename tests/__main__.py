"""`python tests`: makes .venv, finds Chromium, builds the site, runs the suite; further arguments go to pytest.

The last line printed is `N passed, N failed`, with `, N skipped` after it where some were; errors count as failed.
"""

from __future__ import annotations

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tooling.console import run_command, say  # noqa: E402 - found through the path above


class Counts:
    """A pytest plugin that counts outcomes."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def pytest_terminal_summary(self, terminalreporter):
        def count(*outcomes):
            return sum(len(terminalreporter.stats.get(outcome, ())) for outcome in outcomes)

        self.passed, self.failed = count("passed"), count("failed", "error")
        self.skipped = count("skipped", "xfailed")

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed" + f", {self.skipped} skipped" * bool(self.skipped)


def prepare():
    """Make everything the suite needs; 0 when all is there."""
    from tooling.bootstrap import enter_venv

    enter_venv(["build", "test"])
    from tooling.chromium import find_or_install
    from tooling.site import build_site

    say(f"Chromium: {find_or_install()}")
    build_site()
    return 0


def main():
    """Run it all; the exit code."""
    counts = Counts()
    status = run_command(prepare)
    if status == 0:
        import pytest

        os.chdir(ROOT)  # where pytest finds its settings
        status = int(pytest.main(sys.argv[1:], plugins=[counts]))
    if status != 0 and counts.failed == 0:
        counts.failed = 1  # the suite itself could not run: no tests, a wrong option, a failed preparation
    say(str(counts))
    return status


if __name__ == "__main__":
    sys.exit(main())
