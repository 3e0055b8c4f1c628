"""Reads the port in the description of a listening endpoint, as Twisted's ``serverFromString`` does, and changes it."""

from __future__ import annotations

import re
from typing import Final

_KINDS: Final = ("tcp", "tcp4", "tcp6")
_COLON: Final = re.compile(r"(?<!\\):")
_NUMBER: Final = re.compile(r"[0-9]{1,10}")
_NAMED: Final = "port="


def port_of(text: str) -> int | None:
    """Return the port of a TCP endpoint; None if it is none, or its port no number."""
    port = _port_part(text).removeprefix(_NAMED)
    return int(port) if is_tcp(text) and _NUMBER.fullmatch(port) else None


def is_tcp(text: str) -> bool:
    """Return whether a text describes a TCP endpoint."""
    return _parts(text)[0] in _KINDS


def with_port(text: str, port: int) -> str:
    """Return the description of a TCP endpoint with another port."""
    kind, *others = _parts(text)
    old = _port_part(text)
    if old in others:
        others.remove(old)
    return ":".join([kind, str(port), *others])


def _parts(text: str) -> list[str]:
    return _COLON.split(text)


def _port_part(text: str) -> str:
    """Return the part with the port: the one that is named so, else the first without a name."""
    _, *parts = _parts(text)
    named = [part for part in parts if part.startswith(_NAMED)]
    unnamed = [part for part in parts if "=" not in part]
    return next(iter([*named, *unnamed]), "")
