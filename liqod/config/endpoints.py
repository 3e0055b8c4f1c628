"""Reads port and address in the description of a listening endpoint, as Twisted's ``serverFromString`` does."""

from __future__ import annotations

import re
from typing import Final

from liqod.model.addresses import Address, parse_ip

_KINDS: Final = ("tcp", "tcp4", "tcp6")
_COLON: Final = re.compile(r"(?<!\\):")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_NAMED: Final = "port="
_INTERFACE: Final = "interface="


def port_of(text: str) -> int | None:
    """Return the port of a TCP endpoint; None if it is none, or its port no number."""
    port = _port_part(text).removeprefix(_NAMED)
    return int(port) if is_tcp(text) and _NUMBER.fullmatch(port) else None


def is_one_place(one: str, other: str) -> bool:
    """Return whether two TCP endpoints cannot both listen; port 0 is another one each time."""
    addresses = {_address(one), _address(other)}
    return bool(port_of(one)) and port_of(one) == port_of(other) and (None in addresses or len(addresses) == 1)


def is_tcp(text: str) -> bool:
    """Return whether a text describes a TCP endpoint."""
    return _parts(text)[0] in _KINDS


def is_loopback(text: str) -> bool:
    """Return whether an endpoint is for programs of this host alone; of systemd's sockets that is not known."""
    named = _named_addresses(text)
    return _parts(text)[0] == "unix" or (is_tcp(text) and bool(named) and all(map(_is_local, named)))


def with_port(text: str, port: int) -> str:
    """Return the description of a TCP endpoint with another port."""
    kind, *others = _parts(text)
    old = _port_part(text)
    if old in others:
        others.remove(old)
    return ":".join([kind, str(port), *others])


def _parts(text: str) -> list[str]:
    return _COLON.split(text)


def _named_addresses(text: str) -> list[str]:
    named = (part.removeprefix(_INTERFACE) for part in _parts(text) if part.startswith(_INTERFACE))
    return [one.replace("\\", "") for one in named]


def _is_local(name: str) -> bool:
    address = parse_ip(name)
    return name == "localhost" or (address is not None and address.is_loopback)


def _address(text: str) -> Address | None:
    """Return the address that an endpoint listens on; None for all of them."""
    address = parse_ip(next(iter(_named_addresses(text)), ""))
    return None if address is None or address.is_unspecified else address


def _port_part(text: str) -> str:
    """Return the part with the port: the one that is named so, else the first without a name."""
    _, *parts = _parts(text)
    named = [part for part in parts if part.startswith(_NAMED)]
    unnamed = [part for part in parts if "=" not in part]
    return next(iter([*named, *unnamed]), "")
