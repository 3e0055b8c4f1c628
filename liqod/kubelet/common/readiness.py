"""Evaluates whether pods can run on a virtual node: credential, offer, API and network of its lender (pure)."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from liqod.model.records.views import Advertisement

CREDENTIAL_REJECTED: Final = "CredentialRejected"
"""The reason of a lender that answers that this cluster's credential is not valid."""


@frozen
class Readiness:
    """Whether something is ready, with reason and message of a condition; ``known`` False: not observed yet."""

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
    "Expired": ("OfferExpired", "the lender's offer expired: it was not renewed within its time to live"),
}


def not_ready(reason: str, message: str) -> Readiness:
    """Return a readiness that is not ready."""
    return Readiness(ready=False, reason=reason, message=message)


def not_known(message: str) -> Readiness:
    """Return a readiness that was not observed yet; nothing is decided from it."""
    return Readiness(ready=False, reason="Unknown", message=message, known=False)


def judge_offer(offer: Advertisement | None) -> Readiness:
    """Return whether an offer can be used."""
    if offer is None:
        return not_ready(
            "AdvertisementMissing", "there is no offer of this lender; it comes when the two clusters are connected"
        )
    if offer.status.phase == "Accepted":
        return READY
    reason, sentence = _OFFERS.get(offer.status.phase, ("OfferInvalid", "the lender's offer is in an unknown phase"))
    return not_ready(reason, f"{sentence}: {offer.status.message}" if offer.status.message else sentence)


def judge(credential: Readiness, api: Readiness, network: Readiness, offer: Readiness) -> Readiness:
    """Return the first part that is not ready, in the order in which an administrator would fix them, or ``READY``.

    Unknown is the result if the first such part is: a daemon that just started must not mark a running node NotReady.
    """
    return next((part for part in (credential, offer, api, network) if not part.ready), READY)


def is_back(before: str, now: str) -> bool:
    """Return whether two consecutive phases of a peering show that its session recovered from an interruption."""
    return before in ("Suspect", "Lost") and now in ("Authenticated", "Offered", "Accepted", "Ready")
