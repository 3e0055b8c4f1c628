"""``test`` and ``bench``: short-lived pods here and at a peer talk with each other, and are removed again."""

from __future__ import annotations

import secrets
from typing import Any

import attrs
import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Options, Session, cluster_options, in_cluster, show
from liqod.cli.console.wait import until
from liqod.cli.network import test_pods
from liqod.cli.status.peers import find, label
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACES, NETWORKCONFIGS, PODS
from liqod.model.ids import Key
from liqod.model.objects.pod import Pod
from liqod.model.records.network import NetworkConfig, own_addresses
from liqod.model.records.views import ForeignCluster

IMAGE = "docker.io/library/busybox:1.36"


def trial_options(command: Any) -> Any:
    """Give a command the options of those that run pods."""
    image = click.option("--image", default=IMAGE, show_default=True, help="An image with busybox, for both clusters.")
    timeout = click.option(
        "--timeout", type=click.FloatRange(1), default=120.0, show_default=True, metavar="SECONDS", help="For each pod."
    )
    return image(timeout(command))


@click.command()
@click.argument("peer", metavar="NAME|ID")
@trial_options
@cluster_options
def test(options: Options, peer: str, image: str, timeout: float) -> None:
    """Run a pod at a peer, and have it and a pod here call each other.

    Shows that pods are offloaded, get addresses that are reached from here, and reach what is here. Takes a namespace
    of its own and removes it afterwards.
    """

    async def work(session: Session) -> list[dict[str, Any]]:
        async with _Trial(session, await _found(session, peer), image, timeout) as trial:
            rows = [await trial.begin()]
            rows.append(await trial.call("pod here", "", trial.there, "pod at the peer"))
            back = await trial.seen_there(trial.here)
            rows.append(await trial.call("pod at the peer", trial.peer, back, "pod here"))
            return rows

    rows = in_cluster(options, work)
    show(options.output, rows, {"what": "WHAT", "result": "RESULT", "address": "ADDRESS"})
    if any(row["result"] != "good" for row in rows):
        raise CliError(
            errors.TRIAL, "not every pod reached the other", "`liqodctl netcheck` names the place of the cut"
        )


@click.command()
@click.argument("peer", metavar="NAME|ID")
@click.argument("what", type=click.Choice(["throughput", "latency"]))
@click.option("--megabytes", type=click.IntRange(1, 10000), default=200, show_default=True, help="How much is sent.")
@click.option("--count", type=click.IntRange(1, 10000), default=20, show_default=True, help="How many pings.")
@trial_options
@cluster_options
def bench(options: Options, peer: str, what: str, megabytes: int, count: int, image: str, timeout: float) -> None:
    """Measure throughput or latency between a pod here and one at a peer."""

    async def work(session: Session) -> dict[str, Any]:
        amount = megabytes if what == "throughput" else 0
        async with _Trial(session, await _found(session, peer), image, timeout, amount) as trial:
            await trial.begin()
            if what == "throughput":
                said = await trial.ended(test_pods.loading("client", image, trial.there))
                bits = test_pods.throughput(said)
                if bits is None:
                    raise CliError(errors.TRIAL, f"the transfer did not end well: {said.strip()!r}", "try `test` first")
                return {"what": "throughput", "megabitsPerSecond": round(bits / 1e6, 1), "megabytes": megabytes}
            said = await trial.ended(test_pods.pinging("client", image, trial.there, count))
            times = test_pods.round_trips(said)
            if times is None:
                raise CliError(errors.TRIAL, f"nothing came back: {said.strip()[-200:]!r}", "try `test` first")
            least, mean, most, lost = times
            return {"what": "latency", "minMs": least, "avgMs": mean, "maxMs": most, "lostPercent": lost}

    row = in_cluster(options, work)
    show(options.output, [row], {key: key for key in row})


async def _found(session: Session, peer: str) -> ForeignCluster:
    return find(peer, (await session.client.list(FOREIGNCLUSTERS, view=ForeignCluster)).items)


@attrs.define
class _Trial:
    """A namespace with a server here and one at the peer; all is removed at the end, whatever happened."""

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

    async def __aenter__(self) -> _Trial:
        await self.session.client.create(NAMESPACES, test_pods.namespace(self.namespace))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.client.delete(NAMESPACES, self.namespace)

    async def begin(self) -> dict[str, Any]:
        """Run both servers; returns a row for the one at the peer."""
        client = self.session.client
        for name, where in (("here", ""), ("there", self.peer)):
            body = test_pods.server(name, self.image, where, self.megabytes if where else 0)
            await client.create(PODS, body, self.namespace)
        self.here = (await self._pod("here", "Running")).status.pod_ips[0].ip
        self.there = (await self._pod("there", "Running")).status.pod_ips[0].ip
        return {"what": f"a pod runs at {label(self.cluster)}", "result": "good", "address": self.there}

    async def call(self, who: str, where: str, address: str, whom: str) -> dict[str, Any]:
        """Have a pod call an address; returns a row."""
        said = await self.ended(
            test_pods.asking(f"asks-{secrets.token_hex(2)}", self.image, where, address), logs=False
        )
        return {"what": f"{who} calls {whom}", "result": said or "good", "address": address}

    async def seen_there(self, address: str) -> str:
        """Return how an address of ours reads at the peer."""
        config: NetworkConfig = await self.session.client.get(NETWORKCONFIGS, self.peer, view=NetworkConfig)
        seen = own_addresses(config).seen(address)
        if not seen:
            hint = '`mode = "wireguard"` under [network]; it may also not be agreed on yet'
            raise CliError(errors.TRIAL, f"the peer has no address for our pod {address}", hint)
        return seen

    async def ended(self, body: dict[str, Any], *, logs: bool = True) -> str:
        """Run a pod to its end; returns what it said, or with ``logs`` off nothing, and "failed" where it failed."""
        name = body["metadata"]["name"]
        await self.session.client.create(PODS, body, self.namespace)
        pod = await self._pod(name, "Succeeded", "Failed")
        if not logs:
            return "" if pod.status.phase == "Succeeded" else "failed"
        said = await self.session.client.raw("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}/log")
        return said.decode(errors="replace")

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
        await self.session.within(self.timeout, waiting, f"the pod {self.namespace}/{name} becoming {phases[0]}")
        return found[-1]
