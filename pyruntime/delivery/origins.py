"""Addresses and origins: which addresses may be fetched at all.

An origin is `scheme://host[:port]` in lower case, without the scheme's own port. Only plain `http` and `https`
addresses of visible ASCII are understood, so that Python and the browser cannot read the same text differently
(a backslash, a tab or a user name in an address is refused, not repaired). It fetches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urljoin

from pyruntime.errors import DeliveryError, compose, shorten

_ADDRESS = re.compile(
    r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?"
    r"(?:/[!-\[\]-~]*)?"  # no backslash, which browsers read as a slash
    r"(?:[?#][!-~]*)?"
)
_OWN_PORTS = {"http": "80", "https": "443"}


def origin_of(url: str) -> str:
    """The origin of an absolute address.

    Raises:
        DeliveryError: when it is not a plain http or https address.
    """
    match = _ADDRESS.fullmatch(url)
    if match is None:
        raise DeliveryError(compose("address", f"{shorten(url)} cannot be used", allowed="an http or https address"))
    scheme, host, port = match[1], match[2].lower(), match[3]
    return f"{scheme}://{host}" if port in (None, _OWN_PORTS[scheme]) else f"{scheme}://{host}:{port}"


def resolve(reference: str, base_url: str, allowed_origins: Collection[str]) -> str:
    """The absolute address that `reference` means at `base_url`, without its fragment.

    Raises:
        DeliveryError: when it is not an http or https address, or its origin is not one of `allowed_origins`.
    """
    url = urljoin(base_url, reference).partition("#")[0]
    origin = origin_of(url)
    if origin not in allowed_origins:
        raise DeliveryError(
            compose(
                "address",
                f"{shorten(url)} is on {shorten(origin)}, which is not an allowed origin",
                allowed=", ".join(sorted(allowed_origins)),
            )
        )
    return url
