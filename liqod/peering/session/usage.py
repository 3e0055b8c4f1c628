"""What each peer takes of this daemon, and how much of it a second: one that takes more waits, and nobody else.

Counted are peers that proved their pinned key. Who only claims an ID is counted by address (``refusal_log``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import attrs

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.flow.share import Share
from liqod.model.ids import ClusterID

REACTOR_TIME: Final = "ReactorTime"
RELAY_REQUESTS: Final = "RelayRequests"
RELAY_BYTES: Final = "RelayBytes"
WRITTEN_BYTES: Final = "WrittenBytes"
PER_MINUTE: Final = 64 << 20
"""Bytes that one borrower writes over the relay in a minute."""
SHARES: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        # Seconds of the event loop, of which there is one in a second for all: a quarter, so that three others find
        # theirs. A request over the relay takes 0.3 ms of it.
        REACTOR_TIME: (0.25, 2.5),
        # Ten thousand pods at once, of which each is two requests, are sent within half a minute.
        RELAY_REQUESTS: (500.0, 5000.0),
        # As much as is written of statuses for one lender at home (``kubelet.pods.status_pace``).
        RELAY_BYTES: (PER_MINUTE / 60, 256 << 20),
    }
)
"""What a peer may take in a second, and at once: seconds, requests, bytes. One that had it is not read from."""
LONGEST: Final = 5.0
"""Seconds for which nothing is read of a peer at most; it is alive, and has to show that."""
QUIET: Final = 600.0
"""Seconds after which the status no longer shows that a peer was held or refused something."""
MOST_REASONS: Final = 64
"""Reasons of refusals that are counted of one peer each by itself."""
OTHER: Final = "Other"


def _shares() -> dict[str, Share]:
    return {what: Share(*amounts) for what, amounts in SHARES.items()}


@attrs.define(kw_only=True)
class PeerUsage:
    """What one peer has taken since this daemon leads.

    ``seconds`` of the event loop, ``events`` of its sessions, ``relayed`` bytes in requests that the relay passed on.
    ``refused`` and ``held`` count by reason; ``limited_at`` is when something was refused or held last, None if never.
    """

    seconds: float = 0.0
    events: int = 0
    relayed: int = 0
    refused: Counter[str] = attrs.field(factory=Counter)
    held: Counter[str] = attrs.field(factory=Counter)
    limited_at: float | None = None
    _shares: dict[str, Share] = attrs.field(factory=_shares)
    _changed: Callable[[], object] = attrs.field(default=bool, eq=False, repr=False)
    _held_back: Callable[[str], object] = attrs.field(default=bool, eq=False, repr=False)

    def worked(self, seconds: float, now: float) -> None:
        """Count time of the event loop that went into what came from the peer, or what was sent to it."""
        self.seconds += seconds
        self._shares[REACTOR_TIME].take(seconds, now)

    def passed_on(self, length: int, now: float) -> None:
        """Count bytes of a request's body that are passed on to the API server."""
        self.relayed += length
        self._shares[RELAY_BYTES].take(length, now)

    def requested(self, now: float) -> None:
        """Count a request that is passed on."""
        self._shares[RELAY_REQUESTS].take(1, now)

    def hold(self, now: float, *, relay: bool = False) -> float:
        """Return the seconds for which nothing is to be read of the peer, and count that; 0: read on.

        ``relay``: of its next request.
        """
        shares = self._shares if relay else {REACTOR_TIME: self._shares[REACTOR_TIME]}
        what, wait = max(((what, share.wait(now)) for what, share in shares.items()), key=lambda one: one[1])
        if wait <= 0:
            return 0.0
        if self._note(self.held, what, now):
            self._held_back(what)
        return min(wait, LONGEST)

    def held_writes(self, now: float) -> None:
        """Count that its writes at the API server are refused until a date, as it had its share."""
        self._note(self.held, WRITTEN_BYTES, now)

    def refuse(self, reason: str, now: float) -> None:
        """Count a refusal."""
        known = reason in self.refused or len(self.refused) < MOST_REASONS
        self._note(self.refused, reason if known else OTHER, now)

    def _note(self, counts: Counter[str], what: str, now: float) -> bool:
        """Count something; return whether it is to be shown."""
        before, was = rounded(counts[what]), self.limited_at
        counts[what] += 1
        self.limited_at = now
        # What is shown changes with the first, the second, the fourth ...: a flood leads to few writes.
        if is_shown := rounded(counts[what]) != before or was is None or now - was >= QUIET:
            self._changed()
        return is_shown

    def shown(self) -> tuple[str, float] | None:
        """Return what was refused and held, and until when it counts as recent; None where nothing ever was."""
        if self.limited_at is None:
            return None
        held = [f"held back {_times(count)}: {what}" for what, count in sorted(self.held.items())]
        refused = [f"refused {_times(count)}: {reason}" for reason, count in sorted(self.refused.items())]
        return "; ".join([*held, *refused]), self.limited_at + QUIET


def rounded(count: int) -> int:
    """Return the largest power of two that is not greater; 0 for 0."""
    return 1 << (count.bit_length() - 1) if count else 0


def _times(count: int) -> str:
    return "once" if count == 1 else f"{rounded(count)} times or more"


class Usages:
    """What the peers take; ``changed`` is called with a peer when what is to be shown of it changes.

    That a peer is held back by its share is an event of the audit as often as the status shows it.
    """

    def __init__(self, changed: Callable[[ClusterID], object] = bool, audit: Audit = NO_AUDIT) -> None:
        self._changed = changed
        self._audit = audit
        self._known: dict[ClusterID, PeerUsage] = {}

    def of(self, peer: ClusterID) -> PeerUsage:
        """Return what a peer takes, which proved its key."""
        known = self._known.get(peer)
        if known is None:
            known = self._known[peer] = PeerUsage(
                changed=lambda: self._changed(peer),
                held_back=lambda what: self._audit.record(AuditEvent("RateLimited", what, peer=peer)),
            )
        return known

    def get(self, peer: ClusterID) -> PeerUsage | None:
        """Return the same, None for a peer that has taken nothing yet."""
        return self._known.get(peer)

    def items(self) -> list[tuple[ClusterID, PeerUsage]]:
        """Return all that is known, by peer."""
        return sorted(self._known.items())

    def forget(self, peer: ClusterID) -> None:
        """Drop a peer whose record is gone."""
        self._known.pop(peer, None)
