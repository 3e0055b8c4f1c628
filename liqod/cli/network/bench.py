"""``bench``: measures between a pod in this cluster and one at a peer."""

from __future__ import annotations

from typing import Any

import attrs
import click

from liqod.cli.console import complete, errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.console.wait import until
from liqod.cli.network import bench_pods
from liqod.cli.network.connectivity.space import Space
from liqod.cli.network.images import image_options
from liqod.cli.network.preflight import objection
from liqod.cli.status.cluster_records import cluster_records
from liqod.cli.status.peers import find, label
from liqod.kube.resources import PODS
from liqod.model.ids import Key
from liqod.model.objects.pod import Pod
from liqod.model.records.views import ForeignCluster


@click.command()
@click.argument("peer", metavar="PEER", shell_complete=complete.peers)
@click.argument("what", type=click.Choice(["throughput", "latency"]))
@click.option("--megabytes", type=click.IntRange(1, 10000), default=200, show_default=True, help="Amount of data.")
@click.option("--count", type=click.IntRange(1, 10000), default=20, show_default=True, help="Number of pings.")
@image_options
@cluster_options
def bench(options: Options, *, peer: str, what: str, megabytes: int, count: int, image: str, timeout: float) -> None:
    """Measure throughput or latency between a pod in this cluster and one at a peer.

    \b
    Example:
      liqodctl bench milan throughput --megabytes 500
    """

    async def work(session: Session) -> dict[str, Any]:
        found = await _found(session, peer)
        async with Space(session) as space:
            run = _Bench(session, found.metadata.name, image, timeout, space.name)
            address = await run.start(megabytes if what == "throughput" else 0)
            if what == "throughput":
                output = await run.completed(bench_pods.download_pod("client", image, address))
                bits = bench_pods.throughput(output, megabytes)
                if bits is None:
                    raise CliError(errors.TEST_FAILED, f"the transfer failed: {output.strip()!r}", "try `test` first")
                return {"what": "throughput", "megabitsPerSecond": round(bits / 1e6, 1), "megabytes": megabytes}
            output = await run.completed(bench_pods.ping_pod("client", image, address, count))
            times = bench_pods.round_trips(output)
            if times is None:
                raise CliError(
                    errors.TEST_FAILED, f"no reply was received: {output.strip()[-200:]!r}", "try `test` first"
                )
            least, mean, most, lost = times
            return {"what": "latency", "minMs": least, "avgMs": mean, "maxMs": most, "lostPercent": lost}

    row = in_cluster(options, work)
    Output(options).show([row], {key: key for key in row})


async def _found(session: Session, peer: str) -> ForeignCluster:
    """Return the peer. Raises CliError where its records say already that pods cannot reach each other."""
    facts = await cluster_records(session)
    cluster = find(peer, facts.peers)
    why = objection(facts, cluster.metadata.name, label(cluster))
    if why is not None:
        raise CliError(errors.TEST_FAILED, f"no pods were started: {why.cause}", why.advice)
    return cluster


@attrs.define
class _Bench:
    """A server pod at the peer, and pods here that call it, in a namespace of their own."""

    session: Session
    peer: str
    image: str
    timeout: float
    namespace: str

    async def start(self, megabytes: int) -> str:
        """Start the server and return its address."""
        body = bench_pods.server_pod("there", self.image, self.peer, megabytes)
        await self.session.client.create(PODS, body, self.namespace)
        return (await self._pod("there", "Running")).status.pod_ips[0].ip

    async def completed(self, body: dict[str, Any]) -> str:
        """Run a pod to completion and return its log."""
        name = body["metadata"]["name"]
        await self.session.client.create(PODS, body, self.namespace)
        await self._pod(name, "Succeeded", "Failed")
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
