"""Whether pods can run behind a virtual node, from everything that must hold for it (pure)."""

from __future__ import annotations

from attrs import frozen

from liqod.model.records.views import Advertisement


@frozen
class Readiness:
    """Whether something is ready, and if not, why; ``known`` False: not observed yet."""

    ready: bool
    reason: str
    message: str
    known: bool = True


READY = Readiness(ready=True, reason="LenderReady", message="the lender answers and its offer is accepted")

_OFFERS = {
    "": ("OfferPending", "the lender's offer was not judged yet"),
    "Pending": ("OfferPending", "the lender's offer is not accepted yet"),
    "Refused": ("OfferRefused", "the lender's offer is refused"),
    "Withdrawn": ("OfferWithdrawn", "the lender withdrew its offer"),
    "Expired": ("OfferExpired", "the lender's offer expired: nothing was heard from it for its time to live"),
}


def not_ready(reason: str, message: str) -> Readiness:
    """Return the readiness of what is not ready."""
    return Readiness(ready=False, reason=reason, message=message)


def not_known(message: str) -> Readiness:
    """Return the readiness of what is not known yet: nothing is decided from it."""
    return Readiness(ready=False, reason="Unknown", message=message, known=False)


def judge_offer(offer: Advertisement | None) -> Readiness:
    """Tell whether an offer can be used."""
    if offer is None:
        return not_ready(
            "AdvertisementMissing", "there is no offer of this lender; it comes when the two clusters are connected"
        )
    if offer.status.phase == "Accepted":
        return READY
    reason, sentence = _OFFERS.get(offer.status.phase, ("OfferInvalid", "the lender's offer is in an unknown phase"))
    return not_ready(reason, f"{sentence}: {offer.status.message}" if offer.status.message else sentence)


def judge(credential: Readiness, api: Readiness, network: Readiness, offer: Readiness) -> Readiness:
    """Return the first obstacle in the order in which a person would remove them, or readiness.

    What is not known yet makes the whole unknown: a daemon that has just started must not call a running node NotReady.
    """
    return next((part for part in (credential, offer, api, network) if not part.ready), READY)


def is_back(before: str, now: str) -> bool:
    """Tell from two phases of a peering, one after the other, whether its session is back after an interruption."""
    return before in ("Suspect", "Lost") and now in ("Authenticated", "Offered", "Accepted", "Ready")
