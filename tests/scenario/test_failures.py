"""What fails in between: nothing is deleted that nobody asked to delete, and all is well again when it is healed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from kubesandbox.kinds.kinds import NAMESPACES, NODES, GroupResource

from liqod.config import schema
from liqod.config.schema import Settings
from liqod.kube.resources import FOREIGNCLUSTERS, SECRETS
from tests.scenario.case import (
    FOREIGN,
    OFFERS,
    SHADOWPODS,
    SMALL,
    ScenarioCase,
    Scene,
    condition,
    live,
    node_ready,
    offloaded,
    phase,
    unchanged,
)
from tests.scenario.profile import profile, run_cases
from tests.scenario.side import Fault, Side

VIRTUALNODES = GroupResource("offloading.liqo.io", "virtualnodes")
TTL = 120.0
FAULTS = (
    Fault(429, "TooManyRequests", retry_after="1"),
    Fault(500, "InternalError"),
    Fault(503, "ServiceUnavailable"),
    Fault(410, "Expired", only_watches=True),
    Fault(401, "Unauthorized"),
)


def short_offers(settings: Settings) -> Settings:
    """Return settings with which an offer that is not renewed soon ends."""
    return msgspec.structs.replace(settings, sharing=schema.SharingSettings(ttl=TTL))


class Pair:
    """Two sides that share pods, and what must not change whatever fails."""

    def __init__(self, scene: Scene, change: Callable[[Settings], Settings] = unchanged) -> None:
        self.scene = scene
        self.rome, self.milan = scene.peered(change)
        scene.deploy(self.rome, "steady", 2, stays=True)
        scene.deploy(self.rome, "moving", 1)
        self.moving = 1
        for app, count in (("steady", 2), ("moving", 1)):
            scene.becomes(f"{app} runs", partial(offloaded, self.rome, self.milan, app, count))
        scene.becomes("both records are Ready", self.ready)
        self.kept = self.identities()

    def ready(self) -> bool:
        """Tell whether both sides show the other as Ready, and the node is."""
        return (phase(self.rome, self.milan), phase(self.milan, self.rome)) == ("Ready", "Ready") and node_ready(
            self.rome, self.milan
        )

    def identities(self) -> dict[str, str]:
        """Return the UID of everything that nobody asks to delete; one that is being deleted does not count."""
        found = {}
        for side in self.scene.sides:
            for resource in (FOREIGN, OFFERS, VIRTUALNODES, NODES, NAMESPACES):
                for one in side.objects(resource):
                    if not one["metadata"].get("deletionTimestamp"):
                        found[f"{side.name} {resource.plural} {one['metadata']['name']}"] = one["metadata"]["uid"]
            for name, pod in live(side, "steady").items():
                found[f"{side.name} pods {name}"] = pod["metadata"]["uid"]
        for one in self.milan.objects(SHADOWPODS):
            if one["metadata"]["name"].startswith("steady"):
                found[f"milan shadowpods {one['metadata']['name']}"] = one["metadata"]["uid"]
        return found

    def lost(self) -> dict[str, str]:
        """Return what is there no more, or is another one."""
        now = self.identities()
        return {what: uid for what, uid in self.kept.items() if now.get(what) != uid}

    def restarted(self) -> list[str]:
        """Return the steady pods of which a container was restarted."""
        return [
            f"{side.name} {name}"
            for side in self.scene.sides
            for name, pod in live(side, "steady").items()
            for one in pod["status"].get("containerStatuses") or ()
            if one["restartCount"]
        ]

    def reinstall(self, side: Side) -> None:
        """Let a side lose its key and start with a new one."""
        side.kill()
        self.scene.do(side.client.delete(SECRETS, "liqod-identity", "liqo-system"))
        side.start()

    def trust_again(self, side: Side, other: Side) -> None:
        """Let an administrator pin the key that the other has now."""
        home = other.daemon.home
        assert home is not None
        change = {"spec": {"fingerprint": home.keypair.fingerprint}}
        self.scene.do(side.client.patch(FOREIGNCLUSTERS, other.id, change, view=None))

    def well(self, seconds: float = 900.0) -> float:
        """Wait until everything is as it should be; returns how long that took."""
        begin = self.scene.world.now
        self.scene.becomes("both records are Ready", self.ready, seconds)
        self.scene.becomes("the steady ones run", lambda: offloaded(self.rome, self.milan, "steady", 2), seconds)
        self.scene.becomes(
            "the moving ones run", lambda: offloaded(self.rome, self.milan, "moving", self.moving), seconds
        )
        return self.scene.world.now - begin


def is_suspect(side: Side, other: Side) -> bool:
    """Tell whether a side suspects another."""
    return phase(side, other) == "Suspect"


def has_key(side: Side) -> bool:
    """Tell whether a side's daemon knows its own key already."""
    return side.daemon.home is not None


class FailureTests(ScenarioCase):
    def pair(self, change: Callable[[Settings], Settings] = unchanged) -> Pair:
        return Pair(self.scene(), change)

    def intact(self, pair: Pair) -> None:
        self.assertEqual(pair.lost(), {})
        self.assertEqual(pair.restarted(), [])

    def test_partition(self) -> None:
        """A peer that does not answer is Suspect, then Lost, its node NotReady; it comes back by itself, with its
        pods.
        """
        pair = self.pair(short_offers)
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        for side in (milan.address, milan.api_address):
            scene.network.part(rome.address, side)
        took = {
            "suspect": scene.becomes("Suspect", lambda: phase(rome, milan) == "Suspect", 90),
            "not ready": scene.becomes("NotReady", lambda: not node_ready(rome, milan), 60),
            "lost": scene.becomes("Lost", lambda: phase(rome, milan) == "Lost", TTL + 60),
        }
        self.assertEqual(phase(milan, rome), "Lost")
        scene.world.run(1800)
        self.intact(pair)
        scene.network.heal()
        took["healed"] = pair.well(120)
        self.intact(pair)
        print({what: round(seconds, 2) for what, seconds in took.items()})

    def test_one_way(self) -> None:
        """Loss in one direction only is found as well, whichever it is."""
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        for source, target in ((rome, milan), (milan, rome)):
            scene.network.block(source.address, target.address)
            for side, other in ((rome, milan), (milan, rome)):
                scene.becomes(f"{other.name} is Suspect", partial(is_suspect, side, other), 120)
            scene.network.heal()
            pair.well(120)
            self.intact(pair)

    def test_api_servers(self) -> None:
        """API servers that restart, are busy or broken, or forgot their history, cost time and nothing else."""
        pair = self.pair()
        for side in (pair.rome, pair.milan):
            side.stop_api()
            pair.scene.world.run(20)
            side.start_api()
            pair.well(120)
            for fault in FAULTS:
                side.door.fault = fault
                for stream in list(side.cluster.server.streams):
                    stream.stop()
                pair.scene.world.run(15)
                side.door.fault = None
                pair.well(120)
                self.intact(pair)

    def test_new_key(self) -> None:
        """A peer that comes back with another key is refused, and nothing is removed; trusted again it is as before."""
        pair = self.pair()
        scene, rome, milan = pair.scene, pair.rome, pair.milan
        pair.reinstall(milan)
        scene.world.run(300)
        self.assertIn(condition(rome.object(FOREIGN, milan.id), "Authenticated"), ("False", "Unknown"))
        self.intact(pair)
        pair.trust_again(rome, milan)
        pair.well(180)
        self.intact(pair)

    def test_boot_together(self) -> None:
        """Both daemons dial each other at once and end with one session."""
        scene = self.scene()
        rome, milan = scene.side("rome", peers=(2,)), scene.side("milan", peers=(1,))
        rome.start()
        milan.start()
        scene.acquaint((rome, milan))
        scene.becomes("both are Ready", lambda: phase(rome, milan) == phase(milan, rome) == "Ready")
        for _ in range(5):
            for side in (rome, milan):
                side.kill()
            for side in (rome, milan):
                side.start()
            scene.becomes("both lead", lambda: all(side.daemon.ready.is_open for side in scene.sides))
            scene.world.run(5)
            for side, other in ((rome, milan), (milan, rome)):
                features = side.daemon.features
                assert features is not None
                self.assertEqual([one.peer for one in features.peering.sessions()], [other.id])
                self.assertEqual(phase(side, other), "Ready")

    def test_sleep(self) -> None:
        """A daemon that slept, and whose clock jumped, goes on where it was."""
        for seconds in (5.0, 60.0, 900.0):
            pair = self.pair()
            for side in (pair.rome, pair.milan):
                process = side.process
                assert process is not None
                process.suspend()
                pair.scene.world.run(seconds)
                process.resume()
                pair.well(180)
                process.skew += seconds
                pair.scene.world.run(30)
                pair.well(180)
                process.skew = 0.0
                pair.well(180)
                self.intact(pair)

    def test_a_clock_is_set(self) -> None:
        """Setting a host's clock, forward or back, moves no lease, silence or TTL: the same daemons lead, in the same
        sessions, and all is as before when the clock shows again what it showed.
        """
        for seconds, minutes in ((3600.0, 10), (-1200.0, 21)):
            pair = self.pair(short_offers)
            sides = (pair.rome, pair.milan)

            def state(sides: tuple[Side, ...] = sides) -> list[object]:
                found: list[object] = []
                for side in sides:
                    features = side.daemon.features
                    found.append(id(features))
                    if features is not None:
                        found += [(one.peer, one.since) for one in features.peering.sessions()]
                return found

            before = state()
            for side in sides:
                process = side.process
                assert process is not None
                process.skew += seconds
            for pause in (*[0.5] * 120, *[60.0] * minutes):
                pair.scene.world.run(pause)
                self.assertEqual(state(), before)
                self.assertTrue(node_ready(pair.rome, pair.milan))
                self.assertEqual((phase(pair.rome, pair.milan), phase(pair.milan, pair.rome)), ("Ready", "Ready"))
            self.intact(pair)

    def test_clocks_hours_apart(self) -> None:
        """Clusters whose clocks differ by hours peer, offload, renew their offers and give back as any others."""
        for hours in (-7, 7):
            scene = self.scene()
            rome = scene.side("rome", nodes=(SMALL,), peers=(2,), change=short_offers)
            milan = scene.side("milan", change=short_offers)
            milan.api.skew = hours * 3600.0
            rome.start()
            milan.start()
            scene.acquaint((rome, milan))
            scene.becomes("the node is ready", lambda a=rome, b=milan: node_ready(a, b))  # type: ignore[misc]
            scene.enable(rome)
            scene.deploy(rome, "web", 2, tokens=False)
            scene.becomes("two run", lambda a=rome, b=milan: offloaded(a, b, "web", 2))  # type: ignore[misc]
            scene.world.run(2 * TTL + 60)
            self.assertTrue(node_ready(rome, milan))
            self.assertTrue(offloaded(rome, milan, "web", 2))
            scene.scale(rome, "web", 1)
            scene.becomes("one is left", lambda a=rome, b=milan: offloaded(a, b, "web", 1))  # type: ignore[misc]

    def test_any_order(self) -> None:
        """Failures in any order, several at a time: nothing is lost, and all is well some time after the last."""
        run_cases(lambda: Trouble(self), profile(6, 12))


SIDE = st.integers(0, 1)


class Trouble(RuleBasedStateMachine):
    """Breaks and heals one pair."""

    def __init__(self, case: FailureTests) -> None:
        super().__init__()
        self.case = case

    @initialize()
    def begin(self) -> None:
        self.pair = self.case.pair(short_offers)
        self.asleep: set[int] = set()
        self.closed: set[int] = set()
        self.renewed: set[int] = set()

    def side(self, which: int) -> Side:
        return self.pair.scene.sides[which]

    @rule(source=SIDE, api=st.booleans())
    def one_way(self, source: int, api: bool) -> None:
        target = self.side(1 - source)
        self.pair.scene.network.block(self.side(source).address, target.api_address if api else target.address)

    @rule(api=st.booleans())
    def partition(self, api: bool) -> None:
        milan = self.pair.milan
        self.pair.scene.network.part(self.pair.rome.address, milan.api_address if api else milan.address)

    @rule()
    def heal(self) -> None:
        self.pair.scene.network.heal()

    @rule(which=SIDE)
    def close_api(self, which: int) -> None:
        if which not in self.closed:
            self.closed.add(which)
            self.side(which).stop_api()

    @rule(which=SIDE)
    def open_api(self, which: int) -> None:
        if which in self.closed:
            self.closed.remove(which)
            self.side(which).start_api()

    @rule(which=SIDE, fault=st.sampled_from((*FAULTS, None)))
    def fault(self, which: int, fault: Fault | None) -> None:
        self.side(which).door.fault = fault
        for stream in list(self.side(which).cluster.server.streams):
            stream.stop()

    @rule(which=SIDE, power=st.booleans(), away=st.sampled_from([0.0, 5.0, 30.0]))
    def kill(self, which: int, power: bool, away: float) -> None:
        self.asleep.discard(which)
        self.side(which).kill(power=power)
        self.pair.scene.world.run(away)
        self.side(which).start()

    @rule(power=st.booleans(), away=st.sampled_from([0.0, 5.0, 150.0]))
    def boot_together(self, power: bool, away: float) -> None:
        self.asleep.clear()
        for side in self.pair.scene.sides:
            side.kill(power=power)
        self.pair.scene.world.run(away)
        for side in self.pair.scene.sides:
            side.start()

    @rule(which=SIDE)
    def sleep(self, which: int) -> None:
        process = self.side(which).process
        if process is not None and which not in self.asleep:
            self.asleep.add(which)
            process.suspend()

    @rule(which=SIDE)
    def wake(self, which: int) -> None:
        process = self.side(which).process
        if process is not None and which in self.asleep:
            self.asleep.remove(which)
            process.resume()

    @rule(which=SIDE, ahead=st.sampled_from([-20.0, 0.0, 25.0]))
    def set_clock(self, which: int, ahead: float) -> None:
        process = self.side(which).process
        if process is not None:
            process.skew = ahead

    @precondition(lambda self: not self.closed)
    @rule(which=SIDE)
    def new_key(self, which: int) -> None:
        self.asleep.discard(which)
        self.pair.reinstall(self.side(which))
        self.renewed.add(which)

    @rule(seconds=st.sampled_from([0.01, 1.0, 12.0, 45.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.pair.scene.world.run(seconds)

    @precondition(lambda self: 0 not in self.closed)
    @rule(count=st.integers(0, 3))
    def scale(self, count: int) -> None:
        self.pair.moving = count
        self.pair.scene.scale(self.pair.rome, "moving", count)

    @invariant()
    def nothing_is_lost(self) -> None:
        if hasattr(self, "pair"):
            self.case.intact(self.pair)

    def teardown(self) -> None:
        if not hasattr(self, "pair"):
            return
        self.heal()
        for which in (0, 1):
            self.open_api(which)
            self.wake(which)
            self.side(which).door.fault = None
        for which in sorted(self.renewed):
            side = self.side(which)
            self.pair.scene.becomes("the key is known", partial(has_key, side), 120)
            self.pair.trust_again(self.side(1 - which), side)
        self.pair.well()
        self.case.intact(self.pair)
