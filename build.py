"""`python build.py`: builds the site into dist/ and the native kernels for this machine, downloading what it needs by pinned version and SHA-256.

A second run downloads nothing and finishes at once. `serve.py` builds too; this is for those who only want the folder.
"""

from __future__ import annotations

import argparse
import sys

from tooling.console import ToolingError, run_command, say


def main() -> int:
    """Build; the exit code."""
    argparse.ArgumentParser(description="Builds the site into dist/, ready for any static host.").parse_args()
    from tooling.bootstrap import enter_venv  # noqa: PLC0415 - first the help, then what needs a newer Python

    enter_venv(["build"])
    from tooling.kernels import build_native  # noqa: PLC0415 - needs .venv
    from tooling.site import build_site  # noqa: PLC0415 - needs .venv

    try:
        say(f"The native kernels are in {build_native()}")
    except ToolingError as error:
        # The site needs none of them, and the terminal computes with numpy then.
        say(f"No native kernels: {error}")
    say(f"The site is in {build_site()}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
