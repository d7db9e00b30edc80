"""`python serve.py`: from a fresh clone to the app in the browser.

Makes .venv, builds the site (the first time with downloads of about 200 MB), serves it, and prints the address when
it can answer. Needs Python 3.11 or newer, Node 20 or newer, and nothing else installed.
"""

from __future__ import annotations

import argparse
import pathlib
import sys

from tooling.console import run_command, say


def main() -> int:
    """Serve until interrupted; the exit code."""
    options = _parse()
    from tooling.bootstrap import enter_venv  # noqa: PLC0415 - first the help, then what needs a newer Python

    enter_venv(["build"])
    from tooling.seed import seed_for_model  # noqa: PLC0415 - needs .venv, as the next two do
    from tooling.server import Server  # noqa: PLC0415
    from tooling.site import build_site  # noqa: PLC0415

    model = None if options.model is None else seed_for_model(options.model)
    site = build_site() if options.site is None else options.site
    server = Server(
        site,
        host=options.host,
        port=options.port,
        isolation=options.isolation,
        model=model,
        on_request=lambda request: say(f"  {request}"),
    )
    if options.host not in {"127.0.0.1", "::1", "localhost"}:
        say("Note: browsers trust only localhost and https. From another machine, use a tunnel or an https proxy.")
    server.run(on_ready=lambda: say(f"TinyPyLM is at {server.url} (Ctrl-C stops it)"))
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Builds the site where needed and serves it.")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s, this machine only)"
    )
    parser.add_argument(
        "--port", type=_port, help="port to listen on, 0 for any (default: the first free one from 8000 on)"
    )
    parser.add_argument(
        "--no-isolation",
        dest="isolation",
        action="store_false",
        help="do not send COOP and COEP, as most static hosts do not: one thread only",
    )
    parser.add_argument(
        "--site", type=pathlib.Path, metavar="DIR", help="serve this built site instead of building dist/"
    )
    parser.add_argument(
        "--model",
        type=pathlib.Path,
        metavar="FILE_OR_DIR",
        help="a .gguf file, or a folder with a model's files, to serve as the default model",
    )
    return parser.parse_args()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


if __name__ == "__main__":
    sys.exit(run_command(main))
