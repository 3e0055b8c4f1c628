"""``netcheck``: checks the path to a peer's pods hop by hop from this host."""

from __future__ import annotations

import ipaddress

import attrs
import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, good
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.status.cluster_records import as_finding, cluster_records
from liqod.cli.status.peers import find
from liqod.fabric.agent.kernel.host import DEADLINE, HostKernel, Kernel, KernelError, observe
from liqod.fabric.agent.kernel.model import ObservedKernel
from liqod.fabric.agent.probing.probe_burst import measure_sizes
from liqod.fabric.control.probe_targets import pod_targets
from liqod.fabric.state.network import parse_networks
from liqod.flow.clocks import utc_now
from liqod.kube.resources import PODS
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.hops import HOPS
from liqod.model.diagnosis.path import HostObservation, NotObserved, PathProbes, PodPings, SizeProbes, may_send
from liqod.model.diagnosis.problem import DAEMON, Diagnosis
from liqod.model.objects.pod import Pod
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.views import ForeignCluster

SIZES = (64, 576, 1280, 1400, 1420, 1500, 4000, 8920)
"""Sizes of the probes in bytes, IP header included; the discovered path MTU is added."""


@click.command()
@click.argument("peer", metavar="PEER", shell_complete=complete.peers)
@click.option(
    "--count", type=click.IntRange(1, 1000), default=5, show_default=True, help="Number of probes of each size."
)
@cluster_options
def netcheck(options: Options, peer: str, count: int) -> None:
    """Check the network path to a peer's pods hop by hop, and report the first hop that fails.

    On the gateway's host packets are sent through the tunnel; elsewhere only the records are checked.

    \b
    Example:
      liqodctl netcheck milan
    """

    async def work(session: Session) -> Diagnosis:
        facts = await cluster_records(session)
        return await _examined(session, facts, find(peer, facts.peers), count)

    found = in_cluster(options, work)
    shown = findings(found)
    Output(options).report(shown)
    first = next((finding for finding in shown if finding.verdict == "bad"), None)
    if first is not None:
        raise CliError(errors.CHECK, f"the path fails at: {first.group}", first.hint or "see above")
    if not any(one.topic in HOPS for one in found.passed):
        hint = shown[0].hint if shown else "`liqodctl status` shows the peering"
        raise CliError(errors.CHECK, "there is no path to check", hint or "see above")


def findings(found: Diagnosis) -> list[Finding]:
    """Return what is wrong with the daemon and on the path, hop by hop, and what is well. Pure."""
    shown = [as_finding(one, one.hop or one.topic) for one in found.problems if one.hop or one.topic == DAEMON]
    shown += [good(one.topic, one.text) for one in found.passed if one.topic in HOPS]
    order = (DAEMON, *HOPS)
    return sorted(shown, key=lambda finding: order.index(finding.group))


def of_peer(facts: ClusterRecords, peer: str) -> ClusterRecords:
    """Return the records that are about the path to one peer. Pure."""
    return ClusterRecords(
        leader=facts.leader,
        peers=[one for one in facts.peers if one.metadata.name == peer],
        networks=[one for one in facts.networks if one.metadata.name == peer],
        tunnels=[one for one in facts.tunnels if one.metadata.name == peer],
    )


async def _examined(session: Session, facts: ClusterRecords, cluster: ForeignCluster, count: int) -> Diagnosis:
    """Return what is wrong with the path to a peer, by its records and by what this host sees and is answered."""
    peer = cluster.metadata.name
    facts = of_peer(facts, peer)
    probes = PathProbes(peer=peer)
    if facts.tunnels:
        (tunnel,) = facts.tunnels
        kernel = HostKernel(session.reactor)
        probes = attrs.evolve(probes, host=await _observed(session, kernel, tunnel))
        if may_send(facts, probes):
            (config,) = facts.networks
            sizes = await _probe_sizes(session, config, tunnel, count)
            probes = attrs.evolve(probes, sizes=sizes)
            if isinstance(sizes, list):
                probes = attrs.evolve(probes, pods=await _ping_pods(session, kernel, config, count))
    return examine(Evidence(records=facts, path=probes))


async def _observed(session: Session, kernel: Kernel, tunnel: TunnelEndpoint) -> HostObservation | NotObserved:
    """Return what this host's kernel has of the tunnel."""
    try:
        observed = await observe(kernel, session.settings.network.device)
    except KernelError as error:
        return NotObserved(f"this host cannot be inspected: {error}", "run it on the gateway's host, as root")
    if observed.device is None or observed.tunnel is None:
        gateway = tunnel.spec.gateway.address or "the host of the daemon that leads"
        return NotObserved("this host is not the gateway, or this is not root", f"run it as root on {gateway}")
    return observation(observed, tunnel.spec.public_key, utc_now().timestamp())


def observation(observed: ObservedKernel, key: str, now: float) -> HostObservation:
    """Return what the kernel has of the tunnel to the peer with a key. Pure."""
    peer = observed.tunnel.peers.get(key) if observed.tunnel is not None else None
    return HostObservation(
        routes=frozenset(map(str, observed.routes)),
        rules=observed.rules.count if observed.rules is not None else None,
        known=peer is not None,
        endpoint=peer.endpoint if peer is not None else "",
        handshake_age=now - peer.handshake if peer is not None and peer.handshake else None,
        received=peer.received if peer is not None else 0,
        sent=peer.sent if peer is not None else 0,
    )


async def _probe_sizes(
    session: Session, config: NetworkConfig, tunnel: TunnelEndpoint, count: int
) -> list[SizeProbes] | NotObserved:
    """Send packets of several sizes to the peer's gateway, and return which came back."""
    if not config.spec.local.external_cidr or not config.spec.remap.external_cidr:
        return NotObserved("no external networks are agreed on with the peer", "`liqodctl status` shows the exchange")
    source, target = first_of(config.spec.local.external_cidr), first_of(config.spec.remap.external_cidr)
    sizes = sorted({*SIZES, tunnel.status.path_mtu} - {0})
    port = session.settings.network.probe_port
    try:
        rounds = await measure_sizes(session.reactor, source, target, port, sizes, count=count)
    except OSError as error:
        cause = f"nothing can be sent from {source}: {error.strerror}"
        return NotObserved(cause, "is the daemon running on this host?")
    return [SizeProbes(one.size, one.sent, tuple(one.times)) for one in rounds]


async def _ping_pods(
    session: Session, kernel: Kernel, config: NetworkConfig, count: int
) -> list[PodPings] | NotObserved:
    """Ping pods of the peer from this host, one of each IP version."""
    pods = (await session.client.list(PODS, view=Pod)).items
    found = pod_targets(pods, parse_networks(config.spec.remap.pod_cidrs), {})
    pings = []
    # A command that takes longer than DEADLINE is killed.
    pinged = min(count, int((DEADLINE - 5) / 0.2))
    for _, pod in sorted(found.items()):
        try:
            ping = await kernel.run(("ping", "-n", "-q", "-c", str(pinged), "-i", "0.2", "-W", "2", pod))
        except KernelError as error:
            return NotObserved(str(error), "the package is iputils-ping")
        summary = next((line for line in ping.out.splitlines() if "packet" in line), ping.err.strip())
        pings.append(PodPings(pod, not ping.code, summary))
    return pings


def first_of(cidr: str) -> str:
    """Return the first host address of a network."""
    return str(ipaddress.ip_network(cidr).network_address + 1)
