"""Finds what is wrong with the path to a peer's pods, from what one host observes and from probes. Pure.

The codes are those of the TunnelEndpoint's conditions: a probe that is sent now and the daemon's own probes mean the
same by the same word.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import attrs

from liqod.model.diagnosis import hops
from liqod.model.diagnosis.cluster import ClusterRecords, local_route_missing, name_of, network_problems
from liqod.model.diagnosis.problem import Passed, Problem, Severity
from liqod.model.host_port import parse_port
from liqod.model.records.network import SESSION_LIFETIME, NetworkConfig, TunnelEndpoint
from liqod.model.records.views import ForeignCluster


@attrs.frozen
class NotObserved:
    """Why something could not be looked at, and how it can be."""

    cause: str
    advice: str = ""


@attrs.frozen(kw_only=True)
class HostObservation:
    """The gateway's host as its kernel has it.

    ``routes`` are the networks that lead into the tunnel, ``rules`` the number of nftables rules (None: there is no
    table). ``known``: the tunnel's device has the peer's key; ``endpoint`` is where that is, ``handshake_age`` the
    seconds since the last handshake (None: never).
    """

    routes: frozenset[str] = frozenset()
    rules: int | None = None
    known: bool = False
    endpoint: str = ""
    handshake_age: float | None = None
    received: int = 0
    sent: int = 0


@attrs.frozen
class SizeProbes:
    """The probes of one size in bytes: how many were sent, and the seconds that the answered ones took."""

    size: int
    sent: int
    times: tuple[float, ...]

    @property
    def loss(self) -> float:
        """The share that was not answered."""
        return 1 - len(self.times) / self.sent if self.sent else 1.0


@attrs.frozen
class PodPings:
    """The pings of one pod: what the program said of them, and whether any was answered."""

    pod: str
    answered: bool
    summary: str


@attrs.frozen(kw_only=True)
class PathProbes:
    """What was found out about the path to one peer, by its cluster ID; None: not looked at.

    ``sizes`` are in ascending order; ``pods`` is empty where no pod of the peer runs.
    """

    peer: str
    host: HostObservation | NotObserved | None = None
    sizes: Sequence[SizeProbes] | NotObserved | None = None
    pods: Sequence[PodPings] | NotObserved | None = None


def path_problems(facts: ClusterRecords, probes: PathProbes) -> list[Problem]:
    """Return what is wrong on the path to a peer, by its records and by probes."""
    peer = next((one for one in facts.peers if one.metadata.name == probes.peer), None)
    if peer is None:
        return []
    config, tunnel = _records(facts, probes.peer)
    found = network_problems(facts, peer)
    if config is None or (tunnel is None and config.status.phase == "Agreed"):
        text = f"there is no network with {name_of(peer)}"
        advice = 'the peering must be accepted, with `mode = "wireguard"` or `"auto"` under [network] on both sides'
        found.append(_on(peer, hops.AGREEMENT, "NoTunnel", text, "info", advice=advice))
    if tunnel is None:
        return found
    found += _of_host(peer, tunnel, probes.host)
    found += _of_sizes(peer, tunnel.status.path_mtu, probes.sizes)
    return [*found, *_of_pods(peer, probes.pods)]


def path_passed(facts: ClusterRecords, probes: PathProbes) -> Iterator[Passed]:
    """Yield what was seen on the path to a peer, hop by hop; a problem of a hop takes precedence."""
    if not any(one.metadata.name == probes.peer for one in facts.peers):
        return
    config, tunnel = _records(facts, probes.peer)
    for hop, text in _seen(config, tunnel, probes):
        yield Passed(hop, text, peer=probes.peer)


def may_send(facts: ClusterRecords, probes: PathProbes) -> bool:
    """Return whether probes through the tunnel can tell more: host and tunnel are in order, as far as it was seen."""
    before = (hops.HOST, hops.ROUTE, hops.TUNNEL)
    config, tunnel = _records(facts, probes.peer)
    peer = next((one for one in facts.peers if one.metadata.name == probes.peer), None)
    if config is None or tunnel is None or peer is None or not isinstance(probes.host, HostObservation):
        return False
    return not any(one.hop in before and one.failing for one in _of_host(peer, tunnel, probes.host))


def _records(facts: ClusterRecords, peer: str) -> tuple[NetworkConfig | None, TunnelEndpoint | None]:
    config = next((one for one in facts.networks if one.metadata.name == peer), None)
    tunnel = next((one for one in facts.tunnels if one.metadata.name == peer), None)
    return config, tunnel


def _of_host(
    peer: ForeignCluster, tunnel: TunnelEndpoint, host: HostObservation | NotObserved | None
) -> Iterator[Problem]:
    if host is None:
        return
    if isinstance(host, NotObserved):
        yield _not_examined(peer, hops.HOST, host)
        return
    missing = [network for network in tunnel.spec.allowed_ips if network not in host.routes]
    if missing:
        yield local_route_missing(peer, f"there is no route to {', '.join(missing)} on this host")
    if host.rules is None:
        yield _on(peer, hops.ROUTE, "RulesMissing", "the table inet liqod is missing in nftables")
    if not host.known:
        yield _on(peer, hops.TUNNEL, "KeyNotOnDevice", "the tunnel's device does not have the peer's key")
        return
    where = host.endpoint or "an unknown endpoint"
    if host.handshake_age is None or host.handshake_age > SESSION_LIFETIME:
        age = "no handshake ever" if host.handshake_age is None else f"the last handshake was {_s(host)} ago"
        port = parse_port(host.endpoint.rpartition(":")[2])
        what = f"UDP port {port}" if port else "the tunnel's UDP port"
        advice = f"{what} must be open there, and the peer's daemon running"
        yield _on(peer, hops.TUNNEL, "NoHandshake", f"{age}, with {where}", advice=advice)


def _s(host: HostObservation) -> str:
    return f"{host.handshake_age or 0:.0f} s"


def _of_sizes(
    peer: ForeignCluster, path_mtu: int, rounds: Sequence[SizeProbes] | NotObserved | None
) -> Iterator[Problem]:
    if rounds is None or (isinstance(rounds, Sequence) and not rounds):
        return
    if isinstance(rounds, NotObserved):
        yield _on(peer, hops.GATEWAY, "CannotSend", rounds.cause, advice=rounds.advice)
        return
    small = rounds[0]
    if not small.times:
        text = f"none of {small.sent} small packets was answered"
        advice = "the peer's address translation or its firewall (inet liqod, input)"
        yield _on(peer, hops.GATEWAY, "ProbesLost", text, advice=advice)
        return
    if small.loss:
        text = f"{100 * small.loss:.0f} % of the packets to the peer's gateway are lost"
        yield _on(peer, hops.GATEWAY, "PacketLoss", text, "warning")
    passed = max(one.size for one in rounds if one.times)
    lost = [one.size for one in rounds if not one.times and (one.size < passed or one.size <= path_mtu)]
    if lost:
        text = f"packets of {', '.join(map(str, sorted(lost)))} bytes are lost"
        yield _on(peer, hops.SIZES, "SizesLost", text)


def _of_pods(peer: ForeignCluster, pods: Sequence[PodPings] | NotObserved | None) -> Iterator[Problem]:
    if pods is None:
        return
    if isinstance(pods, NotObserved):
        yield _not_examined(peer, hops.PODS, pods)
        return
    if not pods:
        none = NotObserved("none is running that could be pinged", f"`liqodctl test {name_of(peer)}` starts one")
        yield _not_examined(peer, hops.PODS, none)
    if silent := [f"{one.pod}: {one.summary}" for one in pods if not one.answered]:
        yield _on(peer, hops.PODS, "PodPathCut", "; ".join(silent))


def _seen(config: NetworkConfig | None, tunnel: TunnelEndpoint | None, probes: PathProbes) -> Iterator[tuple[str, str]]:
    if config is not None and config.status.phase == "Agreed" and tunnel is not None:
        theirs, ours = ", ".join(config.spec.remap.pod_cidrs), ", ".join(config.status.ack.pod_cidrs)
        yield hops.AGREEMENT, f"their pods are {theirs} here, ours are {ours} there"
    if tunnel is None:
        return
    host = probes.host
    if isinstance(host, HostObservation):
        yield hops.ROUTE, f"{len(host.routes)} routes, {host.rules or 0} nftables rules"
        counted = f"{host.received} bytes received, {host.sent} sent"
        yield hops.TUNNEL, f"handshake with {host.endpoint} {_s(host)} ago, {counted}"
    elif tunnel.status.phase == "Connected":
        status = tunnel.status
        yield hops.TUNNEL, f"{status.message}, says the daemon ({status.implementation or 'no device'})"
    if isinstance(probes.sizes, Sequence) and any(one.times for one in probes.sizes):
        times = sorted(1000 * one for one in probes.sizes[0].times)
        if times:
            shown = f"{times[0]:.2f} / {statistics.median(times):.2f} / {times[-1]:.2f} ms"
            yield hops.GATEWAY, f"round trip {shown} (min, median, max)"
        passed = max(one.size for one in probes.sizes if one.times)
        yield hops.SIZES, f"packets up to {passed} bytes pass, the path MTU is {tunnel.status.path_mtu}"
    if isinstance(probes.pods, Sequence):
        for one in probes.pods:
            if one.answered:
                yield hops.PODS, f"{one.pod}: {one.summary}"


def _not_examined(peer: ForeignCluster, hop: str, why: NotObserved) -> Problem:
    return _on(peer, hop, "NotExamined", why.cause, "warning", advice=why.advice)


def _on(
    peer: ForeignCluster, hop: str, code: str, cause: str, severity: Severity = "error", *, advice: str = ""
) -> Problem:
    return Problem(
        code=code,
        kind="host" if hop in (hops.HOST, hops.ROUTE) else "tunnel",
        name=name_of(peer),
        cause=cause,
        severity=severity,
        advice=advice,
        peer=peer.metadata.name,
        hop=hop,
    )
