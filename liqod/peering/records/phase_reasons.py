"""The reasons of phases that are shown as they are: in the metrics each is a series. Pure."""

from __future__ import annotations

from typing import Final

_WORDS: Final = """
    Accepted AcceptedByUser AdvertisementMissing BadCredential BadField BorrowingQuotaExceeded CannotAdmit
    CertificateUnreadable ChainTooLong ClusterIDRepetition ClusterIDTooLong ConnectionLost DecisionPending Dialing
    Duplicate Expired Found FrameLength HandshakeFailed HandshakeTimeout Incoming Internal InvalidClusterID
    InvalidOffer KeyInUse KeyNotProven KeyPinned KeyRevoked KeyRotated KeyTypeRefused LabelsDoNotMatch Lending
    NoAnswer NoCertificate NoCommonMinor NoCommonProtocol NoOffer NoRoom NotADomain NotAnEvent NotContacted
    NotLending NotMsgpack NotNeeded NotOffered NotTLS NotTrusted OfferExpired OfferInvalid OfferPending
    OfferReceived OfferRefused OfferWithdrawn Offered OutOfOrder OutOfSight OutsideHours PartlyResolved Peered
    PeeringDisabled RefusedByUser Self SessionBroken SessionEstablished SignatureRefused SlowReader StaleOffer
    Starting Stopping TokenRefused TooDeep TooExpensive TooFast TooManyConnections TooManyDomains
    TooManyFromAddress TooManyHalfOpen TooManyHandshakes TooManyRequests TooManySessions TooManyUntrusted
    TooMuchPending TrustPending TrustWithdrawn Undecided UnexpectedIdentity UnexpectedKey Unpeered UnpeeredByPeer
    Unpeering Unreachable Unresponsive WaitingForPeerTrust WelcomeDiffers Withdrawn WithdrawnByBorrower
"""
_KNOWN: Final = frozenset(_WORDS.split())


def shown_reason(reason: str) -> str:
    """Return the reason of a phase, ``Other`` for a word that a peer made up or another release has."""
    return reason if not reason or reason in _KNOWN else "Other"
