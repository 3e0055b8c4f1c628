"""The events of the peer protocol ``liqod/1``.

WARNING: the numbers are the protocol itself. Append only; never renumber, never reuse. The fields of an event are
positional as well: new ones go to the end and carry a default, so that a peer one release apart can skip or lack them.
"""

from __future__ import annotations

from typing import ClassVar, Final

import msgspec

from liqod.model.records.offer import Offer


class Event(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=False):
    """The base of all events; ``number`` is what stands first in the frame."""

    number: ClassVar[int] = 0


class Hello(Event, frozen=True):
    """Who I claim to be and what I speak; the first event in both directions."""

    number: ClassVar[int] = 1
    cluster_id: str
    cluster_name: str
    epoch: int
    min_minor: int
    max_minor: int
    features: list[str] = []


class Welcome(Event, frozen=True):
    """I trust your key; the session is established once both sides have said so."""

    number: ClassVar[int] = 2
    minor: int
    features: list[str] = []


class Bye(Event, frozen=True):
    """The last event: why I close, and after how many seconds trying again makes sense (0: at once)."""

    number: ClassVar[int] = 3
    reason: str
    message: str = ""
    retry_after: float = 0.0


class Ping(Event, frozen=True):
    """Are you there? The payload comes back unchanged."""

    number: ClassVar[int] = 4
    payload: int = 0


class Pong(Event, frozen=True):
    """The answer to a Ping."""

    number: ClassVar[int] = 5
    payload: int = 0


class Unsupported(Event, frozen=True):
    """I do not know the event of that number; the session goes on."""

    number: ClassVar[int] = 6
    unknown: int


class Advertise(Event, frozen=True):
    """What I lend you. ``(epoch, seq)`` orders offers over restarts; ``ttl`` is in seconds from receipt."""

    number: ClassVar[int] = 7
    epoch: int
    seq: int
    ttl: int
    offer: Offer


class Verdict(Event, frozen=True):
    """What I say to your offer: Accepted, Refused or Pending, with a reason."""

    number: ClassVar[int] = 8
    epoch: int
    seq: int
    decision: str
    reason: str = ""
    message: str = ""


class Withdraw(Event, frozen=True):
    """I take back what I lend you (from the lender), or I no longer use it (from the borrower)."""

    number: ClassVar[int] = 9
    epoch: int
    role: str
    reason: str = ""


class Withdrawn(Event, frozen=True):
    """The withdrawal is done on my side."""

    number: ClassVar[int] = 10
    epoch: int
    role: str


class Credential(Event, frozen=True):
    """How you reach my API server, for ``lifetime`` seconds from receipt.

    ``relay``: over this port, too, with the key of the session and without a token. Without a URL there is no other
    way; only those are told so who say in their Hello that they know the relay.
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
    """Please give my namespace ``local`` a place called ``remote`` in your cluster."""

    number: ClassVar[int] = 12
    request: int
    local: str
    remote: str


class NamespaceMapped(Event, frozen=True):
    """The answer to MapNamespace or ReleaseNamespace; an empty reason means yes."""

    number: ClassVar[int] = 13
    request: int
    remote: str
    reason: str = ""
    message: str = ""


class ReleaseNamespace(Event, frozen=True):
    """I no longer need the namespace ``remote``: delete it, and all that is in it."""

    number: ClassVar[int] = 14
    request: int
    remote: str


class Network(Event, frozen=True):
    """My pods' networks, and where my end of the tunnel is; an empty key means that I have no tunnel (any more).

    ``next_key`` is the key that I shall have next: take it as well from now on, and say so. ``external_six`` is
    a second network of single addresses, of IPv6, where ``external_cidr`` is of IPv4.
    """

    number: ClassVar[int] = 15
    pod_cidrs: list[str]
    external_cidr: str
    endpoints: list[str]
    public_key: str
    mtu: int
    next_key: str = ""
    external_six: str = ""


class NetworkAck(Event, frozen=True):
    """How I see your networks, aligned with what you named; or why I cannot use them.

    ``known_key`` is the next key of yours that my end of the tunnel takes already.
    """

    number: ClassVar[int] = 16
    pod_cidrs: list[str]
    external_cidr: str = ""
    reason: str = ""
    message: str = ""
    known_key: str = ""
    external_six: str = ""


class Join(Event, frozen=True):
    """I was given your pairing token of that name: ``proof`` (hex) shows that I hold its secret, in this session only.

    Sent by a dialer that announced the feature ``joining`` in its Hello, before its Welcome; the listener judges then.
    """

    number: ClassVar[int] = 18
    token: str
    proof: str

    def __repr__(self) -> str:
        return f"Join(token={self.token!r})"


class NewKey(Event, frozen=True):
    """My next key, announced in a session of the present one; since minor 1.

    ``public_key`` is an Ed25519 key (32 bytes, base64), ``proof`` its signature (64 bytes, base64) that holds in this
    session only: what is signed is in ``liqod.identity.rotation``. Both empty: the key announced before will not come.
    """

    number: ClassVar[int] = 19
    public_key: str
    proof: str = ""


class KeyNoted(Event, frozen=True):
    """The answer to NewKey; an empty reason means that the key is on record beside the present one. Since minor 1."""

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
# The number 17 is promised to Probe.
