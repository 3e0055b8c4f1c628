"""A lender that comes back, however it was away: all that was asked for meanwhile is done soon, on both sides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import attrs
from hypothesis import given
from hypothesis import strategies as st
from kubesandbox.kinds.kinds import PODS, GroupResource

from liqod.kube.resources import CONFIGMAPS, DEPLOYMENTS, NAMESPACES
from liqod.kube.resources import PODS as POD
from tests.scenario.case import SHOP, SMALL, ScenarioCase, Scene, deployment, live, node_ready, offloaded, phase
from tests.scenario.profile import profile
from tests.scenario.side import Fault, Side
from tests.scenario.test_away import directly

BOUND: Final = 20.0
"""Seconds from the end of an interruption, or from a later deletion, within which all is done."""

LATEST: Final = 60.0
"""Seconds by which TCP at the latest sends again what it kept; before, it is as long as the interruption was."""

Back = Callable[[], None]


def stopped(scene: Scene, home: Side, lender: Side) -> Back:
    """Let the lender's API server and daemon be gone, as with its host."""
    lender.kill()
    lender.stop_api()

    def back() -> None:
        lender.start_api()
        lender.start()

    return back


def refusing(scene: Scene, home: Side, lender: Side) -> Back:
    """Let nobody connect to the lender's API server."""
    lender.stop_api()
    return lender.start_api


def ends(home: Side, lender: Side) -> list[tuple[str, str]]:
    """Return the ways from home to the lender."""
    return [(home.address, lender.address), (home.address, lender.api_address)]


def silent(scene: Scene, home: Side, lender: Side) -> Back:
    """Drop everything between the clusters; what TCP kept comes as late again."""
    begun = scene.world.now
    for one, other in ends(home, lender):
        scene.network.part(one, other)
    return lambda: scene.network.heal(late=min(LATEST, scene.world.now - begun))


def deaf(scene: Scene, home: Side, lender: Side) -> Back:
    """Drop what is sent to the lender only."""
    for one, other in ends(home, lender):
        scene.network.block(one, other)
    return scene.network.heal


def mute(scene: Scene, home: Side, lender: Side) -> Back:
    """Drop what the lender sends only."""
    for one, other in ends(home, lender):
        scene.network.block(other, one)
    return scene.network.heal


def cut_off(side: str, scene: Scene, home: Side, lender: Side) -> Back:
    """Drop everything between a daemon and the API server of its own cluster."""
    one = home if side == "home" else lender
    scene.network.part(one.address, one.api_address)
    return scene.network.heal


def faulty(fault: Fault, scene: Scene, home: Side, lender: Side) -> Back:
    """Have the lender's API server answer everything with a fault, and end its watches."""
    lender.door.fault = fault
    for stream in list(lender.cluster.server.streams):
        stream.stop()

    def back() -> None:
        lender.door.fault = None

    return back


KINDS: Final[Mapping[str, Callable[[Scene, Side, Side], Back]]] = {
    "stopped": stopped,
    "refusing": refusing,
    "silent": silent,
    "deaf": deaf,
    "mute": mute,
    "unavailable": partial(faulty, Fault(503, "ServiceUnavailable")),
    "failing": partial(faulty, Fault(500, "InternalError")),
    "busy": partial(faulty, Fault(429, "TooManyRequests", retry_after="1")),
    "unauthorized": partial(faulty, Fault(401, "Unauthorized")),
    "home cut off": partial(cut_off, "home"),
    "lender cut off": partial(cut_off, "lender"),
}


@attrs.frozen
class Away:
    """An interruption: of which kind and how long; when pods are deleted: seconds before it, in it (as a share), and
    after it.
    """

    kind: str
    seconds: float
    before: float
    share: float
    after: float


def rounds() -> st.SearchStrategy[list[Away]]:
    """Return interruptions, each kind once."""
    rest = (
        st.sampled_from([75.0, 2.0, 15.0, 45.0, 150.0]),
        st.floats(0.0, 1.0),
        st.floats(0.0, 1.0),
        st.floats(0.0, 4.0),
    )
    each = [st.builds(Away, st.just(kind), *rest) for kind in KINDS]
    return st.tuples(*each).flatmap(lambda made: st.permutations(made))


def there(side: Side, name: str) -> bool:
    """Tell whether a cluster has a pod of a name, in whatever namespace."""
    return any(one["metadata"]["name"] == name for one in side.objects(PODS))


class ReturnTests(ScenarioCase):
    def pair(self) -> tuple[Scene, Side, Side]:
        """Have two sides that dial each other, as those that find each other do, with pods at the lender."""
        scene = self.scene()
        rome = scene.side("rome", nodes=(SMALL,), peers=(2,), change=directly)
        milan = scene.side("milan", peers=(1,), change=directly)
        rome.start()
        milan.start()
        scene.acquaint((rome, milan))
        scene.becomes("the node is ready", lambda: node_ready(rome, milan))
        scene.enable(rome)
        scene.deploy(rome, "web", 4)
        scene.becomes("it runs", lambda: offloaded(rome, milan, "web", 4))
        return scene, rome, milan

    def new_namespace(self, scene: Scene, home: Side, name: str) -> None:
        """Enable another namespace, with a pod in it, and add a ConfigMap to the first."""
        body = {"metadata": {"name": name, "labels": {"liqo.io/enabled": "true"}}}
        scene.do(home.client.create(NAMESPACES, body, view=None))
        pods = deployment(f"app-{name}", 1)
        pods["metadata"]["namespace"] = name
        scene.do(home.client.create(DEPLOYMENTS, pods, name, view=None))
        scene.do(home.client.create(CONFIGMAPS, {"metadata": {"name": name}, "data": {"a": "b"}}, SHOP, view=None))

    def round(self, number: int, away: Away, scene: Scene, rome: Side, milan: Side) -> float:
        """Delete pods before, in and after an interruption; returns how long it took from its end until all is done."""
        world, name = scene.world, f"new-{number}"
        deleted: list[str] = []

        def delete() -> None:
            pod = min(live(rome, "web").keys() - deleted)
            deleted.append(pod)
            scene.do(rome.client.delete(POD, pod, SHOP))

        delete()
        world.run(away.before)
        begun, back = world.now, KINDS[away.kind](scene, rome, milan)
        world.run(away.share * away.seconds)
        delete()
        self.new_namespace(scene, rome, name)
        world.run(max(0.0, begun + away.seconds - world.now))
        back()
        ended = world.now
        world.run(away.after)
        delete()
        left = BOUND + away.after
        at_lender = GroupResource("", "configmaps")
        demands: dict[str, Callable[[], object]] = {
            "the deleted pods are gone": lambda: not any(there(s, pod) for s in scene.sides for pod in deleted),
            "others run in their place": lambda: offloaded(rome, milan, "web", 4),
            "the pod of the new namespace runs": lambda: offloaded(rome, milan, f"app-{name}", 1),
            "the ConfigMap is there": lambda: any(o["metadata"]["name"] == name for o in milan.objects(at_lender)),
            "the node is ready": lambda: node_ready(rome, milan),
            "both are well": lambda: phase(rome, milan) == phase(milan, rome) == "Ready",
        }
        for what, holds in demands.items():
            scene.becomes(what, holds, max(0.1, ended + left - world.now))
        return world.now - ended

    def run_rounds(self, interruptions: list[Away]) -> None:
        scene, rome, milan = self.pair()
        for number, away in enumerate(interruptions):
            try:
                took = self.round(number, away, scene, rome, milan)
            except AssertionError as error:
                raise self.failureException(f"round {number}, {away}: {error}") from error
            self.took[away.kind] = max(took, self.took.get(away.kind, 0.0))
            scene.world.run(20)

    def test_a_namespace_that_was_not_known_yet(self) -> None:
        """The webhook answered for a pod before the watch showed its namespace: the pod is found soon after."""
        self.took = dict[str, float]()
        self.run_rounds([Away("home cut off", 2.0, before=0.6, share=0.9, after=2.7)])
        self.assertIn("home cut off", self.took)

    def test_pods_go_and_come(self) -> None:
        """Whatever kept the clusters apart and whenever a pod is deleted, soon after the return it is gone on both
        sides, others run in its place, and what else was made meanwhile is there.
        """
        self.took = dict[str, float]()
        given(rounds())(profile(2)(lambda interruptions: self.run_rounds(interruptions)))()
        self.assertEqual(self.took.keys(), KINDS.keys())
        print({kind: round(seconds, 1) for kind, seconds in self.took.items()})
