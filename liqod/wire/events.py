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
    """The base class of all events; ``number`` is the first element of the frame."""

    number: ClassVar[int] = 0


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
    public_key: str
    proof: str = ""


class KeyNoted(Event, frozen=True):
    """The answer to NewKey; an empty reason means that the key is pinned beside the current one. Since minor 1."""

    number: ClassVar[int] = 20
    public_key: str
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
)
BY_NUMBER: Final = {event.number: event for event in EVENTS}
# The number 17 is reserved for Probe.
