"""Addresses with a port: ``host:port`` or ``[IPv6]:port`` (RFC 3986, section 3.2.2). Pure."""

from __future__ import annotations

import re
from typing import Final

from liqod.model.addresses import is_ip

# A zone has the characters that RFC 6874, section 2, needs no escapes for.
_FORM: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9._~-]+)?)\]|([A-Za-z0-9._-]+))(?::([0-9]+))?")
# RFC 1123, section 2.1: names of at most 253 characters, of labels of at most 63; a final dot is the DNS root, and "_"
# is in names that are for private use.
_NAME: Final = re.compile(r"(?=.{1,253}$)[A-Za-z0-9][A-Za-z0-9_-]{0,62}(\.[A-Za-z0-9][A-Za-z0-9_-]{0,62})*\.?")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")


def split_address(text: str, default: int = 0) -> tuple[str, int]:
    """Return host and port of ``host:port`` or ``[IPv6]:port``; raises ValueError that names the allowed forms.

    With a ``default`` port there may be none in the text, and an IPv6 address without one needs no brackets. The host
    is an IP address or a name; four numbers that are no IPv4 address are neither.
    """
    found = _FORM.fullmatch(f"[{text}]" if default and ":" in text and is_ip(text) else text)
    if found is not None:
        six, name, written = found.groups()
        port = default if written is None else parse_port(written)
        if port and (":" in six and is_ip(six) if six else is_ip(name) or _is_name(name)):
            return six or name, port
    raise ValueError(f"address {text[:80]!r} is not host:port, such as 10.0.0.1:5872 or [fd00::1]:5872")


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(text: str) -> str:
    """Return the host of an address with or without a port, whatever its zone; of another text the text itself."""
    try:
        return split_address(text, 1)[0]
    except ValueError:
        # Linux takes any character but "/", ":" and white space in the name of an interface (dev_valid_name).
        host = text[1:].rpartition("]")[0]
        return host if text.startswith("[") and is_ip(host) else text


def parse_port(text: str) -> int:
    """Return a port from 1 to 65535 that is written without zeros before it; 0 for another text."""
    port = int(text) if _PORT.fullmatch(text) else 0
    return port if port < 65536 else 0


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and not text.rstrip(".").rpartition(".")[2].isdigit()
