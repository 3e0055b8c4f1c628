"""The fabric of one host: looks at the records and at the kernel, and makes the second follow the first.

There is one loop, and one turn of it is always the same, whatever it was that changed:

    records of peers -> what each is told and given (written before it is used) -> what the kernel should hold
    -> what it holds -> the commands in between -> probes -> what the records say about it
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import CannotListenError

from liqod.config.schema import Settings
from liqod.fabric.agreement.agreement import Own, agree, allocation, hosts_of
from liqod.fabric.agreement.key import TunnelKey
from liqod.fabric.agreement.keyring import KeyRing
from liqod.fabric.agreement.validation import Remote
from liqod.fabric.cluster_networks import Place
from liqod.fabric.converge import Turns
from liqod.fabric.exported_addresses import Exporting
from liqod.fabric.kernel import device as devices
from liqod.fabric.kernel.address_watch import AddressWatch
from liqod.fabric.kernel.host import Kernel, apply, checked, observe
from liqod.fabric.kernel.host_facts import host_addresses, tunnel_mtu, uplink_mtu
from liqod.fabric.kernel.model import INWARD, Desired, Link, Observed, Overlay, Step, first_of
from liqod.fabric.kernel.plan import plan, removal
from liqod.fabric.kernel.routes import host_networks
from liqod.fabric.kernel.vxlan import VNI, device_name, overlay_mtu
from liqod.fabric.probing.ping import Pinger
from liqod.fabric.probing.pod_reachability import cut_of
from liqod.fabric.probing.probe import Prober
from liqod.fabric.records import Records
from liqod.fabric.status import Agreed
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.model.ids import ClusterID
from liqod.model.records.network import (
    AddressMap,
    Claims,
    Gateway,
    Network,
    NetworkConfig,
    Subnets,
    own_addresses,
    remote_addresses,
)
from liqod.model.records.offer import Refusal


def _no_claims(_: ClusterID) -> Claims:
    return Claims()


class Fabric(Turns):
    """Pod traffic with all peers, on the host that is the cluster's gateway.

    ``claims`` tells which single addresses a peer has to reach; ``look`` is to be called when that changed.
    """

    def __init__(
        self,
        reactor: Any,
        client: Client,
        informers: Informers,
        settings: Settings,
        address: str,
        *,
        kernel: Kernel | None = None,
        environ: Mapping[str, str] = os.environ,
        on_change: Callable[[], None] = lambda: None,
        claims: Callable[[ClusterID], Claims] = _no_claims,
    ) -> None:
        super().__init__(reactor, kernel, "connecting the network")
        self._client = client
        self._settings = settings
        self._address = address
        self._under_systemd = devices.is_under_systemd(dict(environ))
        self._place = Place(client, informers, settings.network, self._poke)
        self._records = Records(client, reactor, informers, self._poke)
        self._prober = Prober(reactor, self._poke)
        self._pinger = Pinger(reactor, self._poke)
        if kernel is None:
            AddressWatch(reactor, self._poke).setServiceParent(self)
        self._on_change = on_change
        self.exporting = Exporting(self._records, claims, closed=settings.network.policy == "closed")
        self._ring = KeyRing(client, reactor, informers, settings.kubernetes.namespace, self._poke)
        self._create: tuple[str, ...] = ()
        self._agreed: dict[ClusterID, Agreed] = {}
        self._uplink = 0
        self._addresses: frozenset[str] = frozenset()
        self._settled_at: frozenset[str] = frozenset()
        self._observed = Observed()

    # For the rest of the daemon.

    def addresses(self, peer: ClusterID) -> AddressMap:
        """Return how a peer's pod addresses read here."""
        config = self._records.config(peer)
        return remote_addresses(config) if config is not None else AddressMap()

    def map_address(self, peer: ClusterID, address: str) -> str:
        """Return how one pod address of a peer reads here; empty while that is not known."""
        return self.addresses(peer).seen(address)

    def families(self, peer: ClusterID) -> frozenset[str]:
        """Return the IP versions of a peer's pods, in the words of Kubernetes; none while they are not known."""
        words = {4: "IPv4", 6: "IPv6"}
        return frozenset(words[seen.version] for _, seen in self.addresses(peer).pairs)

    def export_address(self, peer: ClusterID, address: str) -> str:
        """Return how a peer's pods reach one of our pod addresses; empty while that is not known.

        Other addresses have one only where they were claimed: ``exporting`` knows those.
        """
        config = self._records.config(peer)
        return own_addresses(config).seen(address) if config is not None else ""

    def standing(self, peer: ClusterID) -> tuple[bool | None, str]:
        """Tell whether packets cross to a peer now (None: not known yet), and why not."""
        health, config = self._prober.health.get(peer), self._records.config(peer)
        now = self._reactor.seconds()
        if health is not None and health.crosses(now):
            cut = cut_of(self._pinger.paths_to(peer), now)
            if cut is not None:
                return not cut.whole, cut.message
            return True, "packets cross in both directions"
        if config is not None and config.status.phase == "Refused":
            return False, config.status.message
        if (health is None or health.fresh(now)) and self._records.was_connected(peer):
            return True, "packets crossed before this daemon started"
        if health is None or health.undecided(now):
            return None, "no packet has crossed to the peer's network yet"
        return False, "packets do not cross to the peer's network"

    def look(self) -> None:
        """Have the network looked at again, because what is claimed changed."""
        self._poke()

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when what was agreed earlier is known."""
        return self._records.when_synced()

    async def preview(self) -> tuple[Step, ...]:
        """Return what a turn would do on this host now; nothing is written, neither there nor in the records."""
        parts = (self._records, self._place, self._ring)
        await gatherResults([part.when_synced() for part in parts], consumeErrors=True)
        configs = self._records.configs()
        device = self._settings.network.device
        if not configs:
            return removal(device, await observe(self._kernel, device))
        own = await self._own()
        self._observed = await observe(self._kernel, device)
        for config in sorted(configs, key=_seniority):
            try:
                found = agree(own, config, config.spec.remap, self._other_keys(), self._others(config))
            except Refusal:
                continue
            if found is not None:
                self._accept(config, *found)
        desired = self._desired(own, (await self._ring.keys()).current)
        return plan(desired, self._observed, self._reactor.seconds())

    # Life.

    async def _listen(self) -> None:
        parts = (self._records, self._place, self._ring)
        await gatherResults([part.when_synced() for part in parts], consumeErrors=True)
        self._records.begin()

    def _deafen(self) -> None:
        self._prober.close()
        self._pinger.close()
        self._records.end()
        self._place.end()
        self._ring.end()

    async def remove_all(self) -> None:
        """Leave nothing of the fabric on this host."""
        self._prober.close()
        device = self._settings.network.device
        await apply(self._kernel, removal(device, await observe(self._kernel, device)))

    # One turn.

    async def _turn(self) -> None:
        await self._records.follow_peers()
        configs = self._records.configs()
        if not configs:
            await self._idle()
            return
        await self._ring.advance(configs)
        own = await self._own()
        avoided = await self._avoided(configs)
        self._agreed = {}
        self.exporting.keep({ClusterID(config.metadata.name) for config in configs})
        for config in sorted(configs, key=_seniority):
            await self._negotiate(own, config, avoided)
        await self._converge(own, (await self._ring.keys()).current)
        await self._tell()

    async def _idle(self) -> None:
        """Without peers there is nothing of us on the host: what a predecessor left goes as well."""
        device = self._settings.network.device
        self._agreed = {}
        self._prober.aim({}, 0)
        self._prober.close()
        self._pinger.aim({})
        self._pinger.close()
        self._observed = await observe(self._kernel, device)
        await self._carry_out(removal(device, self._observed), "there is no peer (any more): all is removed")
        await self._records.drop_tunnels(())
        # The key is this cluster's own, not a peering's: it is there before the first one, and stays after the last.
        await self._ring.keys()

    async def _own(self) -> Own:
        """Return this cluster's side; raises Foreseen while something is not known."""
        network = self._settings.network
        keys = await self._ring.keys()
        if not self._create:
            self._create = await devices.creation(self._kernel, network.device, under_systemd=self._under_systemd)
        shown = (await checked(self._kernel, ("ip", "-j", "addr", "show"))).out
        self._addresses = host_addresses(shown, (network.device, device_name(network.device)))
        # While a host has its address no more, what was known of its link holds.
        self._uplink = uplink_mtu(shown, self._address) or self._uplink
        mtu = tunnel_mtu(network.mtu, self._uplink)
        return await self._place.own(keys.current.public, keys.next.public if keys.next else "", self._address, mtu)

    async def _avoided(self, configs: list[NetworkConfig]) -> list[Network]:
        """Return where this host's routes and all tunnels lead: no peer is given that as long as there is other."""
        ends = [one for config in configs for one in hosts_of(config.status.remote.endpoints)]
        shown = [
            await checked(self._kernel, ("ip", f"-{version}", "-j", "route", "show", "table", "all"))
            for version in (4, 6)
        ]
        return [*ends, *(one for output in shown for one in host_networks(output.out, self._settings.network.device))]

    async def _negotiate(self, own: Own, config: NetworkConfig, avoided: list[Network]) -> None:
        """Tell one peer what it should know; when both sides know all, there is a link."""
        others = self._others(config)
        remap = allocation(own, config, others, avoided)
        if self._observed.tunnel is not None and config.status.remote.next_key in self._observed.tunnel.peers:
            remap = msgspec.structs.replace(remap, known_key=config.status.remote.next_key)
        # Given is what the record says: it is written before anything relies on it.
        config = await self._records.tell(config, own.side, remap, self.exporting.given(own, config))
        try:
            found = agree(own, config, remap, self._other_keys(), others)
        except Refusal as refusal:
            await self._records.explain(config, "Refused", refusal.reason, refusal.message)
            return
        if found is None:
            await self._records.explain(config, "Pending", "WaitingForPeer", "the peer has not told its network yet")
            return
        self._accept(config, *found)
        await self._records.explain(config, "Agreed", "Agreed", "both clusters know how each sees the other")

    def _others(self, config: NetworkConfig) -> list[Subnets]:
        """Return what the other peers have."""
        return [one.spec.remap for one in self._records.configs() if one.metadata.name != config.metadata.name]

    def _accept(self, config: NetworkConfig, remote: Remote, link: Link) -> None:
        """Take a link as agreed, with what is known here about the path and the pods."""
        peer = ClusterID(config.metadata.name)
        health = self._prober.health.get(peer)
        # What was measured before this daemon started holds until it is measured again.
        measured = (health.mtu if health is not None else 0) or self._records.path_mtu(peer)
        link = attrs.evolve(
            link, mtu=min(link.mtu, measured) if measured else link.mtu, pods=self._place.pods_for(peer)
        )
        endpoint = self._records.endpoint(peer, remote, self._observed, link.public_key)
        gateway = Gateway(address=self._address, vni=VNI, port=self._settings.network.overlay_port)
        self._agreed[peer] = Agreed(remote, attrs.evolve(link, endpoint=endpoint), gateway)

    def _other_keys(self) -> set[str]:
        """Return the keys of the peers that were dealt with already."""
        links = [agreed.link for agreed in self._agreed.values()]
        return {key for link in links for key in (link.public_key, link.next_key) if key}

    async def _converge(self, own: Own, key: TunnelKey) -> None:
        desired = self._desired(own, key)
        self._observed = await observe(self._kernel, desired.device)
        await self._carry_out(plan(desired, self._observed, self._reactor.seconds()), "the network changes")
        if self._plan:
            self._observed = await observe(self._kernel, desired.device)
            if any(link.next_key for link in desired.links):
                # Now it is taken: the next turn says so.
                self._poke()
        self._settled_at = self._addresses
        self._probe(own, desired)

    def _desired(self, own: Own, key: TunnelKey) -> Desired:
        network = self._settings.network
        return Desired(
            device=network.device,
            create=self._create,
            listen_port=network.listen_port,
            probe_port=network.probe_port,
            public_key=key.public,
            private_key=key.private,
            mtu=own.mtu,
            addresses=tuple(map(first_of, own.externals)),
            links=tuple(agreed.link for _, agreed in sorted(self._agreed.items())),
            overlay=self._overlay(),
            moved=not self._settled_at <= self._addresses,
        )

    def _overlay(self) -> Overlay | None:
        """Return what leads to the pods of this cluster's other hosts; None where none of them takes part."""
        ends = self._place.ends(self._address)
        if not ends:
            return None
        network = self._settings.network
        return Overlay(
            device=device_name(network.device),
            vni=VNI,
            port=network.overlay_port,
            local=self._address,
            mtu=overlay_mtu(self._uplink, self._address),
            ends=ends,
            table=INWARD,
            source=network.device,
        )

    def _probe(self, own: Own, desired: Desired) -> None:
        targets: dict[str, str] = {}
        for peer, agreed in self._agreed.items():
            if agreed.remote.external is not None:
                external = agreed.link.remote[len(agreed.remote.pods)]
                targets[peer] = str(first_of(external).network_address)
        try:
            self._prober.bind(self._reactor, str(own.gateway.network_address), desired.probe_port)
        except CannotListenError as error:
            self._log.warn("probes cannot be sent: {error}", error=str(error))
        self._prober.aim(targets, desired.mtu)
        pods = {
            (str(peer), version): pod
            for peer, agreed in self._agreed.items()
            for version, pod in self._place.pods_of(agreed.link.remote, self._pinger.present(peer)).items()
        }
        self._pinger.open([str(first_of(external).network_address) for external in own.externals])
        self._pinger.aim(pods)

    async def _tell(self) -> None:
        """Write down how the tunnels are."""
        now = self._reactor.seconds()
        for peer, agreed in sorted(self._agreed.items()):
            health = self._prober.health.get(peer)
            await self._records.describe(
                peer,
                agreed,
                self._observed,
                health,
                self._pinger.paths_to(peer),
                self._settings.network.device,
                now,
                _rfc3339(now),
            )
        await self._records.drop_tunnels(self._agreed)
        self._on_change()


def _seniority(config: NetworkConfig) -> tuple[bool, str]:
    """Sort those with whom all was agreed first: what they hold is not given to others."""
    return config.status.phase != "Agreed", config.metadata.name


def _rfc3339(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
