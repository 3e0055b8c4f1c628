"""``ping``: measures the paths to a peer one by one: its address, its API server, the tunnel."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import click
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, DNSLookupError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, refuse_watch, watch_option
from liqod.cli.console.progress import Progress
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.network.netcheck import first_of
from liqod.cli.network.ping_rows import (
    PathTimes,
    addresses_of,
    as_row,
    recorded_tunnel,
    shown,
    unanswered,
    without_tunnel,
)
from liqod.cli.status.cluster_records import advice_of, cluster_records
from liqod.cli.status.peers import find, label
from liqod.fabric.agent.probing.probe_burst import measure_sizes
from liqod.flow.tasks import cancellable, together
from liqod.kube.errors import KubeError, ServerError, Throttled, Unreachable
from liqod.kube.resources import PODS
from liqod.model.diagnosis.cluster import ClusterRecords, problems_of
from liqod.model.host_port import split_address
from liqod.model.records.views import ForeignCluster

T = TypeVar("T")

SMALL: Final = 64
"""Bytes of a probe of the tunnel, IP header included."""
INTERVAL: Final = 0.2
"""Seconds between two attempts."""
PATIENCE: Final = 5.0
"""Seconds after which an attempt counts as lost."""
COLUMNS: Final = {"path": "PATH", "target": "TO", "time": "MIN/MEDIAN/MAX MS", "loss": "LOST", "note": "NOTE"}


@click.command()
@click.argument("peer", metavar="PEER", shell_complete=complete.peers)
@click.option("--count", type=click.IntRange(1, 100), default=5, show_default=True, help="Attempts on each path.")
@watch_option
@cluster_options
def ping(options: Options, peer: str, count: int, watch: bool) -> None:
    """Measure round trips and loss on each path to a peer.

    "own API" is a request to this cluster's API server, for comparison. "session" opens and closes a TCP connection to
    the peer's address from this machine; nothing is sent. "peer API" asks for no lines of the log of a pod that runs at
    the peer: the way that `kubectl logs` takes, through the relay where there is one. "tunnel" sends probes on the
    gateway's host; elsewhere it shows what the daemon has recorded.

    \b
    Example:
      liqodctl ping milan --count 20
    """
    refuse_watch(options, watch)
    last: list[tuple[dict[str, Any], bool]] = []

    async def read(session: Session) -> Callable[[], None]:
        facts = await cluster_records(session)
        cluster = find(peer, facts.peers)
        problems = [one for one in problems_of(facts, cluster.metadata.name) if one.severity != "info"]
        with Progress(session.reactor, f"answers from {label(cluster)}", quiet=options.is_document):
            measured = await _measure(session, facts, cluster, count)
        causes = [{"code": one.code, "cause": one.cause, "advice": advice_of(one)} for one in problems]
        result = {"peer": label(cluster), "paths": [as_row(one) for one in measured], "problems": causes}
        last[:] = [(result, unanswered(measured) or any(one.severity == "error" for one in problems))]
        return partial(_show, session, result)

    in_cluster(options, lambda session: session.again(watch, partial(read, session)))
    ((result, failed),) = last
    if failed:
        advice = next((cause["advice"] for cause in result["problems"] if cause["advice"]), "")
        hint = advice or f"`liqodctl explain peer {result['peer']}` and `liqodctl netcheck {result['peer']}` show more"
        raise CliError(errors.CHECK, f"not every path to {result['peer']} works", hint)


def _show(output: Output, result: dict[str, Any]) -> None:
    output.table([shown(row) for row in result["paths"]], COLUMNS)
    for cause in result["problems"]:
        output.say(f"{cause['code']}: {cause['cause']}", "yellow")
    output.publish(result)


async def _measure(session: Session, facts: ClusterRecords, cluster: ForeignCluster, count: int) -> list[PathTimes]:
    """Measure one path after the other, so that they do not slow each other down; addresses together."""
    found = [await _own_api(session, count)]
    dialled = [Deferred.fromCoroutine(_dialled(session, one, count)) for one in addresses_of(cluster)]
    found += await together(dialled)
    if not dialled:
        found.append(PathTimes("session", note="no address of the peer is known: it connects to this cluster"))
    found.append(await _peer_api(session, facts, cluster.metadata.name, count))
    found.append(await _tunnel(session, facts, cluster.metadata.name, count))
    return found


async def _repeated(session: Session, count: int, attempt: Callable[[], Awaitable[Any]]) -> tuple[list[float], str]:
    """Return the seconds that the answered attempts took, and why the last other one was not answered.

    Raises KubeError for a refusal, such as of the user's rights, which says nothing of the path.
    """
    times: list[float] = []
    why = ""
    for number in range(count):
        if number:
            await deferLater(session.reactor, INTERVAL)
        started = session.reactor.seconds()
        try:
            await cancellable(_deferred(attempt)).addTimeout(PATIENCE, session.reactor)
        except DeferTimeout:
            why = f"no answer within {PATIENCE:g} s"
        except (ServerError, Throttled, Unreachable, ConnectError, DNSLookupError) as error:
            why = str(error) or type(error).__name__
        else:
            times.append(session.reactor.seconds() - started)
    return times, why


def _deferred(attempt: Callable[[], Awaitable[T]]) -> Deferred[T]:
    async def once() -> T:
        return await attempt()

    return Deferred.fromCoroutine(once())


async def _own_api(session: Session, count: int) -> PathTimes:
    try:
        times, why = await _repeated(session, count, lambda: session.client.raw("GET", "/version"))
    except KubeError as error:
        return PathTimes("own API", note=f"not measured: {error}")
    return PathTimes("own API", "", count, times, why)


async def _dialled(session: Session, address: str, count: int) -> PathTimes:
    try:
        host, port = split_address(address)
        endpoint = HostnameEndpoint(session.reactor, host.encode("idna"), port, PATIENCE)
    except ValueError as error:  # also of the codec
        return PathTimes("session", address, note=str(error))

    async def attempt() -> None:
        connected: Any = await endpoint.connect(Factory.forProtocol(Protocol))
        connected.transport.abortConnection()

    times, why = await _repeated(session, count, attempt)
    return PathTimes("session", address, count, times, why)


async def _peer_api(session: Session, facts: ClusterRecords, peer: str, count: int) -> PathTimes:
    nodes = facts.node_names_of(peer)
    if not nodes:
        return PathTimes("peer API", note="not measured: nothing is borrowed from the peer")
    try:
        pod = await _running(session, nodes)
        if pod is None:
            return PathTimes("peer API", note="not measured: no pod runs at the peer")
        meta = pod["metadata"]
        query = urlencode({"container": pod["spec"]["containers"][0]["name"], "tailLines": 0})
        path = f"/api/v1/namespaces/{quote(meta['namespace'])}/pods/{quote(meta['name'])}/log?{query}"
        times, why = await _repeated(session, count, lambda: session.client.raw("GET", path))
    except KubeError as error:
        return PathTimes("peer API", note=f"not measured: {error}")
    return PathTimes("peer API", f"{meta['namespace']}/{meta['name']}", count, times, why)


async def _running(session: Session, nodes: Iterable[str]) -> dict[str, Any] | None:
    """Return a pod that runs on one of a peer's nodes; each of them leads to the same API server."""
    for node in nodes:
        running = f"spec.nodeName={node},status.phase=Running"
        pods: list[dict[str, Any]] | None = (await session.client.page(PODS, "", None, fields=running, limit=1)).items
        if pods:
            return pods[0]
    return None


async def _tunnel(session: Session, facts: ClusterRecords, peer: str, count: int) -> PathTimes:
    config = next((one for one in facts.networks if one.metadata.name == peer), None)
    tunnel = next((one for one in facts.tunnels if one.metadata.name == peer), None)
    if config is None or tunnel is None:
        return without_tunnel(config)
    if not config.spec.local.external_cidr or not config.spec.remap.external_cidr:
        return recorded_tunnel(tunnel)
    source, target = first_of(config.spec.local.external_cidr), first_of(config.spec.remap.external_cidr)
    port = session.settings.network.probe_port
    try:
        (burst,) = await measure_sizes(
            session.reactor, source, target, port, [SMALL], count=count, interval=INTERVAL, timeout=1.0
        )
    except OSError:
        # The address is the gateway's own end of the tunnel, which no other host can send from.
        return recorded_tunnel(tunnel)
    return PathTimes("tunnel", target, burst.sent, burst.times, "" if burst.times else tunnel.status.message)
