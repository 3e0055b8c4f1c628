"""Metrics for people: each peer, its tunnel, what is lent and borrowed, and the version.

Everything is read from what the daemon holds anyway: no scrape sends a request. What is not known is left out.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import attrs
import msgspec

from liqod.agent.wiring import Features
from liqod.fabric.agent.recorded import RecordedFabric
from liqod.fabric.state.report import NetworkReport, ProbeResult, TunnelReport
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS, NETWORKCONFIGS, TUNNELENDPOINTS
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.virtual_kubelet import VirtualKubelet
from liqod.metrics.registry import Registry, Samples
from liqod.model.ids import ClusterID
from liqod.model.objects import quantity
from liqod.model.records.network import DIRECT, NetworkConfig, TunnelEndpoint
from liqod.model.records.views import Advertisement, ForeignCluster
from liqod.peering.records.phase_reasons import shown_reason

RESOURCES: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""Resources that are shown: a peer chooses the names of what it offers, and each would be a series."""
STATUS_BYTES: Final = "StatusBytes"
"""Why a lender waits whose statuses are as many bytes as are written for one (``kubelet.pods.status_pace``)."""
_ENDED: Final = ("Succeeded", "Failed")


class _Phase(msgspec.Struct, frozen=True):
    phase: str = ""


def register(registry: Registry, read: PeerNumbers) -> None:
    """Have a registry serve the numbers of peers."""
    gauge, counter = registry.gauge, registry.counter
    gauge("liqod_build_info", "1; the versions are labels.", ("version", "python"), build_info)
    gauge("liqod_peer_connected", "Whether there is a session with a peer.", ("peer", "name"), read.connected)
    gauge("liqod_peer_phase", "1 for the phase that a peer is in.", ("peer", "phase", "reason"), read.phases)
    gauge("liqod_peer_missed_pings", "Pings in a row that a peer has not answered.", ("peer",), read.missed_pings)
    gauge("liqod_peer_lent", "Offered to a peer.", ("peer", "resource"), read.lent)
    gauge("liqod_peer_used", "Requested by the pods of a peer here.", ("peer", "resource"), read.used)
    gauge("liqod_peer_borrowed", "Accepted offers of a peer.", ("peer", "resource"), read.borrowed)
    gauge("liqod_peer_pods", "Pods on the virtual nodes of a peer, by phase.", ("peer", "phase"), read.pods)
    counter("liqod_peer_refusals", "What was refused to a peer that proved its key.", ("peer", "reason"), read.refused)
    counter("liqod_peer_held", "How often a peer had its share, and waited.", ("peer", "reason"), read.held)
    counter("liqod_peer_reactor_seconds", "Time of the event loop for what a peer sent.", ("peer",), read.worked)
    counter("liqod_peer_session_events", "Events that a peer sent in its sessions.", ("peer",), read.events)
    counter("liqod_peer_relayed_bytes", "Bytes of a peer's requests over the relay.", ("peer",), read.relayed)
    counter(
        "liqod_peer_written_bytes",
        "Bytes of requests to the own API server because of a peer, as a lender or a borrower.",
        ("peer", "side"),
        read.written,
    )
    gauge("liqod_peer_pods_wanted", "Pods that are to run at a peer.", ("peer",), read.wanted)
    gauge("liqod_tunnel_connected", "Whether packets cross to a peer and back.", ("peer",), read.tunnels)
    gauge(
        "liqod_tunnel_last_handshake_timestamp_seconds",
        "When the tunnel to a peer was last agreed, as Unix time.",
        ("peer",),
        read.handshakes,
    )
    gauge(
        "liqod_direct_connection",
        "Whether our pods at two lenders talk without this cluster.",
        ("peer", "other"),
        read.directly,
    )
    gauge("liqod_tunnel_rtt_seconds", "Round trip through the tunnel.", ("peer",), read.round_trips)
    gauge("liqod_tunnel_loss_ratio", "Share of the latest probes without an answer.", ("peer",), read.losses)
    gauge("liqod_tunnel_path_mtu_bytes", "MTU of the path to a peer.", ("peer",), read.path_mtus)
    counter("liqod_tunnel_receive_bytes", "Bytes that came through the tunnel.", ("peer",), read.received)
    counter("liqod_tunnel_transmit_bytes", "Bytes that were sent through the tunnel.", ("peer",), read.sent)
    counter("liqod_audit_events", "Security events that were written.", ("type",), read.audited)
    counter("liqod_audit_omitted", "Security events above their rate.", ("type",), read.omitted)
    gauge("liqod_audit_file_failing", "Whether the file of [audit] cannot be written.", (), read.audit_failing)


def build_info() -> Samples:
    """Return 1, with the versions of liqod and of Python."""
    try:
        found = version("liqod")
    except PackageNotFoundError:
        found = "unknown"
    yield (found, platform.python_version()), 1.0


@attrs.frozen
class PeerNumbers:
    """Reads the numbers of the peers of one daemon.

    ``leading`` returns its features, as a list of one or none; ``gateway`` the agent of the network where that is a
    process of its own, which alone knows what its host counts.
    """

    _leading: Callable[[], list[Features]]
    _gateway: Callable[[], RecordedFabric | None] = lambda: None

    def connected(self) -> Samples:
        """Return 1 or 0 for each peer."""
        for features in self._leading():
            connected = {session.peer for session in features.peering.sessions()}
            for cluster in _clusters(features):
                name = cluster.metadata.name
                yield (name, cluster.status.cluster_name), float(name in connected)

    def phases(self) -> Samples:
        """Return 1 for each peer, with its phase."""
        for features in self._leading():
            for cluster in _clusters(features):
                status = cluster.status
                yield (cluster.metadata.name, status.phase or "Unknown", shown_reason(status.reason)), 1.0

    def missed_pings(self) -> Samples:
        """Return the pings that the peers with a session have not answered."""
        for features in self._leading():
            for session in features.peering.sessions():
                yield (session.peer,), float(session.missed_pings)

    def lent(self) -> Samples:
        """Return what is offered to the peers."""
        for features in self._leading():
            for cluster in _clusters(features):
                if cluster.status.lent is not None:
                    yield from _resources(cluster.metadata.name, _readable(cluster.status.lent.resources))

    def used(self) -> Samples:
        """Return what the pods of the peers request here."""
        for features in self._leading():
            for cluster in _clusters(features):
                used = features.hosting.used_by(ClusterID(cluster.metadata.name))
                yield from _resources(cluster.metadata.name, used)

    def borrowed(self) -> Samples:
        """Return what was accepted of the peers."""
        for features in self._leading():
            for offer in features.informers.of(ADVERTISEMENTS, Advertisement).items():
                if offer.status.phase == "Accepted":
                    yield from _resources(offer.spec.cluster_id, _readable(offer.spec.offer.resources))

    def pods(self) -> Samples:
        """Return how many pods of this cluster are on the virtual nodes of the peers."""
        for features in self._leading():
            counts: Counter[tuple[str, str]] = Counter()
            for kubelet in features.kubelets.all():
                for pod in kubelet.home_pods():
                    counts[kubelet.context.lender, _phase_of(pod)] += 1
            for labels, count in sorted(counts.items()):
                yield labels, float(count)

    def refused(self) -> Samples:
        """Return how often something was refused to each peer, and why."""
        for features in self._leading():
            for peer, usage in features.peering.usages.items():
                for reason, count in sorted(usage.refused.items()):
                    yield (peer, reason), float(count)

    def held(self) -> Samples:
        """Return how often each peer waited because it had its share, and of what."""
        for features in self._leading():
            for peer, usage in features.peering.usages.items():
                for what, count in sorted(usage.held.items()):
                    yield (peer, what), float(count)
            for lender, statuses in sorted(_of_lenders(features, lambda one: one.pods.delayed_statuses).items()):
                yield (lender, STATUS_BYTES), float(statuses)

    def worked(self) -> Samples:
        """Return the time of the event loop that each peer took."""
        for features in self._leading():
            for peer, usage in features.peering.usages.items():
                yield (peer,), usage.seconds

    def events(self) -> Samples:
        """Return how many events each peer sent."""
        for features in self._leading():
            for peer, usage in features.peering.usages.items():
                yield (peer,), float(usage.events)

    def relayed(self) -> Samples:
        """Return the bytes of each peer's requests that the relay passed on."""
        for features in self._leading():
            for peer, usage in features.peering.usages.items():
                yield (peer,), float(usage.relayed)

    def written(self) -> Samples:
        """Return the bytes that were written at the own API server because of each peer."""
        for features in self._leading():
            for borrower, size in sorted(features.hosting.written_for().items()):
                yield (borrower, "borrower"), float(size)
            of_lenders = _of_lenders(features, lambda one: (one.writes.written or Counter()).total())
            for lender, size in sorted(of_lenders.items()):
                yield (lender, "lender"), float(size)

    def wanted(self) -> Samples:
        """Return how many pods are to run at each lender: neither ended nor deleted; one without any is 0."""
        for features in self._leading():
            wanted = _of_lenders(features, lambda one: sum(map(_is_wanted, one.home_pods())))
            for lender, count in sorted(wanted.items()):
                yield (lender,), float(count)

    def tunnels(self) -> Samples:
        """Return 1 or 0 for each tunnel."""
        for tunnels, _ in self._networks():
            for tunnel in tunnels:
                yield (tunnel.spec.cluster_id,), float(tunnel.status.phase == "Connected")

    def directly(self) -> Samples:
        """Return 1 or 0 for each pair of lenders that was looked at, once from each side."""
        for features in self._leading():
            if features.fabric is None:
                continue
            for config in features.informers.of(NETWORKCONFIGS, NetworkConfig).items():
                for other in config.status.others:
                    yield (config.metadata.name, other.peer), float(other.phase == DIRECT)

    def handshakes(self) -> Samples:
        """Return when the tunnels had their last handshake; one that never had any is left out."""
        yield from self._reported(lambda tunnel: tunnel.handshake or None)

    def received(self) -> Samples:
        """Return the bytes that came through each tunnel; none where another process counts them."""
        yield from self._reported(lambda tunnel: tunnel.received if _is_counted(tunnel) else None)

    def sent(self) -> Samples:
        """Return the bytes that were sent through each tunnel."""
        yield from self._reported(lambda tunnel: tunnel.sent if _is_counted(tunnel) else None)

    def _reported(self, value: Callable[[TunnelReport], float | None]) -> Samples:
        for tunnels, report in self._networks():
            for tunnel in tunnels:
                found = report.tunnels.get(tunnel.spec.public_key)
                if found is not None and (number := value(found)) is not None:
                    yield (tunnel.spec.cluster_id,), float(number)

    def round_trips(self) -> Samples:
        """Return the round trips of the latest probes."""
        yield from self._probed(lambda probe: probe.rtt)

    def losses(self) -> Samples:
        """Return the shares of the latest probes without an answer."""
        yield from self._probed(lambda probe: probe.loss)

    def path_mtus(self) -> Samples:
        """Return the MTUs of the paths, where they are known."""
        yield from self._probed(lambda probe: probe.mtu or None)

    def _probed(self, value: Callable[[ProbeResult], float | None]) -> Samples:
        for _, report in self._networks():
            for peer, probe in sorted(report.probes.items()):
                if (number := value(probe)) is not None:
                    yield (peer,), float(number)

    def _networks(self) -> Iterator[tuple[list[TunnelEndpoint], NetworkReport]]:
        """Yield the records of tunnels with what is known of them, where this process knows any."""
        for features in self._leading():
            if features.fabric is not None:
                tunnels = features.informers.of(TUNNELENDPOINTS, TunnelEndpoint).items()
                yield list(tunnels), features.fabric.report()
        if (agent := self._gateway()) is not None:
            yield agent.tunnels(), agent.report()

    def audited(self) -> Samples:
        """Return how many security events were written."""
        for features in self._leading():
            for kind, count in sorted(features.audit.written.items()):
                yield (kind,), float(count)

    def omitted(self) -> Samples:
        """Return how many security events were left out."""
        for features in self._leading():
            for kind, count in sorted(features.audit.omitted.items()):
                yield (kind,), float(count)

    def audit_failing(self) -> Samples:
        """Return 1 while security events go to the log because their file cannot be written."""
        for features in self._leading():
            yield (), float(bool(features.audit.problem))


def _clusters(features: Features) -> list[ForeignCluster]:
    clusters = features.informers.of(FOREIGNCLUSTERS, ForeignCluster).items()
    return sorted(clusters, key=lambda cluster: cluster.metadata.name)


def _of_lenders(features: Features, count: Callable[[VirtualKubelet], int]) -> Counter[ClusterID]:
    """Return a number of each virtual kubelet, added up for each lender."""
    counts: Counter[ClusterID] = Counter()
    for kubelet in features.kubelets.all():
        counts[kubelet.context.lender] += count(kubelet)
    return counts


def _phase_of(pod: HomePod) -> str:
    return msgspec.json.decode(pod.status or b"{}", type=_Phase).phase or "Pending"


def _is_wanted(pod: HomePod) -> bool:
    return not pod.metadata.deleting and _phase_of(pod) not in _ENDED


def _is_counted(tunnel: TunnelReport) -> bool:
    return bool(tunnel.received or tunnel.sent)


def _readable(resources: Mapping[str, str]) -> dict[str, Fraction]:
    """Return the quantities, without those that cannot be read."""
    found = {}
    for resource, text in resources.items():
        with suppress(ValueError):
            found[resource] = quantity.parse(text)
    return found


def _resources(peer: str, resources: Mapping[str, Fraction]) -> Samples:
    for resource, amount in sorted(resources.items()):
        if resource in RESOURCES:
            yield (peer, resource), float(amount)
