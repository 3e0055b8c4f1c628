"""Addresses of peers: sightings of discovery, and addresses whose cluster is not known until a peer answers there.

Sightings are unauthenticated (mDNS can be forged): they are only hints where to dial.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import attrs

from liqod.model.host_port import join_address
from liqod.model.ids import ClusterID, is_dns_label
from liqod.model.records.views import Endpoint
from liqod.peering.ports import Sighting
from liqod.peering.session.dialer import Dialer
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection

MAX_SIGHTINGS: Final = 2048
"""Sightings at most: the number of announcements in a network has no other bound."""
MAX_SIGHTINGS_PER_PEER: Final = 8


@attrs.define
class UnnamedAddress:
    """An address without a known cluster; ``cluster_id`` is the cluster that answered there."""

    endpoint: Endpoint
    dialer: Dialer
    cluster_id: ClusterID | None = None


class Dialers(Protocol):
    """What dials the addresses of the book: ``sessions.Sessions``."""

    def peer(self, cluster_id: ClusterID) -> Peer:
        """Return a peer; creates an unknown one with its dialer."""

    def unnamed_dialer(self, address: str, fingerprint: str) -> Dialer:
        """Return a new dialer of an address at which only a given key (or any, if empty) is expected."""

    def sightings_changed(self, peer: Peer) -> None:
        """The addresses at which a peer is sighted changed."""


class AddressBook:
    """Assigns sightings to peers."""

    def __init__(self, me: ClusterID, peers: Mapping[ClusterID, Peer], dialers: Dialers) -> None:
        self.ready = False
        self._me = me
        self._peers = peers
        self._dialers = dialers
        self._unnamed: dict[str, UnnamedAddress] = {}
        self._sighted: dict[ClusterID, tuple[Endpoint, ...]] = {}

    def start(self) -> None:
        """Start to dial the addresses without a known cluster."""
        self.ready = True
        for unnamed in self._unnamed.values():
            unnamed.dialer.link.wake()

    def stop(self) -> None:
        """Stop dialling them."""
        for unnamed in self._unnamed.values():
            unnamed.dialer.link.stop()

    def at(self, address: str) -> UnnamedAddress | None:
        """Return the entry of an address without a known cluster, or None."""
        return self._unnamed.get(address)

    def update(self, sightings: Iterable[Sighting]) -> None:
        """Replace all sightings; a peer without a sighting is kept."""
        by_peer: dict[ClusterID, dict[str, Endpoint]] = {}
        nameless: dict[str, tuple[Endpoint, str]] = {}
        for number, sighting in enumerate(sightings):
            if number >= MAX_SIGHTINGS:
                break
            endpoint = Endpoint(join_address(sighting.host, sighting.port), sighting.source)
            if not sighting.cluster_id:
                nameless[endpoint.address] = (endpoint, sighting.fingerprint)
            elif sighting.cluster_id != self._me and is_dns_label(sighting.cluster_id):
                found = by_peer.setdefault(ClusterID(sighting.cluster_id), {})
                if len(found) < MAX_SIGHTINGS_PER_PEER:
                    found[endpoint.address] = endpoint
        self._sighted = {peer: tuple(found.values()) for peer, found in by_peer.items()}
        self._update_unnamed(nameless)
        self.assign_sightings()

    def _update_unnamed(self, nameless: Mapping[str, tuple[Endpoint, str]]) -> None:
        for address in [address for address in self._unnamed if address not in nameless]:
            self._unnamed.pop(address).dialer.link.stop()
        for address, (endpoint, fingerprint) in nameless.items():
            if address not in self._unnamed:
                dialer = self._dialers.unnamed_dialer(address, fingerprint)
                self._unnamed[address] = UnnamedAddress(endpoint, dialer)
                if self.ready:
                    dialer.link.wake()

    def assign_sightings(self) -> None:
        """Assign each peer the addresses it is seen at, and dial the peers whose addresses changed.

        Call it when another cluster answers at an address: the one before may not be seen anywhere else.
        """
        seen: dict[ClusterID, list[Endpoint]] = {peer: list(found) for peer, found in self._sighted.items()}
        for unnamed in self._unnamed.values():
            if unnamed.cluster_id is not None:
                seen.setdefault(unnamed.cluster_id, []).append(unnamed.endpoint)
        for cluster_id in seen:
            self._dialers.peer(cluster_id)
        for peer in list(self._peers.values()):
            now = tuple(seen.get(peer.id, ()))
            if now == peer.sightings:
                continue
            peer.sightings = now
            self._dialers.sightings_changed(peer)

    def resolve(self, connection: PeerConnection, claimed: ClusterID) -> None:
        """Record which cluster answered at an address; from now on its own dialer dials there."""
        unnamed = self._unnamed.get(connection.address)
        if unnamed is not None and connection.role == "dialer" and unnamed.cluster_id != claimed:
            unnamed.cluster_id = claimed
            unnamed.dialer.link.connected()
            # Set here, ``assign_sightings`` finds no change, and wakes no dialer: this connection is under way.
            endpoints = (*self._dialers.peer(claimed).sightings, unnamed.endpoint)
            self._dialers.peer(claimed).sightings = tuple(dict.fromkeys(endpoints))
            self.assign_sightings()
