"""Computes the status of a ForeignCluster from the facts about the peer. Pure.

The result does not depend on the number of attempts, so that an unchanged peering is not written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from liqod.model.objects.meta import MAX_MESSAGE, Condition, find_condition, set_condition
from liqod.model.records.views import AdvertisementStatus, Endpoint, ForeignCluster, ForeignClusterStatus, Lent
from liqod.peering.session.liveness import Liveness

MAX_ENDPOINTS = 8
REPEATED_ID: Final = "ClusterIDRepetition"
"""The reason where another key than the pinned one claimed the peer's ID."""
LIMITS: Final = "WithinLimits"
"""The condition that there is once something was refused to a peer, or reading from it was held."""


@attrs.frozen(kw_only=True)
class PeerFacts:
    """The facts about one peer at this time.

    ``problem`` is (reason, message) of why there is no session; ``problem_about_key``: whether the key is the cause.
    ``offer`` is the status of its Advertisement, None where there is none; ``has_node``: a VirtualNode record is there,
    so that an offer was accepted and has not ended. ``lends``/``borrows``: the wanted
    directions. ``retry_within``: upper bound in seconds until the peer is dialled again, 0 when it is not; a bound, so
    that the next attempt does not change the status. ``limited``: what was refused to the peer, or held back of it,
    since this daemon leads, and whether that was lately; None where nothing was. ``protocol``: the version that both
    speak, empty without a session.
    """

    name: str = ""
    seen_fingerprint: str = ""
    words: str = ""
    sources: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    connected: bool = False
    met: bool = False
    pinned: bool = False
    standing: Liveness = Liveness.ALIVE
    problem: tuple[str, str] | None = None
    problem_about_key: bool = False
    offer: AdvertisementStatus | None = None
    has_node: bool = False
    node_ready: bool = False
    api: str = ""
    lent: Lent | None = None
    lends: bool = True
    borrows: bool = True
    trouble: str = ""
    retry_within: int = 0
    ending: str = ""
    knows_key: str = ""
    protocol: str = ""
    withdrawn: bool = False
    limited: tuple[str, bool] | None = None


def describe(facts: PeerFacts, before: ForeignClusterStatus, now: str) -> ForeignClusterStatus:
    """Return the whole status; conditions of other writers are preserved, ``now`` is RFC 3339."""
    # Of what an earlier daemon held back nothing is known.
    conditions = [one for one in before.conditions if one.type != LIMITS or facts.limited is not None]
    for condition in _conditions(facts, before.conditions):
        conditions = set_condition(conditions, condition, now)
    phase, reason, message = phase_of(facts, before)
    return ForeignClusterStatus(
        cluster_name=facts.name or before.cluster_name,
        seen_fingerprint=facts.seen_fingerprint or before.seen_fingerprint,
        words=facts.words or before.words,
        knows_key=facts.knows_key or before.knows_key,
        endpoints=list(facts.endpoints[:MAX_ENDPOINTS]),
        phase=phase,
        reason=reason,
        message=message[:MAX_MESSAGE],
        lent=facts.lent,
        api=facts.api,
        protocol=facts.protocol or before.protocol,
        conditions=conditions,
    )


def was_authenticated(record: ForeignCluster) -> bool:
    """Return whether there may have been a session with the peer, so that it may rely on the peering.

    A key that merely claims the ID of a pinned peer sets the condition to False too, and disproves nothing.
    """
    found = find_condition(record.status.conditions, "Authenticated")
    if found is None:
        return False
    return found.status == "True" or (bool(record.spec.fingerprint) and found.reason == REPEATED_ID)


def phase_of(facts: PeerFacts, before: ForeignClusterStatus) -> tuple[str, str, str]:
    """Return phase, reason and message: the furthest step that was reached, or what prevents the next one."""
    if facts.ending:
        return "Withdrawing", "Unpeering", facts.ending
    if not facts.connected:
        return _phase_without_session(facts, before)
    lending = facts.lent is not None and facts.lent.verdict == "Accepted"
    offer = facts.offer
    if facts.node_ready:
        return "Ready", "Peered", "the virtual node is ready" + (", and we lend to the peer" if lending else "")
    if offer is not None and offer.phase == "Accepted":
        return "Accepted", offer.reason, "the offer is accepted; the virtual node is being made"
    if offer is not None and offer.phase == "Pending":
        return "Offered", offer.reason, offer.message
    if lending and not facts.trouble:
        return "Ready", "Lending", "the peer accepted what we lend"
    if lending:
        return "Authenticated", "CannotAdmit", facts.trouble
    if offer is not None and offer.phase == "Refused":
        return "Refused", offer.reason, offer.message
    return "Authenticated", "SessionEstablished", "the peer is connected; no offer is accepted yet"


def _phase_without_session(facts: PeerFacts, before: ForeignClusterStatus) -> tuple[str, str, str]:
    if facts.problem is not None and facts.problem_about_key:
        reason, message = facts.problem
        if facts.retry_within:
            message = f"{message}; {_again(facts)}"
        return ("Refused" if reason == REPEATED_ID else "TrustPending"), reason, message
    if facts.withdrawn:
        return "TrustPending", *_WITHDRAWN
    why = facts.problem[1] if facts.problem is not None else "there is no session with the peer"
    if facts.met or before.phase in _ESTABLISHED:
        if facts.standing is Liveness.LOST:
            return "Lost", "OfferExpired", f"{why}; nothing is removed, {_again(facts)}"
        if facts.standing is Liveness.SUSPECT:
            return (
                "Suspect",
                facts.problem[0] if facts.problem is not None else "SessionBroken",
                f"{why}; {_again(facts)}",
            )
        if before.phase:
            return before.phase, before.reason, before.message
    if not facts.pinned:
        return "Discovered", "NotContacted", "the peer was not contacted yet"
    if facts.problem is not None:
        return "Connecting", facts.problem[0], f"{why}; {_again(facts)}"
    return "Connecting", "Dialing", "the peer is being contacted"


def _again(facts: PeerFacts) -> str:
    if facts.retry_within:
        return f"it is dialled again within {facts.retry_within} s"
    return "it is dialled again when something changes"


_WITHDRAWN = (
    "TrustWithdrawn",
    "its key is no longer trusted here, also if the settings or a CA would trust it: 'liqodctl trust' trusts it again",
)
_ESTABLISHED = ("Authenticated", "Offered", "Accepted", "Ready", "Suspect", "Lost")


def _conditions(facts: PeerFacts, before: Sequence[Condition]) -> list[Condition]:
    found = [_discovered(facts), _authenticated(facts, before), _advertised(facts), _accepted(facts), _lending(facts)]
    return [condition for condition in (*found, _within_limits(facts)) if condition is not None]


def _within_limits(facts: PeerFacts) -> Condition | None:
    if facts.limited is None:
        return None
    what, is_recent = facts.limited
    if is_recent:
        return _no(LIMITS, "Limited", f"since this daemon leads the peer was {what}"[:MAX_MESSAGE])
    return _yes(LIMITS, "NotLimited", f"lately nothing; before, since this daemon leads, it was {what}"[:MAX_MESSAGE])


def _discovered(facts: PeerFacts) -> Condition:
    if facts.sources:
        return _yes("Discovered", "Found", f"found by {', '.join(facts.sources)}")
    if facts.connected:
        return _yes("Discovered", "Incoming", "the peer connected to us")
    return _unknown("Discovered", "OutOfSight", "no source shows the peer now; nothing is removed for that")


def _authenticated(facts: PeerFacts, before: Sequence[Condition]) -> Condition | None:
    if facts.connected and not facts.withdrawn:
        return _yes("Authenticated", "KeyPinned", "both sides trust each other's key")
    if facts.problem is not None and facts.problem_about_key:
        return _no("Authenticated", *facts.problem)
    if facts.withdrawn:
        return _no("Authenticated", *_WITHDRAWN)
    if facts.met or find_condition(before, "Authenticated") is not None:
        return None  # a proven key stays proven; the phase shows that there is no session
    return _unknown("Authenticated", "NotContacted", "no session was established yet")


def _advertised(facts: PeerFacts) -> Condition:
    offer = facts.offer
    if offer is None:
        return _no("Advertised", "NoOffer", "the peer has not offered anything to us")
    if offer.phase == "Withdrawn":
        return _no("Advertised", "Withdrawn", offer.message)
    if offer.phase == "Expired":
        return _no("Advertised", "Expired", offer.message)
    return _yes("Advertised", "OfferReceived", "the peer offers resources to us")


def _accepted(facts: PeerFacts) -> Condition:
    offer = facts.offer
    is_open = offer is None or offer.phase in ("", "Pending")
    if is_open and facts.has_node:
        # An offer ends when it is withdrawn or refused, not when its record is lost: pods run on.
        reason, message = "AdvertisementMissing", "the accepted offer has no record; it comes with the next session"
        if offer is not None and offer.phase:
            reason, message = offer.reason or offer.phase, offer.message
        return _unknown("Accepted", reason, message)
    if offer is None or not offer.phase:
        return _no("Accepted", "NoOffer", "there is nothing to accept")
    if offer.phase == "Accepted":
        return _yes("Accepted", offer.reason or "Accepted", offer.message)
    return _no("Accepted", offer.reason or offer.phase, offer.message)


def _lending(facts: PeerFacts) -> Condition:
    lent = facts.lent
    if facts.withdrawn:
        return _no("Lending", *_WITHDRAWN)
    if not facts.lends:
        return _no("Lending", "PeeringDisabled", "lending to the peer is switched off here (incomingPeering)")
    if lent is None:
        return _no("Lending", "NotOffered", "nothing was offered to the peer yet")
    if lent.verdict == "Accepted" and facts.trouble:
        return _no("Lending", "CannotAdmit", facts.trouble)
    if lent.verdict == "Accepted":
        return _yes("Lending", "Accepted", "the peer accepted what we lend")
    if lent.verdict == "":
        return _no("Lending", "Offered", "the peer has not answered our offer yet")
    return _no("Lending", lent.reason or lent.verdict, f"the peer says {lent.verdict} to our offer")


def _yes(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="True", reason=reason, message=message)


def _no(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="False", reason=reason, message=message)


def _unknown(kind: str, reason: str, message: str) -> Condition:
    return Condition(type=kind, status="Unknown", reason=reason, message=message)
