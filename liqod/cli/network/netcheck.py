"""``netcheck``: checks the path to a peer's pods hop by hop from this host."""

from __future__ import annotations

import ipaddress
import statistics
from collections.abc import AsyncIterator, Sequence

import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, bad, failed, good, warning
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.status.peers import find, label
from liqod.fabric.agent.kernel.host import HostKernel, Kernel, KernelError, observe
from liqod.fabric.agent.kernel.model import Observed
from liqod.fabric.agent.probing.probe_burst import SizeResult, measure_sizes
from liqod.fabric.control.probe_targets import pod_targets
from liqod.fabric.state.network import parse_networks
from liqod.fabric.state.report import SESSION_LIFETIME
from liqod.flow.clocks import utc_now
from liqod.kube.errors import NotFound
from liqod.kube.resources import FOREIGNCLUSTERS, NETWORKCONFIGS, PODS, TUNNELENDPOINTS
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

    async def work(session: Session) -> list[Finding]:
        cluster = find(peer, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)
        return [finding async for finding in _hops(session, cluster, count)]

    findings = in_cluster(options, work)
    Output(options).report(findings)
    if failed(findings):
        first = next(finding for finding in findings if finding.verdict == "bad")
        raise CliError(errors.CHECK, f"the path fails at: {first.group}", first.hint or "see above")


async def _hops(session: Session, cluster: ForeignCluster, count: int) -> AsyncIterator[Finding]:
    name, settings = cluster.metadata.name, session.settings.network
    try:
        config: NetworkConfig = await session.client.get(NETWORKCONFIGS, name, view=NetworkConfig)
        if config.status.phase == "None":
            yield bad("Agreement", f"{config.status.reason}: {config.status.message}", "there is no tunnel to check")
            return
        tunnel: TunnelEndpoint = await session.client.get(TUNNELENDPOINTS, name, view=TunnelEndpoint)
    except NotFound as error:
        hint = 'the peering must be accepted, with `mode = "wireguard"` or `"auto"` under [network] on both sides'
        yield bad("Agreement", f"there is no network with {label(cluster)}: {error}", hint)
        return
    yield _agreement(config)
    yield _daemon_view(tunnel)
    kernel = HostKernel(session.reactor)
    try:
        observed = await observe(kernel, settings.device)
    except KernelError as error:
        yield warning("This host", f"cannot be inspected: {error}", "run it on the gateway's host, as root")
        return
    if observed.device is None or observed.tunnel is None:
        gateway = tunnel.spec.gateway.address or "the host of the daemon that leads"
        yield warning("This host", "is not the gateway, or this is not root", f"run it as root on {gateway}")
        return
    for hop in (_route(tunnel, observed), _handshake(tunnel, observed, utc_now().timestamp())):
        yield hop
        if hop.verdict == "bad":
            return
    async for finding in _packets(session, kernel, config, tunnel, count):
        yield finding


def _agreement(config: NetworkConfig) -> Finding:
    """Check that both clusters agreed on addresses."""
    status = config.status
    if status.phase != "Agreed":
        return bad("Agreement", f"{status.reason or 'Pending'}: {status.message or 'nothing is agreed yet'}", "")
    theirs = ", ".join(config.spec.remap.pod_cidrs)
    return good("Agreement", f"their pods are {theirs} here, ours are {', '.join(status.ack.pod_cidrs)} there")


def _daemon_view(tunnel: TunnelEndpoint) -> Finding:
    """Check the tunnel's status as the daemon last wrote it."""
    status = tunnel.status
    text = f"{status.phase or 'unknown'}: {status.message} ({status.implementation or 'no device'})"
    if status.phase == "Error":
        return bad("Daemon's view", text, f"it fails at the {status.cut}" if status.cut else "")
    if status.phase != "Connected":
        return warning("Daemon's view", text, "the daemon probes it again within seconds")
    if status.cut:
        return warning("Daemon's view", text, f"one IP version fails at the {status.cut}")
    return good("Daemon's view", text)


def _route(tunnel: TunnelEndpoint, observed: Observed) -> Finding:
    there = {str(network) for network in observed.routes}
    missing = [network for network in tunnel.spec.allowed_ips if network not in there]
    if missing:
        return bad(
            "Local route", f"there is no route to {', '.join(missing)}", "the daemon restores it; is it running?"
        )
    if observed.rules is None:
        return bad(
            "Local route", "the table inet liqod is missing in nftables", "the daemon restores it; is it running?"
        )
    return good("Local route", f"{len(there)} routes, {observed.rules.count} nftables rules")


def _handshake(tunnel: TunnelEndpoint, observed: Observed, now: float) -> Finding:
    known = observed.tunnel.peers.get(tunnel.spec.public_key) if observed.tunnel is not None else None
    if known is None:
        return bad("Tunnel", "the tunnel does not know the peer's key", "the daemon restores it; is it running?")
    where = known.endpoint or "an unknown endpoint"
    if not known.handshake or now - known.handshake > SESSION_LIFETIME:
        age = f"the last handshake was {now - known.handshake:.0f} s ago" if known.handshake else "no handshake ever"
        port = where.rpartition(":")[2]
        return bad(
            "Tunnel", f"{age}, with {where}", f"udp port {port} must be open there, and the peer's daemon running"
        )
    counted = f"{known.received} bytes received, {known.sent} sent"
    return good("Tunnel", f"handshake with {where} {now - known.handshake:.0f} s ago, {counted}")


async def _packets(
    session: Session, kernel: Kernel, config: NetworkConfig, tunnel: TunnelEndpoint, count: int
) -> AsyncIterator[Finding]:
    """Send packets of several sizes to the peer's gateway, and pings to one of its pods."""
    source = first_of(config.spec.local.external_cidr)
    target = first_of(config.spec.remap.external_cidr)
    sizes = sorted({*SIZES, tunnel.status.path_mtu} - {0})
    try:
        rounds = await measure_sizes(
            session.reactor, source, target, session.settings.network.probe_port, sizes, count=count
        )
    except OSError as error:
        yield bad(
            "Peer's gateway",
            f"nothing can be sent from {source}: {error.strerror}",
            "is the daemon running on this host?",
        )
        return
    for finding in judge(rounds, tunnel.status.path_mtu):
        yield finding
    pods = (await session.client.list(PODS, view=Pod)).items
    found = pod_targets(pods, parse_networks(config.spec.remap.pod_cidrs), {})
    if not found:
        yield warning("Peer's pods", "none is running that could be pinged", "`liqodctl test` starts one")
    for _, pod in sorted(found.items()):
        yield await _pinged(kernel, pod, count)


async def _pinged(kernel: Kernel, pod: str, count: int) -> Finding:
    """Ping a pod of the peer from this host."""
    try:
        ping = await kernel.run(("ping", "-n", "-q", "-c", str(count), "-i", "0.2", "-W", "2", pod))
    except KernelError as error:
        return warning("Peer's pods", str(error), "the package is iputils-ping")
    summary = next((line for line in ping.out.splitlines() if "packet" in line), ping.err.strip())
    if ping.code:
        return bad("Peer's pods", f"{pod}: {summary}", "the peer's own pod network, behind its gateway")
    return good("Peer's pods", f"{pod}: {summary}")


def judge(rounds: Sequence[SizeResult], path_mtu: int) -> list[Finding]:
    """Evaluate the probes of a gateway: sizes above the path MTU must be lost, all others must arrive."""
    small = rounds[0]
    if not small.times:
        text = f"none of {small.sent} small packets was answered"
        return [bad("Peer's gateway", text, "the peer's address translation or its firewall (inet liqod, input)")]
    findings = []
    times = sorted(1000 * one for one in small.times)
    shown = f"{times[0]:.2f} / {statistics.median(times):.2f} / {times[-1]:.2f} ms"
    text = f"round trip {shown} (min, median, max), {100 * small.loss:.0f} % lost"
    hint = "the path between the hosts loses packets"
    findings.append(warning("Peer's gateway", text, hint) if small.loss else good("Peer's gateway", text))
    passed = [one.size for one in rounds if one.times]
    holes = [one.size for one in rounds if not one.times and one.size < max(passed)]
    lost = [one.size for one in rounds if not one.times and one.size <= path_mtu]
    if holes or lost:
        text = f"packets of {', '.join(map(str, sorted({*holes, *lost})))} bytes are lost"
        findings.append(bad("Sizes", text, "a router on the path drops large packets; lower network.mtu"))
    else:
        findings.append(good("Sizes", f"packets up to {max(passed)} bytes pass, the path MTU is {path_mtu}"))
    return findings


def first_of(cidr: str) -> str:
    """Return the first host address of a network."""
    return str(ipaddress.ip_network(cidr).network_address + 1)
