"""What the rest of the daemon asks about exported addresses, answered from the records; see ``fabric.exports``."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger

from liqod.fabric.agreement import Own, given
from liqod.fabric.exports import Grounds, given_exports, objection
from liqod.fabric.records import Records
from liqod.model.ids import ClusterID
from liqod.model.network import (
    Claims,
    Export,
    Network,
    NetworkConfig,
    exported_addresses,
    own_addresses,
    remote_addresses,
)


class Exporting:
    """The addresses that peers reach here besides pods; ``claims`` tells which ones a peer has to reach."""

    _log = Logger()

    def __init__(self, records: Records, claims: Callable[[ClusterID], Claims]) -> None:
        self._records = records
        self._claims = claims
        self._grounds: dict[ClusterID, Grounds] = {}
        self._without: dict[ClusterID, list[str]] = {}

    def seen(self, peer: ClusterID, address: str) -> str:
        """Return how a peer's pods reach an address here; empty while (or because) they cannot."""
        config = self._records.config(peer)
        if config is None:
            return ""
        # The peer's own pods it reaches by their own addresses.
        pod = own_addresses(config).seen(address) or remote_addresses(config).original(address)
        return pod or exported_addresses(config).get(address, "")

    def is_single(self, peer: ClusterID, address: str) -> bool:
        """Tell whether an address has to be claimed to be reached: it is neither of our pods nor of the peer's."""
        config = self._records.config(peer)
        if config is None or not config.status.ack.pod_cidrs:
            return False
        return not (own_addresses(config).seen(address) or remote_addresses(config).original(address))

    def objection(self, peer: ClusterID, address: str) -> str:
        """Return why a peer cannot reach an address that has to be claimed, as the rest of a sentence; or nothing."""
        grounds = self._grounds.get(peer)
        why = objection(address, grounds) if grounds is not None else ""
        if not why and address in self._without.get(peer, ()):
            why = "finds no room among the addresses that are exported; network.external-cidr is too small"
        return why

    def given(self, own: Own, config: NetworkConfig) -> list[Export]:
        """Return what the record of a peer should say is exported to it."""
        peer = ClusterID(config.metadata.name)
        self._grounds[peer] = grounds = _grounds(own, config, self._records.configs())
        exports, without = given_exports(grounds, config.spec.exports, self._claims(peer))
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
        for known in (self._grounds, self._without):
            for peer in known.keys() - peers:
                del known[peer]


def _grounds(own: Own, config: NetworkConfig, everyone: list[NetworkConfig]) -> Grounds:
    peer: list[Network] = []
    transit: list[Network] = []
    foreign: list[Network] = []
    for one in everyone:
        networks = given(one.spec.remap)
        pods = networks[: len(one.spec.remap.pod_cidrs)]
        foreign += networks[len(pods) :]
        (peer if one.metadata.name == config.metadata.name else transit).extend(pods)
    return Grounds(own.pods, own.services, own.external, tuple(peer), tuple(transit), tuple(foreign))
