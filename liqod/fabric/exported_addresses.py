"""What the rest of the daemon asks about exported addresses, answered from the records; see ``fabric.exports``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs
from twisted.logger import Logger

from liqod.fabric.agreement.agreement import Own, given
from liqod.fabric.agreement.exports import Grounds, given_exports, objection, unnamed
from liqod.fabric.records import Records
from liqod.model.ids import ClusterID
from liqod.model.records.network import (
    AddressMap,
    Claims,
    Export,
    Network,
    NetworkConfig,
    exported_addresses,
    own_addresses,
    remote_addresses,
)


@attrs.frozen
class _View:
    """A record of a peer, and how addresses read by it."""

    config: NetworkConfig
    own: AddressMap
    peer: AddressMap
    singles: Mapping[str, str]

    def pod(self, address: str) -> str:
        """Return how the peer reaches a pod of ours, or, by its own address, one of its own; else nothing."""
        return self.own.seen(address) or self.peer.original(address)


class Exporting:
    """The addresses that peers reach here besides pods; ``claims`` tells which ones a peer has to reach.

    ``closed`` is the policy: nothing is open as a whole but pods.
    """

    _log = Logger()

    def __init__(self, records: Records, claims: Callable[[ClusterID], Claims], *, closed: bool) -> None:
        self._records = records
        self._closed = closed
        self._claims = claims
        self._views: dict[ClusterID, _View] = {}
        self._grounds: dict[ClusterID, Grounds] = {}
        self._unnamed: dict[ClusterID, frozenset[str]] = {}
        self._given: dict[ClusterID, tuple[object, list[Export]]] = {}
        self._without: dict[ClusterID, list[str]] = {}

    def seen(self, peer: ClusterID, address: str) -> str:
        """Return how a peer's pods reach an address here; empty while (or because) they cannot."""
        view = self._view(peer)
        return "" if view is None else view.pod(address) or view.singles.get(address, "")

    def is_single(self, peer: ClusterID, address: str) -> bool:
        """Tell whether an address has to be claimed to be reached: it is neither of our pods nor of the peer's."""
        view = self._view(peer)
        return view is not None and bool(view.config.status.ack.pod_cidrs) and not view.pod(address)

    def _view(self, peer: ClusterID) -> _View | None:
        """Return what the record of a peer says, read once for as long as it says that."""
        config = self._records.config(peer)
        if config is None:
            return None
        view = self._views.get(peer)
        if view is None or view.config is not config:
            view = _View(config, own_addresses(config), remote_addresses(config), exported_addresses(config))
            self._views[peer] = view
        return view

    def objection(self, peer: ClusterID, address: str) -> str:
        """Return why a peer cannot reach an address that has to be claimed, as the rest of a sentence; or nothing."""
        grounds = self._grounds.get(peer)
        whole = address in self._unnamed.get(peer, ())
        return objection(address, grounds, whole=whole) if grounds is not None else ""

    def given(self, own: Own, config: NetworkConfig) -> list[Export]:
        """Return what the record of a peer should say is exported to it."""
        peer = ClusterID(config.metadata.name)
        grounds = _grounds(own, config, self._records.configs(), closed=self._closed)
        asked = grounds, config.spec.exports, self._claims(peer)
        known = self._given.get(peer)
        if known is not None and known[0] == asked:
            return known[1]
        self._grounds[peer] = grounds
        self._unnamed[peer] = unnamed(asked[2])
        exports, without = given_exports(*asked)
        self._given[peer] = asked, exports
        if without != self._without.get(peer, []):
            self._log.warn(
                "{count} addresses are not exported to {peer}: there is no room (NoExternalAddress)",
                count=len(without),
                peer=peer,
            )
            self._without[peer] = without
        return exports

    def keep(self, peers: set[ClusterID]) -> None:
        """Forget what is known about all other peers."""
        for known in (self._grounds, self._unnamed, self._given, self._without, self._views):
            for peer in known.keys() - peers:
                del known[peer]


def _grounds(own: Own, config: NetworkConfig, everyone: list[NetworkConfig], *, closed: bool) -> Grounds:
    peer: list[Network] = []
    transit: list[Network] = []
    foreign: list[Network] = []
    for one in everyone:
        networks = given(one.spec.remap)
        pods = networks[: len(one.spec.remap.pod_cidrs)]
        foreign += networks[len(pods) :]
        (peer if one.metadata.name == config.metadata.name else transit).extend(pods)
    ack = config.status.ack
    # A peer whose release knows of no second network, or that has no room for it, has answered without it.
    externals = own.externals if ack.external_six or not ack.pod_cidrs else (own.external,)
    return Grounds(own.pods, own.services, externals, tuple(peer), tuple(transit), tuple(foreign), closed)
