"""Digests of values by their JSON with sorted keys: equal values have equal digests. Pure.

Annotations hold them, and releases compare them with those of releases before: they stay as they are.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


def short_digest(value: Any) -> str:
    """Return 16 hex digits of SHA-256, for what is compared with one earlier value of the same object."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


def long_digest(value: Any, size: int = 16) -> str:
    """Return BLAKE2b (RFC 7693) of ``size`` bytes in hex digits, for what a peer chooses."""
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=size).hexdigest()
