"""Whether an address is on this machine: services without a password are used only there."""

import contextlib
import ipaddress
from urllib.parse import urlsplit

from ec1.errors import InputError


def checked_loopback(endpoint: str) -> str:
    """Return a URL whose host is this machine. Raises InputError for any other."""
    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    if parts.scheme in ("http", "https"):
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).is_loopback:
                return endpoint
        if host == "localhost":
            return endpoint
    raise InputError(f"{endpoint!r} is not on this machine: use http://127.0.0.1:PORT")
