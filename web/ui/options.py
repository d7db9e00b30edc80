"""What the page's address asks for: the model, how it is run, and how answers are drawn.

`read_options` gives the options and the problems found, each a sentence that names the parameter, the value and what
is allowed. A value that is not allowed is left at its default; only a manifest that may not be used stops the page,
because another model in its place would be a surprise. Knows neither the DOM nor the network.
"""

from collections import namedtuple

DEFAULT_MANIFEST = "seed/default.json"
EXECUTORS = ("auto", "wasm", "numpy")

# `manifest` is None when the one asked for may not be used; `page` is the address of the page's folder; `sampling` holds
# only what the address names.
Options = namedtuple("Options", ("manifest", "page", "executor", "context", "threads", "sampling"))

_DIGITS = "0123456789"
_SEED_LIMIT = 2**64
_MOST_THREADS = 8
_LOWEST_TEMPERATURE = 1e-6


def read_options(parameters, resolve, origin):
    """(Options, problems) of an address.

    Args:
        parameters: dict of the address's parameters, texts.
        resolve: gives the absolute address of a relative one; raises ValueError when it is none.
        origin: the page's own, such as "http://127.0.0.1:8000".
    """
    problems = []
    executor = parameters.get("executor", EXECUTORS[0])
    if executor not in EXECUTORS:
        problems.append(_problem("executor", executor, ", ".join(EXECUTORS)))
        executor = EXECUTORS[0]

    def read(name, parse, allowed):
        value = parameters.get(name)
        if value is None:
            return None
        parsed = parse(value)
        if parsed is None:
            problems.append(_problem(name, value, allowed))
        return parsed

    context = read("context", lambda value: _whole(value, 1), "an integer >= 1")
    threads = read("threads", lambda value: _whole(value, 1, _MOST_THREADS), f"an integer in [1, {_MOST_THREADS}]")
    sampling = {
        "temperature": read("temperature", _temperature, "a number in [0, 100]"),
        "seed": read("seed", lambda value: _whole(value, 0, _SEED_LIMIT - 1), f"an integer in [0, {_SEED_LIMIT - 1}]"),
        "max_tokens": read("max-tokens", lambda value: _whole(value, 1), "an integer >= 1"),
    }
    manifest, problem = _manifest(parameters.get("manifest", DEFAULT_MANIFEST), resolve, origin)
    if problem:
        problems.append(problem)
    given = {name: value for name, value in sampling.items() if value is not None}
    return Options(manifest, resolve("./"), executor, context, threads, given), problems


def _problem(name, value, allowed):
    return f"{name}: {_shorten(value)} is not allowed (allowed: {allowed}). The default is used instead."


def _shorten(value):
    shown = repr(value)
    return shown if len(shown) <= 120 else shown[:119] + "…"


def _whole(value, low, high=None):
    if not value or len(value) > 20 or any(character not in _DIGITS for character in value):
        return None
    number = int(value)
    return number if number >= low and (high is None or number <= high) else None


def _temperature(value):
    digits = value.replace(".", "", 1)
    if not digits or len(digits) > 20 or any(character not in _DIGITS for character in digits):
        return None
    number = float(value)
    return number if number == 0 or _LOWEST_TEMPERATURE <= number <= 100 else None


def _manifest(address, resolve, origin):
    """(absolute address or None, problem or None): only this origin's manifests may be used."""
    advice = "Take the parameter out of the address to use the default model."
    try:
        absolute = resolve(address)
    except ValueError:
        return None, f"manifest: {_shorten(address)} is not an address. {advice}"
    if not absolute.startswith(origin + "/"):
        return None, (
            f"manifest: {_shorten(address)} is not on this site (allowed: addresses of {origin}). "
            f"Nothing was fetched from it. {advice}"
        )
    return absolute, None
