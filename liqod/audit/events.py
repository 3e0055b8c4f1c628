"""Security events as values, and the line that each becomes. Pure.

A field holds a name, an identifier or a number, never a text that somebody wrote: it is checked against the form of its
kind, so that a secret that ended up in it is no value of it. The format is in docs/audit.md.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Final, Literal, Protocol

import attrs

from liqod.model.timestamps import rfc3339_micro

Type = Literal[
    "TrustGranted",
    "TrustWithdrawn",
    "KeyChanged",
    "Refused",
    "RateLimited",
    "AccessGranted",
    "AccessRevoked",
    "PolicyDenied",
    "TokenCreated",
    "TokenUsed",
    "TokenRefused",
    "TokenRevoked",
    "AccountToken",
    "Omitted",
]
LOGGER: Final = "liqod.audit"
"""The namespace of the lines in the daemon's log; ``[log] level`` does not leave them out."""
SCHEMA: Final = 1
"""The version of the line's format: it grows when a field changes its meaning, not when one is added."""
MAX_LINE: Final = 1280
"""Bytes of a line at most, without its line feed; the fields' forms keep it."""
INVALID: Final = "(invalid)"
"""Stands for a value that has not the form of its field."""

_FORMS: Final = {
    "reason": re.compile(r"[A-Za-z0-9]{1,64}"),
    "peer": re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"),
    "fingerprint": re.compile(r"sha256:[0-9a-f]{64}"),
    # An address is a host as a person wrote it, or as the socket shows it: with a zone, a port, in brackets.
    "address": re.compile(r"[0-9A-Za-z.:%\[\]_-]{1,128}"),
    # kind/name or kind/namespace/name: 63 characters, a namespace's label, and a DNS subdomain of 253.
    "object": re.compile(r"[a-z]{1,63}(/[0-9A-Za-z._:-]{1,253}){1,2}"),
}


@attrs.frozen
class AuditEvent:
    """One security event.

    ``peer`` is the cluster ID concerned; in a refusal it is what the other side claims. ``object`` is ``kind/name`` or
    ``kind/namespace/name``. ``omitted`` counts equal events before this one that were not written.
    """

    type: Type
    reason: str
    peer: str = attrs.field(default="", kw_only=True)
    fingerprint: str = attrs.field(default="", kw_only=True)
    address: str = attrs.field(default="", kw_only=True)
    object: str = attrs.field(default="", kw_only=True)
    omitted: int = attrs.field(default=0, kw_only=True)

    def fields(self, at: datetime) -> dict[str, str | int]:
        """Return the fields of the event's line, in their order; empty ones are left out."""
        fields: dict[str, str | int] = {"schema": SCHEMA, "time": rfc3339_micro(at), "type": self.type}
        for name, form in _FORMS.items():
            value: str = getattr(self, name)
            if value:
                fields[name] = value if form.fullmatch(value) else INVALID
        if self.omitted:
            fields["omitted"] = self.omitted
        return fields

    def line(self, at: datetime) -> str:
        """Return the event as one line of JSON in ASCII, without a line feed."""
        return json.dumps(self.fields(at), separators=(",", ":"))


class Audit(Protocol):
    """Where security events go: ``audit.log.AuditLog``, or the null object ``NO_AUDIT``."""

    def record(self, event: AuditEvent) -> None:
        """Record an event; returns at once and never raises."""
        ...


class NoAudit:
    """Records nothing, for parts that are used alone."""

    def record(self, event: AuditEvent) -> None:
        """Drop the event."""


NO_AUDIT: Final[Audit] = NoAudit()
