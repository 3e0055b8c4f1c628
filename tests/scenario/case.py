"""What scenarios share: a world with sides, and the words for what is waited for."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from kubesandbox.kinds.kinds import NODES, PODS, GroupResource, Json
from kubesandbox.nodes.node import SandboxNode
from twisted.internet.defer import Deferred
from twisted.protocols import tls
from twisted.python.failure import Failure
from twisted.trial.unittest import FailTest, SynchronousTestCase

from liqod.config.schema import Settings
from liqod.kube.resources import DEPLOYMENTS, NAMESPACES
from liqod.kube.resources import FOREIGNCLUSTERS as CLUSTERS
from tests.scenario.network import Network
from tests.scenario.side import Side
from tests.scenario.world import World

T = TypeVar("T")

FOREIGN = GroupResource("discovery.liqo.io", "foreignclusters")
OFFERS = GroupResource("sharing.liqo.io", "advertisements")
SHADOWPODS = GroupResource("offloading.liqo.io", "shadowpods")
SHOP = "shop"
BIG = SandboxNode("node", cpu="64", memory="256Gi")
SMALL = SandboxNode("node", cpu="500m", memory="1Gi")


def unchanged(settings: Settings) -> Settings:
    """Return settings as they are."""
    return settings


class Scene:
    """A world with a network and sides in it."""

    def __init__(self, seed: int = 1) -> None:
        random.seed(seed)
        # Of today, because OpenSSL judges certificates by the real time; whole seconds, because texts must not differ.
        self.world = World(float(int(time.time())))
        self.network = Network(self.world)
        self.clock = SceneClock(self.world)
        self.sides: list[Side] = []

    def side(
        self,
        name: str,
        *,
        nodes: tuple[SandboxNode, ...] = (BIG,),
        peers: tuple[int, ...] = (),
        change: Callable[[Settings], Settings] = unchanged,
    ) -> Side:
        """Add a side; its daemon is not started."""
        side = Side(self.network, name, len(self.sides) + 1, nodes=nodes, peers=peers, change=change)
        self.sides.append(side)
        return side

    def do(self, work: Coroutine[Any, Any, T], seconds: float = 60.0) -> T:
        """Let time pass until a coroutine is done, and return what it returns."""
        outcome: list[Any] = []
        Deferred.fromCoroutine(work).addBoth(outcome.append)
        if self.world.until(lambda: outcome, seconds, look=0.001) is None:
            raise FailTest(f"it was not done within {seconds} s")
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()
        result: T = outcome[0]
        return result

    def becomes(self, what: str, holds: Callable[[], object], seconds: float = 60.0) -> float:
        """Let time pass until something holds; returns how long that took. Fails with what the sides say."""
        passed = self.world.until(holds, seconds)
        if passed is None:
            raise FailTest(f"not within {seconds:g} s: {what}; {self.situation()}")
        return passed

    def situation(self) -> str:
        """Return what the sides say about themselves, for the message of a failure."""
        parts = []
        for side in self.sides:
            said = side.agent.status if side.agent is not None else "no daemon"
            peers = [
                f"{one['metadata']['name']} {status.get('phase')} {status.get('reason')} {status.get('message')}"
                for one in side.objects(FOREIGN)
                for status in [one.get("status", {})]
            ]
            pods = [
                f"{one['metadata']['namespace']}/{one['metadata']['name']} {one['status'].get('phase')}"
                f"{' (going)' if one['metadata'].get('deletionTimestamp') else ''} on {one['spec'].get('nodeName')}"
                for one in side.objects(PODS)
            ]
            parts.append(f"{side.name}: {said}; peers {peers}; pods {pods}")
        return " | ".join(parts)

    # Steps of users.

    def trust(self, side: Side, other: Side) -> None:
        """Let the administrator pin the key that the other side showed."""
        seen = (side.object(FOREIGN, other.id) or {}).get("status", {})["seenFingerprint"]
        self.do(side.client.patch(CLUSTERS, other.id, {"spec": {"fingerprint": seen}}, view=None))

    def acquaint(self, *pairs: tuple[Side, Side]) -> None:
        """Wait until both of each pair know each other, and let both trust."""
        for one, two in pairs:
            for side, other in ((one, two), (two, one)):
                self.becomes(f"{side.name} sees {other.name}", partial(has_seen, side, other))
        for one, two in pairs:
            self.trust(one, two)
            self.trust(two, one)

    def peered(self, change: Callable[[Settings], Settings] = unchanged) -> tuple[Side, Side]:
        """Return a borrower without room of its own and a lender, peered, with an enabled namespace."""
        rome = self.side("rome", nodes=(SMALL,), peers=(2,), change=change)
        milan = self.side("milan", change=change)
        rome.start()
        milan.start()
        self.acquaint((rome, milan))
        self.becomes("the node is ready", lambda: node_ready(rome, milan))
        self.enable(rome)
        return rome, milan

    def enable(self, side: Side, namespace: str = SHOP) -> None:
        """Create an enabled namespace."""
        body = {"metadata": {"name": namespace, "labels": {"liqo.io/enabled": "true"}}}
        self.do(side.client.create(NAMESPACES, body, view=None))

    def deploy(self, side: Side, name: str, replicas: int, *, stays: bool = False, tokens: bool = True) -> None:
        """Create a deployment in the enabled namespace."""
        body = deployment(name, replicas, stays=stays)
        if not tokens:
            body["spec"]["template"]["spec"]["automountServiceAccountToken"] = False
        self.do(side.client.create(DEPLOYMENTS, body, SHOP, view=None))

    def scale(self, side: Side, name: str, replicas: int) -> None:
        """Change a deployment's number of replicas."""
        self.do(side.client.patch(DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, SHOP, view=None))


def lasting(seed: int = 1) -> Scene:
    """Return a scene of which nothing is ever collected; its ``clock`` has to be that of Twisted's TLS meanwhile."""
    scene = Scene(seed)
    _kept.append(scene)
    return scene


class ScenarioCase(SynchronousTestCase):
    """A test with scenes."""

    def scene(self, seed: int = 1) -> Scene:
        scene = lasting(seed)
        # Twisted's TLS endpoints take their clock from the global reactor and cannot be given another.
        self.patch(tls, "_get_default_clock", lambda: scene.clock)
        return scene


_kept: list[Scene] = []
# Nothing in a scene may ever be collected, at the end of the process either: a coroutine that is runs its ``finally``,
# and thereby what a daemon that was killed, or left where it was, did not do.
ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))


class SceneClock:
    """A clock that belongs to no process."""

    def __init__(self, world: World) -> None:
        self._world = world

    def seconds(self) -> float:
        return self._world.now

    def callLater(self, delay: float, call: Callable[..., object], *args: Any, **kwargs: Any) -> Any:
        return self._world.call(delay, None, call, *args, **kwargs)


# What is seen.


def has_seen(side: Side, other: Side) -> bool:
    """Tell whether a side knows the key of another."""
    return bool((side.object(FOREIGN, other.id) or {}).get("status", {}).get("seenFingerprint"))


def phase(side: Side, other: Side) -> str:
    """Return the phase that a side's record of another shows."""
    return str((side.object(FOREIGN, other.id) or {}).get("status", {}).get("phase", ""))


def condition(body: Json | None, kind: str) -> str:
    """Return the status of a condition, or nothing."""
    conditions = ((body or {}).get("status") or {}).get("conditions") or []
    return next((str(one["status"]) for one in conditions if one["type"] == kind), "")


def node_ready(side: Side, lender: Side) -> bool:
    """Tell whether the virtual node for a lender is Ready and has resources."""
    node = side.object(NODES, f"liqo-{lender.name}")
    return condition(node, "Ready") == "True" and bool((node or {})["status"].get("allocatable", {}).get("cpu"))


def live(side: Side, app: str) -> dict[str, Json]:
    """Return the pods of an application that are not being deleted, by name."""
    return {
        one["metadata"]["name"]: one
        for one in side.objects(PODS)
        if one["metadata"].get("labels", {}).get("app") == app and not one["metadata"].get("deletionTimestamp")
    }


def all_of(side: Side, app: str) -> list[Json]:
    """Return the pods of an application, those that are being deleted as well."""
    return [one for one in side.objects(PODS) if one["metadata"].get("labels", {}).get("app") == app]


def runs(pod: Json) -> bool:
    """Tell whether a pod is Running and Ready."""
    return bool(pod["status"].get("phase") == "Running" and condition(pod, "Ready") == "True")


def offloaded(home: Side, lender: Side, app: str, count: int) -> bool:
    """Tell whether so many pods run, each at home and with one pod of its name at the lender, and no others exist."""
    here, there = live(home, app), live(lender, app)
    exact = len(all_of(home, app)) == len(all_of(lender, app)) == len(here) == count and here.keys() == there.keys()
    return exact and all(map(runs, [*here.values(), *there.values()]))


def deployment(name: str, replicas: int, *, stays: bool = False) -> Json:
    """Return a deployment of pods that have no room at home.

    Kubernetes evicts pods from a node that was not ready for five minutes, unless they tolerate that as those that
    ``stay``.
    """
    spec: Json = {
        "containers": [
            {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "1", "memory": "256Mi"}}},
        ]
    }
    if stays:
        spec["tolerations"] = [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute"}
            for key in ("not-ready", "unreachable")
        ]
    return {
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }
