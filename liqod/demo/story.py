"""Two clusters in one process discover each other and offload pods, presented step by step to an audience.

The clusters are simulated, the daemons and everything between them is real: sockets, TLS, mDNS, the peer protocol, the
admission webhook, every request to an API server. Each step waits by watches for what a user would see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from kubesandbox.nodes.node import SandboxNode
from twisted.internet.defer import Deferred
from twisted.internet.defer import TimeoutError as DeferTimeout

from liqod.demo.side import DemoCluster, Pod
from liqod.flow.clocks import Reactor
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.wait import until
from liqod.kube.errors import AlreadyExists
from liqod.kube.resources import DEPLOYMENTS, NAMESPACES
from liqod.model.names import ENABLED_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE

NAMESPACE: Final = "shop"
DEPLOYMENT: Final = "web"
PATIENCE: Final = 20.0
"""Timeout of one step in seconds, for a busy machine."""
MULTICAST: Final = 4.0
"""Seconds after which multicast is taken to be unavailable on this machine."""


class DemoFailed(Exception):
    """A step timed out; the message names it and the status of both daemons."""


class Audience(Protocol):
    """Receives the progress of the demonstration."""

    def begin(self, text: str) -> None:
        """A step begins."""

    def done(self, text: str, seconds: float) -> None:
        """The step is done, after so many seconds."""

    def note(self, text: str) -> None:
        """Additional information."""

    async def started(self, sides: tuple[DemoCluster, DemoCluster]) -> None:
        """Both clusters and daemons run; say where they can be watched."""

    async def discovered(self, side: DemoCluster) -> None:
        """Show what a side knows of others."""

    async def status(self, side: DemoCluster) -> None:
        """Show a side's peerings."""

    async def pods(self, home: DemoCluster, lender: DemoCluster) -> None:
        """Show where the pods are."""

    async def keep_running(self, sides: tuple[DemoCluster, DemoCluster]) -> None:
        """Explain how to use the clusters; return when they are to be stopped."""


class Demo:
    """The demonstration; ``run`` once. With ``stay`` both clusters keep running until the audience returns."""

    def __init__(self, reactor: Reactor, audience: Audience, *, stay: bool = False) -> None:
        self._reactor = reactor
        self._audience = audience
        self._stay = stay
        self.patience = PATIENCE
        # No pod that asks for a whole core finds room in rome: the scheduler can only choose milan's virtual node.
        self.rome = DemoCluster(reactor, "rome", (SandboxNode("rome-1", cpu="500m", memory="1Gi"),))
        self.milan = DemoCluster(reactor, "milan", (SandboxNode("milan-1"), SandboxNode("milan-2")))

    async def run(self) -> None:
        """Show everything; raises DemoFailed. Stops everything it started, also on failure."""
        begun = self._reactor.seconds()
        try:
            await self._show()
            if self._stay:
                await self._audience.keep_running((self.rome, self.milan))
            else:
                await self._tidy()
                self._audience.note(f"all of it in {self._reactor.seconds() - begun:.1f} s")
        finally:
            await self.rome.stop()
            await self.milan.stop()

    async def _show(self) -> None:
        rome, milan, audience = self.rome, self.milan, self._audience
        await self._step("two clusters come up, each with its daemon", self._start(), "both daemons are ready")
        await audience.started((rome, milan))
        await self._step("they discover each other", self._meet(), "each has seen the other's key")
        await audience.discovered(rome)
        await self._step("the administrators compare words and trust", self._trust(), "one session, TLS 1.3, both sure")
        await self._step(
            "milan offers a share of what is free there",
            self._until(rome.offers, lambda: any(offer.status.phase == "Accepted" for offer in rome.offers.items())),
            "rome accepted the offer",
        )
        await self._step("rome gets a node for it", self._node(), "the node is ready")
        await audience.status(rome)
        await self._step(
            f"in rome, a deployment of 3 pods in the namespace {NAMESPACE} that has no room at home",
            self._deploy(3),
            "all run in milan, and rome knows it",
        )
        await audience.pods(rome, milan)
        await self._step("the deployment is scaled to 4", self._scale(4), "the fourth runs, too")
        await audience.pods(rome, milan)

    async def _tidy(self) -> None:
        await self._step("the deployment is deleted", self._delete(), "nothing of it is left in either cluster")

    async def _step(self, text: str, work: Awaitable[None], outcome: str) -> None:
        begun = self._reactor.seconds()
        self._audience.begin(text)
        await work
        self._audience.done(outcome, self._reactor.seconds() - begun)

    # The steps.

    async def _start(self) -> None:
        # Both at once: each waits for its own cluster most of the time.
        starting = [Deferred.fromCoroutine(side.start()) for side in (self.rome, self.milan)]
        for side, start in zip((self.rome, self.milan), starting, strict=True):
            await self._within(self.patience, start, f"the daemon of {side.name}")

    async def _meet(self) -> None:
        try:
            await self._within(MULTICAST, self._both(self._seen), "mDNS")
        except DemoFailed:
            self._audience.note("no multicast here: milan's address is added by hand in rome")
            # A slow machine has the record by now, and no session yet.
            with suppress(AlreadyExists):
                await self.rome.add_peer(self.milan)
            await self._within(self.patience, self._both(self._seen), "the first contact")

    def _seen(self, side: DemoCluster, other: DemoCluster) -> bool:
        record = side.peer(other)
        return record is not None and bool(record.status.seen_fingerprint)

    async def _trust(self) -> None:
        for side, other in ((self.rome, self.milan), (self.milan, self.rome)):
            record = side.peer(other)
            shown = record.status.words if record is not None else ""
            if shown != other.words:
                raise DemoFailed(f"{side.name} shows {shown!r} for {other.name}, whose own words are {other.words!r}")
            self._audience.note(f"{side.name} shows the words that {other.name} reads out: {shown}")
            await side.trust(other)

        def authenticated(side: DemoCluster, other: DemoCluster) -> bool:
            record = side.peer(other)
            return record is not None and any(
                condition.type == "Authenticated" and condition.status == "True"
                for condition in record.status.conditions
            )

        await self._within(self.patience, self._both(authenticated), "the session")

    async def _node(self) -> None:
        def is_there() -> bool:
            nodes = self.rome.nodes.items()
            return any(node.is_ready and node.metadata.labels.get(TYPE_LABEL) == VIRTUAL_NODE_TYPE for node in nodes)

        def is_recorded() -> bool:
            record = self.rome.peer(self.milan)
            return record is not None and record.status.phase == "Ready"

        await self._until(self.rome.nodes, is_there)
        await self._until(self.rome.peers, is_recorded)

    async def _deploy(self, replicas: int) -> None:
        labels = {ENABLED_LABEL: "true"}
        await self.rome.client.create(NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}}, view=None)
        await self.rome.client.create(DEPLOYMENTS, deployment(replicas), NAMESPACE, view=None)
        await self._running(replicas)

    async def _scale(self, replicas: int) -> None:
        await self.rome.scale(NAMESPACE, DEPLOYMENT, replicas)
        await self._running(replicas)

    async def _delete(self) -> None:
        await self.rome.client.delete(DEPLOYMENTS, DEPLOYMENT, NAMESPACE, propagation="Background")
        for side in (self.rome, self.milan):
            await self._until(side.pods, partial(_empty, side))

    async def _running(self, count: int) -> None:
        for side in (self.milan, self.rome):
            await self._until(side.pods, partial(_all_run, side, count))

    # Waiting.

    def _both(self, holds: Callable[[DemoCluster, DemoCluster], bool]) -> Deferred[None]:
        pairs = ((self.rome, self.milan), (self.milan, self.rome))

        async def one_after_the_other() -> None:
            for side, other in pairs:
                await until(side.peers, partial(holds, side, other))

        return Deferred.fromCoroutine(one_after_the_other())

    async def _until(self, cache: Informer[Any], holds: Callable[[], bool]) -> None:
        await self._within(self.patience, until(cache, holds), "a step")

    async def _within(self, seconds: float, waiting: Deferred[Any], what: str) -> None:
        waiting.addTimeout(seconds, self._reactor)
        try:
            await waiting
        except DeferTimeout:
            state = "; ".join(f"{side.name}: {self._state(side)}" for side in (self.rome, self.milan))
            raise DemoFailed(f"timed out after {seconds:g} s waiting for {what}. {state}") from None

    def _state(self, side: DemoCluster) -> str:
        known = [
            f"{peer.status.phase} {peer.status.reason} {peer.status.message}".strip()
            for peer in (side.peers.items() if side.agent.ready.is_open else [])
        ]
        pods = [f"{pod.metadata.name} {pod.status.phase}" for pod in shop_pods(side)]
        return ", ".join([side.agent.status, *side.agent.missing(), *known, *pods])


def shop_pods(side: DemoCluster) -> list[Pod]:
    """Return the pods of the demonstration, in whatever namespace they are."""
    return sorted(
        (pod for pod in side.pods.items() if pod.metadata.namespace.startswith(NAMESPACE)),
        key=lambda pod: pod.metadata.name,
    )


def _all_run(side: DemoCluster, count: int) -> bool:
    pods = shop_pods(side)
    return len(pods) == count and all(pod.is_running for pod in pods)


def _empty(side: DemoCluster) -> bool:
    return not shop_pods(side)


def deployment(replicas: int) -> dict[str, Any]:
    """Return a deployment of pods that ask for a core each."""
    container = {
        "name": "web",
        "image": "nginx",
        "resources": {"requests": {"cpu": "1", "memory": "256Mi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": DEPLOYMENT, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": DEPLOYMENT}},
            "template": {"metadata": {"labels": {"app": DEPLOYMENT}}, "spec": {"containers": [container]}},
        },
    }
