"""Counts refusals, logs them with a rate limit so that a peer cannot fill the log, and records them for the audit."""

from __future__ import annotations

from collections import Counter
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent, Type
from liqod.flow.connections.admission import source_of
from liqod.model.addresses import is_ip
from liqod.model.host_port import host_of
from liqod.model.ids import ClusterID, is_dns_label
from liqod.peering.session.usage import Usages

QUIET: Final = 60.0
"""Seconds in which one source is logged at most once: an IPv4 address, a /64 network of IPv6 or a cluster ID."""
MAX_SOURCES: Final = 1024
"""Sources that are remembered; beyond that the oldest is dropped, and may be logged again sooner."""


ORDINARY: Final = frozenset(
    {"ConnectionLost", "Duplicate", "NotNeeded", "StaleOffer", "Starting", "Stopping", "TokenRefused", "Unreachable"}
)
"""Reasons that are no security events here: networks and restarts; refused tokens are recorded with their name."""
DENIALS: Final = frozenset({"RelayDenied", "RelayForbidden"})
"""Reasons by which a request was within the protocol, and not within what was granted."""
NO_FAULT: Final = ORDINARY | {"KeyRotated", "TrustPending", "Unpeered"}
"""Reasons that say nothing about how a peer behaves that proved its key."""


class RefusalLog:
    """Counts by reason, and by peer in ``usages``; logs each source at most once a minute."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, audit: Audit = NO_AUDIT, usages: Usages | None = None) -> None:
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._audit = audit
        self._usages = usages or Usages()
        self._logged: dict[str, float] = {}

    def record(
        self,
        reason: str,
        source: str,
        message: str,
        *,
        peer: str = "",
        fingerprint: str = "",
        address: str = "",
        proven: str = "",
    ) -> None:
        """Count a refusal.

        ``source`` is an address, or the ID of a cluster that proved its key, as is ``proven`` where the source is an
        address; the others are more for the audit, ``peer`` what the other side merely claims.
        """
        self.counts[reason] += 1
        known = not peer and not address and not is_address(source)
        if (proven := proven or (source if known else "")) and reason not in NO_FAULT:
            self._usages.of(ClusterID(proven)).refuse(reason, self._clock.seconds())
        if reason not in ORDINARY:
            if not peer and not address:
                peer, address = (source, "") if known else ("", source)
            self._audit.record(
                AuditEvent(audit_type(reason), reason, peer=peer, fingerprint=fingerprint, address=address)
            )
        now = self._clock.seconds()
        place = source_of(host_of(source))
        last = self._logged.pop(place, None)
        loud = last is None or now - last >= QUIET
        self._logged[place] = now if loud or last is None else last
        if len(self._logged) > MAX_SOURCES:
            del self._logged[next(iter(self._logged))]
        if loud:
            self._log.warn("refused {source}: {reason}: {detail}", source=source, reason=reason, detail=message)


def audit_type(reason: str) -> Type:
    """Return which security event a refusal is."""
    if "TooMany" in reason:
        return "RateLimited"
    return "PolicyDenied" if reason in DENIALS else "Refused"


def is_address(source: str) -> bool:
    """Return whether the source of a refusal is an address, with or without a port, rather than a cluster ID."""
    return is_ip(source) or not is_dns_label(source)
