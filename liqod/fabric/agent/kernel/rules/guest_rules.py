"""The rules by which a peer's pods here reach each other, and home's Services, by their home's addresses. Pure.

A packet of a pod passes the rules of its own host first, so the same stand on every host with an agent. The set
``guests_`` has the only sources for which they hold, and the map ``home_`` the only destinations: whatever range the
peer chooses, traffic of other pods is not touched. The source is kept: as between any two pods of a cluster, replies
need it. Where pods of one host share a bridge, replies pass conntrack only with br_netfilter, which kube-proxy needs
there for the same reason (Kubernetes, "Network Plugins").
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from liqod.fabric.state.guests import Guests
from liqod.fabric.state.network import ServiceMap
from liqod.model.ids import ClusterID

_FAMILIES = ((4, "ip"), (6, "ip6"))


def guest_sets(everyone: Iterable[Guests]) -> Mapping[str, frozenset[str]]:
    """Return the named sets of guests, and the maps from their home's addresses to their own."""
    found = {}
    for guests, version, _ in _present(everyone):
        found[_name("guests", guests, version)] = guests.of_version(version)
        pairs = guests.seen_by_home(version).items()
        found[_name("home", guests, version)] = frozenset(f"{seen} : {ours}" for seen, ours in pairs)
        found[_name("self", guests, version)] = frozenset(f"{one} . {one}" for one in guests.of_version(version))
        if _services(guests, version):
            found[_name("own", guests, version)] = frozenset(
                one for one in guests.own_services if (":" in one) == (version == 6)
            )
    return found


def to_guests(everyone: Iterable[Guests]) -> list[str]:
    """Return the prerouting rules for the first packet of a connection from a guest."""
    rules = []
    for guests, version, family in _present(everyone):
        head = f"{family} saddr @{_name('guests', guests, version)}"
        home = _name("home", guests, version)
        # An address that is not in the map does not match, and the next rule is tried.
        rules.append(f"{head} dnat {family} to {family} daddr map @{home}")
        # Of a guest that is not here (yet): without a drop a flow of datagrams would be confirmed without translation,
        # and keep going nowhere after the guest is here, for as long as packets come.
        rules.append(f"{head} {family} daddr {_ranges(guests, version)} drop")
        for one in _services(guests, version):
            # Before kube-proxy: where the same address is a Service here, only what these pods use of those is theirs.
            own = _name("own", guests, version)
            rules.append(
                f"{head} {family} daddr {one.services} {family} daddr != @{own} dnat {family} prefix to {one.seen}"
            )
    return rules


def from_guests(everyone: Iterable[Guests]) -> list[str]:
    """Return the postrouting rules: a guest that calls itself gets the host's address as the caller's.

    A host drops what has its own address as its source (RFC 1812, section 5.3.8, martian addresses); so does a pod.
    """
    return [
        f"{family} saddr . {family} daddr @{_name('self', guests, version)} "
        f"ct original {family} daddr {_ranges(guests, version)} masquerade"
        for guests, version, family in _present(everyone)
    ]


def peer_digest(peer: ClusterID) -> str:
    """Return a peer's part of the names of its sets."""
    # The whole digest: the ID is the peer's choice, and two peers whose sets had one name would share their pods.
    return hashlib.sha256(peer.encode()).hexdigest()


def _present(everyone: Iterable[Guests]) -> Iterator[tuple[Guests, int, str]]:
    for guests in everyone:
        for version, family in _FAMILIES:
            if guests.of_version(version):
                yield guests, version, family


def _services(guests: Guests, version: int) -> list[ServiceMap]:
    return [one for one in guests.services if one.services.version == version]


def _ranges(guests: Guests, version: int) -> str:
    return "{ " + ", ".join(map(str, guests.ranges(version))) + " }"


def _name(what: str, guests: Guests, version: int) -> str:
    return f"{what}_{peer_digest(guests.peer)}_{version}"
