"""``test`` and ``bench``: run short-lived pods in this cluster and at a peer that connect to each other."""

from __future__ import annotations

import secrets
from typing import Any

import attrs
import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, timeout_option
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.network import test_pods
from liqod.cli.status.facts import cluster_facts
from liqod.cli.status.peers import find, label
from liqod.kube.resources import NAMESPACES, NETWORKCONFIGS, PODS
from liqod.model.diagnosis.cluster import ClusterFacts, problems_of
from liqod.model.ids import Key
from liqod.model.objects.pod import Pod
from liqod.model.records.network import NetworkConfig, own_addresses
from liqod.model.records.views import ForeignCluster

IMAGE = "docker.io/library/busybox:1.36"


def test_pod_options(command: Any) -> Any:
    """Add the options of commands that run test pods."""
    image = click.option("--image", default=IMAGE, show_default=True, help="Image with busybox, for both clusters.")
    return image(timeout_option(120.0, "Timeout for each pod.", click.FloatRange(1))(command))


@click.command()
@click.argument("peer", metavar="PEER", shell_complete=complete.peers)
@test_pod_options
@cluster_options
def test(options: Options, peer: str, image: str, timeout: float) -> None:
    """Test connectivity in both directions between a pod at a peer and one in this cluster.

    Shows that pods are offloaded, are reachable from this cluster, and reach this cluster. Uses a namespace of its own
    and deletes it afterwards.

    \b
    Example:
      liqodctl test milan
    """

    async def work(session: Session) -> list[dict[str, Any]]:
        async with _TestRun(session, await _found(session, peer, needs_tunnel=True), image, timeout) as run:
            rows = [await run.start()]
            rows.append(await run.request("pod here", "", run.there, "pod at the peer"))
            back = await run.address_at_peer(run.here)
            rows.append(await run.request("pod at the peer", run.peer, back, "pod here"))
            return rows

    rows = in_cluster(options, work)
    Output(options).show(rows, {"what": "WHAT", "result": "RESULT", "address": "ADDRESS"})
    if any(row["result"] != "good" for row in rows):
        raise CliError(
            errors.TEST_FAILED, "not every pod reached the other", "`liqodctl netcheck` shows the hop that fails"
        )


@click.command()
@click.argument("peer", metavar="PEER", shell_complete=complete.peers)
@click.argument("what", type=click.Choice(["throughput", "latency"]))
@click.option("--megabytes", type=click.IntRange(1, 10000), default=200, show_default=True, help="Amount of data.")
@click.option("--count", type=click.IntRange(1, 10000), default=20, show_default=True, help="Number of pings.")
@test_pod_options
@cluster_options
def bench(options: Options, *, peer: str, what: str, megabytes: int, count: int, image: str, timeout: float) -> None:
    """Measure throughput or latency between a pod in this cluster and one at a peer.

    \b
    Example:
      liqodctl bench milan throughput --megabytes 500
    """

    async def work(session: Session) -> dict[str, Any]:
        amount = megabytes if what == "throughput" else 0
        async with _TestRun(session, await _found(session, peer, needs_tunnel=False), image, timeout, amount) as run:
            await run.start()
            if what == "throughput":
                output = await run.completed(test_pods.download_pod("client", image, run.there))
                bits = test_pods.throughput(output)
                if bits is None:
                    raise CliError(errors.TEST_FAILED, f"the transfer failed: {output.strip()!r}", "try `test` first")
                return {"what": "throughput", "megabitsPerSecond": round(bits / 1e6, 1), "megabytes": megabytes}
            output = await run.completed(test_pods.ping_pod("client", image, run.there, count))
            times = test_pods.round_trips(output)
            if times is None:
                raise CliError(
                    errors.TEST_FAILED, f"no reply was received: {output.strip()[-200:]!r}", "try `test` first"
                )
            least, mean, most, lost = times
            return {"what": "latency", "minMs": least, "avgMs": mean, "maxMs": most, "lostPercent": lost}

    row = in_cluster(options, work)
    Output(options).show([row], {key: key for key in row})


async def _found(session: Session, peer: str, *, needs_tunnel: bool) -> ForeignCluster:
    """Return the peer. Raises CliError where its records say already that pods cannot reach each other."""
    facts = await cluster_facts(session)
    cluster = find(peer, facts.peers)
    if objection := preflight(facts, cluster.metadata.name, needs_tunnel=needs_tunnel):
        raise CliError(
            errors.TEST_FAILED,
            f"no pods were started: {objection}",
            f"`liqodctl explain peer {label(cluster)}` and `liqodctl netcheck {label(cluster)}` show more",
        )
    return cluster


def preflight(facts: ClusterFacts, peer: str, *, needs_tunnel: bool) -> str:
    """Return why pods at a peer cannot be tested; empty where nothing is known to be in the way. Pure.

    Without ``needs_tunnel`` another network may connect the pods (``mode = "none"``).
    """
    wrong = next((one for one in problems_of(facts, peer) if one.severity == "error"), None)
    if wrong is not None:
        return f"{wrong.code}: {wrong.cause}"
    if not any(record.spec.cluster_id == peer for record in facts.virtual_nodes):
        return "there is no virtual node for the peer: nothing is borrowed from it"
    if needs_tunnel and not any(tunnel.metadata.name == peer for tunnel in facts.tunnels):
        return (
            'there is no network with the peer: it needs `mode = "wireguard"` or "auto" under [network] on both sides'
        )
    return ""


@attrs.define
class _TestRun:
    """A namespace with a server pod in each cluster; the context manager deletes it in every case."""

    session: Session
    cluster: ForeignCluster
    image: str
    timeout: float
    megabytes: int = 0
    namespace: str = attrs.field(init=False, factory=lambda: f"liqod-test-{secrets.token_hex(3)}")
    here: str = attrs.field(init=False, default="")
    there: str = attrs.field(init=False, default="")

    @property
    def peer(self) -> str:
        """The peer's cluster ID."""
        return self.cluster.metadata.name

    async def __aenter__(self) -> _TestRun:
        await self.session.client.create(NAMESPACES, test_pods.namespace(self.namespace))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.client.delete(NAMESPACES, self.namespace)

    async def start(self) -> dict[str, Any]:
        """Start both servers; returns the row of the one at the peer."""
        client = self.session.client
        for name, where in (("here", ""), ("there", self.peer)):
            body = test_pods.server_pod(name, self.image, where, self.megabytes if where else 0)
            await client.create(PODS, body, self.namespace)
        self.here = (await self._pod("here", "Running")).status.pod_ips[0].ip
        self.there = (await self._pod("there", "Running")).status.pod_ips[0].ip
        return {"what": f"a pod is running at {label(self.cluster)}", "result": "good", "address": self.there}

    async def request(self, who: str, where: str, address: str, whom: str) -> dict[str, Any]:
        """Run a client pod that requests an address; returns its row."""
        output = await self.completed(
            test_pods.client_pod(f"client-{secrets.token_hex(2)}", self.image, where, address), logs=False
        )
        return {"what": f"{who} to {whom}", "result": output or "good", "address": address}

    async def address_at_peer(self, address: str) -> str:
        """Return the address under which the peer sees one of ours. Raises CliError."""
        config: NetworkConfig = await self.session.client.get(NETWORKCONFIGS, self.peer, view=NetworkConfig)
        seen = own_addresses(config).seen(address)
        if not seen:
            hint = '`mode = "wireguard"` or `"auto"` under [network]; or the networks are not agreed yet'
            raise CliError(errors.TEST_FAILED, f"the peer has no address for our pod {address}", hint)
        return seen

    async def completed(self, body: dict[str, Any], *, logs: bool = True) -> str:
        """Run a pod to completion; returns its log, or without ``logs`` "failed" or an empty string."""
        name = body["metadata"]["name"]
        await self.session.client.create(PODS, body, self.namespace)
        pod = await self._pod(name, "Succeeded", "Failed")
        if not logs:
            return "" if pod.status.phase == "Succeeded" else "failed"
        output = await self.session.client.raw("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}/log")
        return output.decode(errors="replace")

    async def _pod(self, name: str, *phases: str) -> Pod:
        found: list[Pod] = []

        def reached(pod: Pod | None) -> bool:
            ready = (
                pod is not None and pod.status.phase in phases and bool(pod.status.pod_ips or "Running" not in phases)
            )
            if ready and pod is not None:
                found.append(pod)
            return ready

        waiting = until(self.session, PODS, Pod, Key(self.namespace, name), reached)
        await self.session.within(self.timeout, waiting, f"the pod {self.namespace}/{name} to become {phases[0]}")
        return found[-1]
