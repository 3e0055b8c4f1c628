"""Exported addresses for the rest of the daemon, answered from the records; see ``agreement.exports``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs
from twisted.logger import Logger

from liqod.fabric.control.agreement.agreement import LocalNetwork, assigned
from liqod.fabric.control.agreement.exports import ExportPolicy, assign_exports, export_refusal, unnamed
from liqod.model.ids import ClusterID
from liqod.model.records.network import (
    AddressMap,
    Export,
    ExportRequests,
    Network,
    NetworkConfig,
    exported_addresses,
    own_addresses,
    remote_addresses,
)


class NetworkUser(Protocol):
    """The rest of the daemon, as the network sees it: ``kubelet.service.Kubelets``."""

    def export_requests(self, peer: ClusterID) -> ExportRequests:
        """Return the single addresses that a peer has to reach here: reflection asks for them."""
        ...

    def network_changed(self) -> None:
        """Re-evaluate what depends on the network to peers."""
        ...


class NoUser:
    """Asks for nothing, and does not know whether there is more: what was exported stays."""

    def export_requests(self, peer: ClusterID) -> ExportRequests:
        """Return that nothing is asked for, so far."""
        return ExportRequests()

    def network_changed(self) -> None:
        """Ignore it."""


class NetworkConfigs(Protocol):
    """The NetworkConfigs of all peers: ``control.records.NetworkRecords``."""

    def config(self, peer: ClusterID) -> NetworkConfig | None:
        """Return the exchange with a peer, or None."""
        ...

    def configs(self) -> list[NetworkConfig]:
        """Return the exchanges with all peers."""
        ...


@attrs.frozen
class _View:
    """A record of a peer, and the address translation that follows from it."""

    config: NetworkConfig
    own: AddressMap
    peer: AddressMap
    singles: Mapping[str, str]

    def pod(self, address: str) -> str:
        """Return how the peer reaches a pod of ours, or, by its own address, one of its own; else nothing."""
        return self.own.seen(address) or self.peer.original(address)


@attrs.define
class _Peer:
    """What was derived for one peer, and what from: exports from ``inputs``, whose first is the policy."""

    view: _View | None = None
    inputs: tuple[ExportPolicy, Sequence[Export], ExportRequests] | None = None
    unnamed: frozenset[str] = frozenset()
    exports: list[Export] = attrs.Factory(list)
    left_out: list[str] = attrs.Factory(list)

    @property
    def policy(self) -> ExportPolicy | None:
        return None if self.inputs is None else self.inputs[0]


class ExportedAddresses:
    """The addresses that peers reach here besides pods; ``user`` asks for those that a peer has to reach.

    ``closed`` is the policy: nothing is open as a whole but pods.
    """

    _log = Logger()

    def __init__(self, records: NetworkConfigs, *, closed: bool, user: NetworkUser | None = None) -> None:
        self._records = records
        self._closed = closed
        self.user: NetworkUser = user or NoUser()
        self._peers: dict[ClusterID, _Peer] = {}

    def seen(self, peer: ClusterID, address: str) -> str:
        """Return how a peer's pods reach an address here; empty while (or because) they cannot."""
        view = self._view(peer)
        return "" if view is None else view.pod(address) or view.singles.get(address, "")

    def is_single(self, peer: ClusterID, address: str) -> bool:
        """Return whether an address has to be exported to be reached: it is neither of our pods nor of the peer's."""
        view = self._view(peer)
        return view is not None and bool(view.config.status.ack.pod_cidrs) and not view.pod(address)

    def _view(self, peer: ClusterID) -> _View | None:
        """Return the view of a peer's record; it is derived again only when the record changed."""
        config = self._records.config(peer)
        if config is None:
            return None
        known = self._peers.setdefault(peer, _Peer())
        if known.view is None or known.view.config is not config:
            known.view = _View(config, own_addresses(config), remote_addresses(config), exported_addresses(config))
        return known.view

    def objection(self, peer: ClusterID, address: str) -> str:
        """Return why a peer cannot reach an address that has to be exported, as the rest of a sentence; or nothing."""
        known = self._peers.get(peer) or _Peer()
        if known.policy is None:
            return ""
        return export_refusal(address, known.policy, whole=address in known.unnamed)

    def limits(self, peer: ClusterID) -> object:
        """Return what decides which addresses a peer may reach, to be compared."""
        known = self._peers.get(peer) or _Peer()
        return known.policy, known.unnamed

    def assign(self, local: LocalNetwork, config: NetworkConfig) -> list[Export]:
        """Return the exports to write to the record of a peer."""
        peer = ClusterID(config.metadata.name)
        policy = _policy(local, config, self._records.configs(), closed=self._closed)
        inputs = policy, config.spec.exports, self.user.export_requests(peer)
        known = self._peers.setdefault(peer, _Peer())
        if known.inputs == inputs:
            return known.exports
        exports, left_out = assign_exports(*inputs)
        known.inputs, known.unnamed, known.exports = inputs, unnamed(inputs[2]), exports
        if left_out != known.left_out:
            self._log.warn(
                "{count} addresses are not exported to {peer}: no free external address (NoExternalAddress)",
                count=len(left_out),
                peer=peer,
            )
            known.left_out = left_out
        return exports

    def keep(self, peers: set[ClusterID]) -> None:
        """Drop what is cached for all other peers."""
        for peer in self._peers.keys() - peers:
            del self._peers[peer]


def _policy(local: LocalNetwork, config: NetworkConfig, everyone: list[NetworkConfig], *, closed: bool) -> ExportPolicy:
    peer: list[Network] = []
    transit: list[Network] = []
    foreign: list[Network] = []
    for one in everyone:
        networks = assigned(one.spec.remap)
        pods = networks[: len(one.spec.remap.pod_cidrs)]
        foreign += networks[len(pods) :]
        (peer if one.metadata.name == config.metadata.name else transit).extend(pods)
    ack = config.status.ack
    # A peer whose release has no second external network, or that has no free one for it, acknowledges without it.
    externals = local.externals if ack.external_six or not ack.pod_cidrs else (local.external,)
    return ExportPolicy(local.pods, local.services, externals, tuple(peer), tuple(transit), tuple(foreign), closed)
