"""The events of the peer protocol ``liqod/1``.

WARNING: the numbers are the protocol itself. Append only; never renumber, never reuse. The fields of an event are
positional as well: new ones go to the end and have a default, so that a peer of another release can ignore them or
leave them out.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from liqod.model.records.offer import Offer


class Event(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=False):
    """The base class of all events; ``number`` is the first element of the frame, ``since`` the minor that added it."""

    number: ClassVar[int] = 0
    since: ClassVar[int] = 0


class Hello(Event, frozen=True):
    """The sender's claimed identity and its versions; the first event in both directions."""

    number: ClassVar[int] = 1
    cluster_id: str
    cluster_name: str
    epoch: int
    min_minor: int
    max_minor: int
    features: list[str] = []


class Welcome(Event, frozen=True):
    """The sender trusts the receiver's key; the session is established when both sides have sent it."""

    number: ClassVar[int] = 2
    minor: int
    features: list[str] = []


class Bye(Event, frozen=True):
    """The last event: why the sender closes, and after how many seconds to try again (0: at once)."""

    number: ClassVar[int] = 3
    reason: str
    message: str = ""
    retry_after: float = 0.0


class Ping(Event, frozen=True):
    """A liveness probe; the payload is returned unchanged."""

    number: ClassVar[int] = 4
    payload: int = 0


class Pong(Event, frozen=True):
    """The answer to a Ping."""

    number: ClassVar[int] = 5
    payload: int = 0


class Unsupported(Event, frozen=True):
    """The sender does not know the event of that number; the session continues."""

    number: ClassVar[int] = 6
    unknown: int


class Advertise(Event, frozen=True):
    """The sender's offer. ``(epoch, seq)`` orders offers over restarts; ``ttl`` is in seconds from receipt."""

    number: ClassVar[int] = 7
    epoch: int
    seq: int
    ttl: int
    offer: Offer


class Verdict(Event, frozen=True):
    """The borrower's decision on an offer: Accepted, Refused or Pending, with a reason."""

    number: ClassVar[int] = 8
    epoch: int
    seq: int
    decision: str
    reason: str = ""
    message: str = ""


class Withdraw(Event, frozen=True):
    """The lender withdraws its offer, or the borrower stops using it; ``role`` is the sender's."""

    number: ClassVar[int] = 9
    epoch: int
    role: str
    reason: str = ""


class Withdrawn(Event, frozen=True):
    """The sender has completed a withdrawal."""

    number: ClassVar[int] = 10
    epoch: int
    role: str


class Credential(Event, frozen=True):
    """How the borrower reaches the lender's API server, for ``lifetime`` seconds from receipt.

    ``relay``: also over this port, with the key of the session and without a token. Without a URL the relay is the only
    way; that is sent only to peers with the feature of the relay in their Hello.
    """

    number: ClassVar[int] = 11
    api_url: str
    ca: str
    token: str
    lifetime: int
    namespace: str
    relay: bool = False

    def __repr__(self) -> str:
        shown = f"api_url={self.api_url!r}, namespace={self.namespace!r}"
        return f"Credential({shown}, lifetime={self.lifetime}, relay={self.relay})"


class MapNamespace(Event, frozen=True):
    """The borrower requests the namespace ``remote`` in the lender's cluster for its namespace ``local``."""

    number: ClassVar[int] = 12
    request: int
    local: str
    remote: str


class NamespaceMapped(Event, frozen=True):
    """The answer to MapNamespace or ReleaseNamespace; an empty reason means success."""

    number: ClassVar[int] = 13
    request: int
    remote: str
    reason: str = ""
    message: str = ""


class ReleaseNamespace(Event, frozen=True):
    """The borrower no longer needs the namespace ``remote``: it is to be deleted with everything in it."""

    number: ClassVar[int] = 14
    request: int
    remote: str


class Network(Event, frozen=True):
    """The sender's pod networks and tunnel endpoints; who receives an empty key refuses it (BadKey).

    A sender without a tunnel says so with a NetworkAck (``NoTunnel``). ``next_key`` is the sender's next WireGuard key:
    to be accepted as well from now on, and acknowledged.
    ``external_six`` is a second network of single addresses, of IPv6, where ``external_cidr`` is of IPv4.
    ``service_cidrs`` are the networks of the sender's Services, which its own pods in the receiver's cluster call.
    """

    number: ClassVar[int] = 15
    pod_cidrs: list[str]
    external_cidr: str
    endpoints: list[str]
    public_key: str
    mtu: int
    next_key: str = ""
    external_six: str = ""
    service_cidrs: list[str] = []


class NetworkAck(Event, frozen=True):
    """The receiver's networks as the sender maps them, in the order of ``Network``; or why it cannot use them.

    ``known_key`` is the receiver's next key that the sender's end of the tunnel accepts already. ``service_cidrs`` is
    empty where the receiver's Services cannot be called from the sender's cluster.
    """

    number: ClassVar[int] = 16
    pod_cidrs: list[str]
    external_cidr: str = ""
    reason: str = ""
    message: str = ""
    known_key: str = ""
    external_six: str = ""
    service_cidrs: list[str] = []


class Join(Event, frozen=True):
    """The dialer has the listener's pairing token of that name; ``proof`` (hex) is for this session only.

    Sent by a dialer with the feature ``joining`` in its Hello, before its Welcome; the listener then authenticates it.
    """

    number: ClassVar[int] = 18
    token: str
    proof: str

    def __repr__(self) -> str:
        return f"Join(token={self.token!r})"


class NewKey(Event, frozen=True):
    """The sender's next identity key, announced in a session of the current one; since minor 1.

    ``public_key`` is an Ed25519 key (32 bytes, base64), ``proof`` its signature (64 bytes, base64), valid in this
    session only: what is signed is in ``liqod.identity.rotation``. Both empty: the announced key is withdrawn.
    """

    number: ClassVar[int] = 19
    since: ClassVar[int] = 1
    public_key: str
    proof: str = ""


class KeyNoted(Event, frozen=True):
    """The answer to NewKey; an empty reason means that the key is pinned beside the current one. Since minor 1."""

    number: ClassVar[int] = 20
    since: ClassVar[int] = 1
    public_key: str
    reason: str = ""
    message: str = ""


class AskSlice(Event, frozen=True):
    """The borrower asks for a slice: an amount of its own, of a class that the lender has; since minor 2.

    ``name`` is the borrower's, ``revision`` grows with every change of the request. It is repeated in every session.
    """

    number: ClassVar[int] = 21
    since: ClassVar[int] = 2
    name: str
    slice_class: str
    resources: dict[str, str]
    revision: int


class SliceDecided(Event, frozen=True):
    """The lender's decision on a revision of a slice: Granted, Reduced, Refused or Removed; since minor 2.

    ``resources`` are those of the slice from now on: what was asked, less, or none; a change that is Refused leaves
    what there was. The lender may decide again.
    """

    number: ClassVar[int] = 22
    since: ClassVar[int] = 2
    name: str
    revision: int
    decision: str
    resources: dict[str, str] = {}
    reason: str = ""
    message: str = ""


class RemoveSlice(Event, frozen=True):
    """The borrower gives a slice back; the answer is SliceDecided with Removed. Since minor 2."""

    number: ClassVar[int] = 23
    since: ClassVar[int] = 2
    name: str
    revision: int


class DirectOffer(Event, frozen=True):
    """A lender may be connected with other lenders of ``home`` directly, at these addresses; since minor 2.

    ``pod_cidrs`` are its networks with the pods of home. Without endpoints and key it takes the offer back.
    """

    number: ClassVar[int] = 24
    since: ClassVar[int] = 2
    home: str
    endpoints: list[str]
    public_key: str
    pod_cidrs: list[str]
    mtu: int


class DirectAsk(Event, frozen=True):
    """``home`` asks a lender to connect with another of its lenders, ``peer``, which made this offer; since minor 2."""

    number: ClassVar[int] = 25
    since: ClassVar[int] = 2
    home: str
    peer: str
    request: int
    endpoints: list[str]
    public_key: str
    pod_cidrs: list[str]
    mtu: int


class DirectAgree(Event, frozen=True):
    """A lender's answer to DirectAsk; an empty reason means that its end is set up. Since minor 2."""

    number: ClassVar[int] = 26
    since: ClassVar[int] = 2
    home: str
    peer: str
    request: int
    reason: str = ""
    message: str = ""


class DirectEnd(Event, frozen=True):
    """The direct connection of two lenders of ``home`` ends, by either side's wish; since minor 2."""

    number: ClassVar[int] = 27
    since: ClassVar[int] = 2
    home: str
    peer: str
    reason: str = ""
    message: str = ""


class KeepStreams(Event, frozen=True):
    """The receiver is to keep so many idle TLS streams with the sender ready (0: none any more); since minor 2.

    Sent only to peers with the feature ``splice``.
    """

    number: ClassVar[int] = 28
    since: ClassVar[int] = 2
    count: int


class StreamsKept(Event, frozen=True):
    """The answer to KeepStreams: how many it will be, and the reason where that is fewer. Since minor 2."""

    number: ClassVar[int] = 29
    since: ClassVar[int] = 2
    count: int
    reason: str = ""
    message: str = ""


class NameQuery(Event, frozen=True):
    """The lender asks home for the records of a name of a Service of home; ``kind`` is DNS's type. Since minor 2."""

    number: ClassVar[int] = 30
    since: ClassVar[int] = 2
    request: int
    name: str
    kind: int


class NameRecord(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=False):
    """One record in a NameAnswer; ``data`` is the text of an A, AAAA, CNAME, PTR or SRV record (RFC 1035, 2782)."""

    name: str
    kind: int
    ttl: int
    data: str


class NameAnswer(Event, frozen=True):
    """Home's answer to NameQuery: Records, None (no such record, for ``ttl`` seconds) or Refused; since minor 2."""

    number: ClassVar[int] = 31
    since: ClassVar[int] = 2
    request: int
    result: str
    records: list[NameRecord] = []
    ttl: int = 0
    reason: str = ""
    message: str = ""


EVENTS: Final[tuple[type[Event], ...]] = (
    Hello,
    Welcome,
    Bye,
    Ping,
    Pong,
    Unsupported,
    Advertise,
    Verdict,
    Withdraw,
    Withdrawn,
    Credential,
    MapNamespace,
    NamespaceMapped,
    ReleaseNamespace,
    Network,
    NetworkAck,
    Join,
    NewKey,
    KeyNoted,
    AskSlice,
    SliceDecided,
    RemoveSlice,
    DirectOffer,
    DirectAsk,
    DirectAgree,
    DirectEnd,
    KeepStreams,
    StreamsKept,
    NameQuery,
    NameAnswer,
)
BY_NUMBER: Final = {event.number: event for event in EVENTS}
# The number 17 is reserved for Probe.
