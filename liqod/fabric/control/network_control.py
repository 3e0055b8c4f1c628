"""Controls the network: computes the desired network of the gateway's host from the records, and records the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.config.schema import Settings
from liqod.fabric.control.agent_lease import AgentLease
from liqod.fabric.control.agreed import AgreedPeer
from liqod.fabric.control.agreement.agreement import LocalNetwork, endpoint_networks
from liqod.fabric.control.agreement.mode import decide as decide_mode
from liqod.fabric.control.agreement.mode import refusal
from liqod.fabric.control.cluster_networks import ClusterNetworks, NetworksUnknown
from liqod.fabric.control.exported_addresses import ExportedAddresses
from liqod.fabric.control.negotiation import (
    Verdict,
    agreed_first,
    assigned_to_others,
    assignment,
    judge,
    keys_of_others,
)
from liqod.fabric.control.records import NetworkRecords
from liqod.fabric.state.direct import check_meaning, networks_here
from liqod.fabric.state.guests import callable_guests
from liqod.fabric.state.network import (
    VNI,
    DesiredNetwork,
    DirectLink,
    Link,
    PathKey,
    ProbeTargets,
    first_of,
    probed_gateway,
)
from liqod.fabric.state.report import HostReport, NetworkReport, find_cut
from liqod.fabric.state.services import callable_services, services_as_agreed
from liqod.fabric.state.validation import RemoteNetwork
from liqod.flow.clocks import WallClock
from liqod.flow.controller import Source
from liqod.flow.tasks import together
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.leader import Lease
from liqod.kube.resources import LEASES
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.model.ids import ClusterID
from liqod.model.records.network import (
    DIRECT,
    MAX_DIRECT,
    NETWORK_LEASE,
    NO_TUNNEL,
    UNDECIDED,
    AddressMap,
    Decision,
    Gateway,
    Network,
    NetworkConfig,
    TunnelEndpoint,
    TunnelSide,
    exported_addresses,
    own_addresses,
    paired,
    remote_addresses,
)
from liqod.model.records.offer import Refusal


class NetworkControl:
    """Negotiates with all peers by their records.

    ``is_split``: the network agent is another process, which reads records and writes their status.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        informers: Informers,
        settings: Settings,
        *,
        is_split: bool,
        wall: WallClock,
    ) -> None:
        self._clock = clock
        self._settings = settings.network
        self._is_split = is_split
        self._gateway = ""
        self._networks = ClusterNetworks(
            client, informers, settings.network, settings.kubernetes.api_server_url, names=bool(settings.names.enabled)
        )
        self._records = NetworkRecords(client, clock, informers, wall, mode=settings.network.mode, is_detailed=is_split)
        self._lease: AgentLease | None = None
        if is_split:
            own, named = settings.kubernetes.namespace, f"metadata.name={NETWORK_LEASE}"
            self._lease = AgentLease(informers.of(LEASES, Lease, namespace=own, fields=named), clock)
        self.exports = ExportedAddresses(self._records, closed=settings.network.policy == "closed")
        self._agreed: dict[ClusterID, AgreedPeer] = {}
        self._left_out: set[ClusterID] = set()
        self._refused: dict[tuple[str, ClusterID], str] = {}

    def sources(self, key: str) -> Iterable[Source[str]]:
        """Yield what enqueues ``key`` when something changed that decisions depend on."""
        yield from self._records.sources(key)
        yield from self._networks.sources(key)

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when everything that is watched was listed once."""
        parts = (self._records, self._networks)
        return Deferred.fromCoroutine(together(part.when_synced() for part in parts))

    def when_records_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when what was agreed earlier is known."""
        return self._records.when_synced()

    @property
    def tunnels(self) -> MutationCache[TunnelEndpoint]:
        """The records of the tunnels, with what was written last."""
        return self._records.tunnels

    # For the rest of the daemon.

    def addresses(self, peer: ClusterID) -> AddressMap:
        """Return how a peer's pod addresses are seen here."""
        config = self._records.config(peer)
        return remote_addresses(config) if config is not None else AddressMap()

    def export_address(self, peer: ClusterID, address: str) -> str:
        """Return how a peer's pods reach one of our pod addresses; empty while that is not known.

        Other addresses have one only where they were asked for: ``exports`` has those.
        """
        config = self._records.config(peer)
        return own_addresses(config).seen(address) if config is not None else ""

    def translation(self, peer: ClusterID) -> object:
        """Return all that the translation of addresses to and from a peer follows from, to be compared."""
        config = self._records.config(peer)
        if config is None:
            return None
        maps = remote_addresses(config), own_addresses(config), exported_addresses(config)
        directly = [(other, self.addresses(other)) for other in self.direct_lenders(peer)]
        return maps, self.exports.limits(peer), config.spec.decision.mode, directly

    def direct_lenders(self, lender: ClusterID) -> list[ClusterID]:
        """Return the other lenders whose pods of ours a lender's pods of ours reach without us."""
        config = self._records.config(lender)
        others = config.status.others if config is not None else ()
        return [ClusterID(one.peer) for one in others if one.phase == DIRECT]

    def direct_address(self, lender: ClusterID, address: str) -> tuple[ClusterID, str] | None:
        """Return which other lender has the pod of an address here, and its own address there; None if not direct."""
        for other in self.direct_lenders(lender):
            if original := self.addresses(other).original(address):
                return other, original
        return None

    def service_addresses(self, peer: ClusterID) -> AddressMap:
        """Return how a peer's pods call our Services by address; a map that translates nothing while they do not."""
        config = self._records.config(peer)
        if config is None or not services_as_agreed(config)[0]:
            return AddressMap()
        return AddressMap(paired(config.spec.local.service_cidrs, config.status.ack.service_cidrs))

    def home_services(self, peer: ClusterID) -> tuple[bool | None, str, str]:
        """Return whether our pods at a peer call our Services by their addresses (None: not known yet), and why."""
        config = self._records.config(peer)
        return services_as_agreed(config) if config is not None else services_as_agreed(NetworkConfig())

    def has_tunnel(self, peer: ClusterID) -> bool:
        """Return whether there is a tunnel to a peer, or may be one: only what was decided against has none."""
        config = self._records.config(peer)
        return config is None or not self._is_without(config)

    def _is_without(self, config: NetworkConfig) -> bool:
        """Return whether there is to be no tunnel; a setting that demands tunnels counts for all peers."""
        return self._settings.mode == UNDECIDED and config.spec.decision.mode == NO_TUNNEL

    def status(self, peer: ClusterID, report: NetworkReport) -> tuple[bool | None, str]:
        """Return whether packets cross to a peer now (None: not known yet), and a sentence about it."""
        if not self.has_tunnel(peer):
            return True, "there is no tunnel to the peer: pods use the routes that are there"
        probes, config = report.probes.get(peer), self._records.config(peer)
        recorded = self._records.recorded_status(peer)
        if self._is_split and recorded.phase and not (config is not None and config.status.phase == "Refused"):
            if recorded.phase == "Connected" and self._lease is not None and self._lease.is_silent():
                return self._without_agent()
            return {"Connected": True, "Error": False}.get(recorded.phase), recorded.message
        now = self._clock.seconds()
        if probes is not None and probes.is_reachable(now):
            cut = find_cut(report.paths_to(peer), now)
            if cut is not None:
                return not cut.whole, cut.message
            return True, "packets cross in both directions"
        if config is not None and config.status.phase == "Refused":
            return False, config.status.message
        if (probes is None or probes.is_starting(now)) and recorded.phase == "Connected":
            return True, "packets crossed before this daemon started"
        if probes is None or probes.is_undecided(now):
            return None, "no packet has crossed to the peer's network yet"
        return False, "packets do not cross to the peer's network"

    def _without_agent(self) -> tuple[bool | None, str]:
        """Return what is known while the agent is silent: the kernel goes on, unless the host is gone as well."""
        if self._networks.is_lost(self._gateway):
            return False, f"the gateway's host {self._gateway} is down: its network agent and its kubelet are silent"
        return None, f"the gateway's network agent does not renew its lease {NETWORK_LEASE}: what it reported is old"

    # Negotiating.

    async def sync_peers(self) -> None:
        """Have a NetworkConfig for every peer, and for no other cluster."""
        await self._records.sync_peers()

    @property
    def has_tunnels(self) -> bool:
        """Whether there is a tunnel to any peer, or may be one."""
        return bool(self._tunnelled())

    @property
    def is_deciding(self) -> bool:
        """Whether a peer awaits a decision about its tunnel, and was not notified whether there can be one here."""
        return any(one.spec.decision.mode == UNDECIDED and one.spec.local == TunnelSide() for one in self._tunnelled())

    async def settle(self, lacking: str) -> None:
        """Decide about peers, as far as that can be done, and tell those without a tunnel that there is none."""
        for config in self._records.configs():
            if self._settings.mode != UNDECIDED:
                # What was decided by itself ends where the settings say it: this is how it can be changed.
                await self._records.write_decision(config, Decision())
                continue
            config = await self._records.write_decision(config, decide_mode(config, lacking))
            if self._is_without(config):
                decision = config.spec.decision
                config = await self._records.write_spec(config, TunnelSide(), refusal(decision), ())
                await self._records.write_phase(config, "None", decision.reason, decision.message)

    def _tunnelled(self) -> list[NetworkConfig]:
        return [one for one in self._records.configs() if not self._is_without(one)]

    async def negotiate(self, host: HostReport, report: NetworkReport) -> DesiredNetwork:
        """Write the record of every peer, and return the network that follows from all that is agreed."""
        configs = self._tunnelled()
        try:
            local = self._local(host)
        except NetworksUnknown as error:
            for config in configs:
                if config.status.phase != "Agreed":
                    await self._records.write_phase(config, "Pending", "OwnNetworksUnknown", str(error))
            raise
        avoided = [*(one for config in configs for one in endpoint_networks(config.status.remote.endpoints))]
        avoided += host.networks
        if self._settings.direct != "never":
            # A home's pods here call each other by its view of our pods: no other lender is to be known by the same.
            avoided += [seen for config in configs for _, seen in own_addresses(config).pairs]
        self._agreed = {}
        self.exports.keep({ClusterID(config.metadata.name) for config in configs})
        for config in sorted(configs, key=agreed_first):
            await self._negotiate(local, config, avoided, report)
        self._invite(local, host.networks)
        return self._desired(local, report)

    async def preview(self, host: HostReport, report: NetworkReport) -> DesiredNetwork:
        """Return what ``negotiate`` would return now; nothing is written."""
        local = self._local(host)
        self._agreed = {}
        for config in sorted(self._tunnelled(), key=agreed_first):
            verdict = self._judged(local, config)
            if verdict.agreed is not None:
                self._accept(config, *verdict.agreed, report)
        self._invite(local, host.networks)
        return self._desired(local, report)

    async def record(self, desired: DesiredNetwork) -> None:
        """Write the records of the tunnels."""
        for peer, agreed in sorted(self._agreed.items()):
            pods = [pod for (name, _), pod in desired.probes.pods.items() if name == peer]
            await self._records.write_tunnel(peer, agreed, pods)
        await self._records.delete_other_tunnels(self._agreed)

    async def record_no_peers(self) -> None:
        """Delete the tunnels' records."""
        self._agreed = {}
        await self._records.delete_other_tunnels(())

    def _local(self, host: HostReport) -> LocalNetwork:
        self._gateway = host.address
        return self._networks.local(host.public_key, host.next_key, host.address, host.mtu)

    async def _negotiate(
        self, local: LocalNetwork, config: NetworkConfig, avoided: list[Network], report: NetworkReport
    ) -> None:
        """Write our parameters and assignments for one peer, and what came of it; accept its link if both agree."""
        others = assigned_to_others(config, self._records.configs())
        remap = assignment(local, config, others=others, avoided=avoided, accepted_keys=report.tunnels)
        # The record is authoritative for assignments: it is written before anything relies on them.
        config = await self._records.write_spec(config, local.side, remap, self.exports.assign(local, config))
        verdict = self._judged(local, config)
        if verdict.agreed is not None:
            self._accept(config, *verdict.agreed, report)
        await self._records.write_phase(config, verdict.phase, verdict.reason, verdict.message)

    def _judged(self, local: LocalNetwork, config: NetworkConfig) -> Verdict:
        everyone = self._records.configs()
        keys = keys_of_others(config, everyone, self._agreed, self.tunnels.items())
        return judge(local, config, others=assigned_to_others(config, everyone), other_keys=keys)

    def _accept(self, config: NetworkConfig, remote: RemoteNetwork, link: Link, report: NetworkReport) -> None:
        """Take a link as agreed, with what is known here about the path and the pods."""
        peer = ClusterID(config.metadata.name)
        probes = report.probes.get(peer)
        # What was measured before this daemon started holds until it is measured again.
        measured = (probes.mtu if probes is not None else 0) or self._records.path_mtu(peer)
        link = attrs.evolve(
            link,
            mtu=min(link.mtu, measured) if measured else link.mtu,
            pods=self._networks.allowed_pods(peer),
            endpoint=self._records.choose_endpoint(peer, remote, report, link.public_key),
        )
        gateway = Gateway(address=self._gateway, vni=VNI, port=self._settings.overlay_port)
        self._agreed[peer] = AgreedPeer(remote, link, gateway)

    def _invite(self, local: LocalNetwork, networks: Sequence[Network]) -> None:
        """Complete the links by the pods of either side in the other's cluster, and what they can call there."""
        used_here = [*local.pods, *local.externals, *local.reserved, *networks]
        is_followed = self._is_split or bool(self._networks.vteps(self._gateway))
        left_out: set[ClusterID] = set()
        for peer, agreed in self._agreed.items():
            link, everyone = agreed.link, self._networks.guests(peer)
            guests = callable_guests(everyone, link.local, [*used_here, *link.remote])
            if guests != callable_guests(everyone, link.local, ()):
                left_out.add(peer)
            services = callable_services(link.peer_services, [*local.besides_services(networks), *link.remote])
            link = attrs.evolve(
                link,
                guests=guests,
                peer_services=services,
                own_services=self._networks.own_services(services, peer),
                offloaded=self._networks.offloaded(link.remote[: len(agreed.remote.pods)]),
            )
            self._agreed[peer] = attrs.evolve(agreed, link=link, is_followed=is_followed)
        for peer in sorted(left_out - self._left_out):
            self._log.warn(
                "pods of {peer} here do not reach each other by the addresses that it shows for them: it sees our pods "
                "by networks that are used here; it chooses other ones when the peering is made again",
                peer=peer,
            )
        self._left_out = left_out
        self._refused = {pair: why for pair, why in self._refused.items() if pair[1] in self._agreed}
        for peer, agreed in self._agreed.items():
            self._agreed[peer] = attrs.evolve(agreed, link=attrs.evolve(agreed.link, direct=self._direct(peer)))

    def _direct(self, peer: ClusterID) -> tuple[DirectLink, ...]:
        """Return the homes whose pods use the link to a peer, of those that asked and have a link themselves."""
        config = self._records.config(peer)
        found: list[DirectLink] = []
        if config is None or self._settings.direct == "never":
            return ()
        pairs = paired(config.status.remote.pod_cidrs, config.spec.remap.pod_cidrs)
        for grant in config.status.direct[:MAX_DIRECT]:
            home = self._agreed.get(ClusterID(grant.home))
            if home is None or grant.home == peer or not grant.confirmed:
                continue
            try:
                networks = networks_here(grant.pod_cidrs, pairs)
                check_meaning(networks, home.link)
            except Refusal as refusal:
                self._note_refused(grant.home, peer, refusal)
                continue
            self._refused.pop((grant.home, peer), None)
            found.append(DirectLink(home.link.peer, networks, self._networks.guests(home.link.peer)))
        return tuple(found)

    def _note_refused(self, home: str, peer: ClusterID, refusal: Refusal) -> None:
        if self._refused.get((home, peer)) != refusal.reason:
            self._log.warn(
                "pods of {cluster_id} here and at {peer} are not connected directly: {detail} ({reason})",
                cluster_id=home,
                peer=peer,
                detail=refusal.message,
                reason=refusal.reason,
            )
            self._refused[home, peer] = refusal.reason

    def _desired(self, local: LocalNetwork, report: NetworkReport) -> DesiredNetwork:
        return DesiredNetwork(
            mtu=local.mtu,
            addresses=tuple(map(first_of, local.externals)),
            links=tuple(agreed.link for _, agreed in sorted(self._agreed.items())),
            vteps=self._networks.vteps(self._gateway),
            probes=self._probe_targets(local, report),
        )

    def _probe_targets(self, local: LocalNetwork, report: NetworkReport) -> ProbeTargets:
        gateways: dict[str, str] = {}
        pods: dict[PathKey, str] = {}
        for peer, agreed in self._agreed.items():
            remote, seen = agreed.remote, agreed.link.remote[len(agreed.remote.pods) :]
            externals = seen[: sum(one is not None for one in (remote.external, remote.six))]
            if gateway := probed_gateway(externals, local.external):
                gateways[peer] = gateway
            current = {version: path.pod for (name, version), path in report.pods.items() if name == peer}
            for version, pod in self._networks.pod_targets(agreed.link.remote, current).items():
                pods[str(peer), version] = pod
        return ProbeTargets(gateways, pods)
