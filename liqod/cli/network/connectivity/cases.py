"""The paths that ``test`` tries: from where to where, by what, and whether an answer is right. Pure.

Each case is one container of a client pod. Home is this cluster; a peer is known by its number in the run, which is in
the names of its objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

import attrs

Way = Literal["pod", "service", "clusterip", "dns", "headless", "nodeport", "ingress", "api", "large", "policy"]
WAYS: Final[tuple[Way, ...]] = (
    "pod",
    "service",
    "clusterip",
    "dns",
    "headless",
    "nodeport",
    "ingress",
    "api",
    "large",
    "policy",
)
By = Literal["address", "service", "name", "node", "ingress", "api"]
"""What leads to the server: its own address, its service's, a name, a port of a node, an ingress, the API's name."""

HERE: Final = "here"
CLOSED_HERE: Final = "closed-here"
ALLOWED_HERE: Final = "allowed-here"
HOME: Final = ""
"""In place of a cluster ID: this cluster."""


@attrs.frozen
class TestedPeer:
    """A peer in a run: cluster ID, its name for people, its number, and whether a tunnel leads there."""

    id: str
    name: str
    number: int
    tunnel: bool = attrs.field(default=True, kw_only=True)

    @property
    def there(self) -> str:
        """The name of the server at the peer, and of its service."""
        return f"there-{self.number}"

    @property
    def closed_there(self) -> str:
        """The name of the server at the peer that a policy closes."""
        return f"closed-there-{self.number}"

    @property
    def allowed_there(self) -> str:
        """The name of the client at the peer that the policy admits."""
        return f"allowed-there-{self.number}"

    @property
    def from_here(self) -> str:
        """The name of the client in this cluster."""
        return f"from-here-{self.number}"

    @property
    def from_there(self) -> str:
        """The name of the client at the peer."""
        return f"from-there-{self.number}"


@attrs.frozen(kw_only=True)
class Case:
    """One attempt: the ``client`` pod calls the ``server`` by a path; ``source`` and ``target`` are cluster IDs.

    ``peer`` is the one that it is about, ``name`` the container's, ``silence`` whether no answer is right. ``by`` says
    what leads to the server, ``subject`` which object of the run that is.
    """

    peer: str
    way: Way
    name: str
    client: str
    server: str
    by: By
    source: str = HOME
    target: str = HOME
    silence: bool = False
    large: bool = False

    @property
    def subject(self) -> str:
        """The name of the service or ingress that the case relies on; empty for an address alone."""
        if self.by in ("address", "api"):
            return ""
        return {"headless": f"{self.server}-each", "nodeport": f"{self.server}-node"}.get(self.way, self.server)


def cases(peers: Sequence[TestedPeer], ways: Collection[Way], *, node: bool, ingress: bool) -> list[Case]:
    """Return the cases of a run, in the order in which they are shown.

    ``node``: whether an address of a node of this cluster is known; ``ingress``: whether a class of ingresses is.
    """
    found: list[Case] = []
    for position, peer in enumerate(peers):
        following = peers[(position + 1) % len(peers)]
        found += _of_peer(peer, following if following is not peer else None)
    # That nobody answers is a sign of a policy only where somebody answers without one.
    ways = {*ways, "pod"} if "policy" in ways else ways
    lacking = {way for way, there in (("nodeport", node), ("ingress", ingress)) if not there}
    return [one for one in found if one.way in ways and not (one.way in lacking and one.source == HOME)]


def _of_peer(peer: TestedPeer, following: TestedPeer | None) -> Iterator[Case]:
    for way, by in _BOTH:
        large = way == "large"
        yield _out(peer, way, by, large=large)
        yield _back(peer, way, by, large=large)
    yield _out(peer, "ingress", "ingress")
    # A Service of home by the address that it has at home, which a program may have stored.
    yield _back(peer, "clusterip", "service")
    yield attrs.evolve(_back(peer, "api", "api"), server="")
    if following is not None:
        # A service of home with its pod at another peer: packets go by way of home.
        onward = _back(peer, "service", "service")
        yield attrs.evolve(onward, name="onward", server=following.there, target=following.id)
    yield from _policies(peer)


def _policies(peer: TestedPeer) -> Iterator[Case]:
    """Yield who is admitted and who is not, at the closed server here and at the one at the peer."""
    here = Case(
        peer=peer.id,
        way="policy",
        name=f"allowed-{peer.number}",
        client=ALLOWED_HERE,
        server=CLOSED_HERE,
        by="address",
    )
    from_here = attrs.evolve(here, name="denied-here", client=peer.from_here, silence=True)
    from_there = attrs.evolve(from_here, client=peer.from_there, source=peer.id)
    yield here
    yield from_here
    yield from_there
    # Pods beside the server call its service: the address that home shows is home's view of the pod.
    beside = attrs.evolve(from_there, name="denied-there", server=peer.closed_there, target=peer.id, by="service")
    yield attrs.evolve(beside, name="allowed", client=peer.allowed_there, silence=False)
    yield beside
    yield attrs.evolve(beside, client=peer.from_here, source=HOME, by="address")


_BOTH: Final[tuple[tuple[Way, By], ...]] = (
    ("pod", "address"),
    ("service", "service"),
    ("dns", "name"),
    ("headless", "name"),
    ("nodeport", "node"),
    ("large", "address"),
)
"""The paths that are tried in both directions."""


def _out(peer: TestedPeer, way: Way, by: By, *, large: bool = False) -> Case:
    return Case(
        peer=peer.id, way=way, name=way, client=peer.from_here, server=peer.there, by=by, target=peer.id, large=large
    )


def _back(peer: TestedPeer, way: Way, by: By, *, large: bool = False) -> Case:
    return Case(
        peer=peer.id, way=way, name=way, client=peer.from_there, server=HERE, by=by, source=peer.id, large=large
    )


def servers(peers: Sequence[TestedPeer], wanted: Sequence[Case]) -> list[tuple[str, str]]:
    """Return the servers that cases need: names and clusters, those of this cluster first."""
    known = [(HERE, HOME), (CLOSED_HERE, HOME)]
    known += [(name, peer.id) for peer in peers for name in (peer.there, peer.closed_there)]
    # The server of this cluster is what a namespace begins with, and cheap; that of a peer shows that pods run there.
    needed = {HERE, *(one.server for one in wanted), *(peer.there for peer in peers)}
    return [one for one in known if one[0] in needed]


def clients(wanted: Sequence[Case]) -> dict[str, list[Case]]:
    """Return the cases of each client pod by its name."""
    found: dict[str, list[Case]] = {}
    for one in wanted:
        found.setdefault(one.client, []).append(one)
    return found
