"""A second daemon of a cluster: what it does while it stands by, and how it takes over."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from kubesandbox.kinds.kinds import LEASES, PODS

from liqod.agent.state import Leading, StandingBy
from liqod.kube.resources import LEASES as LEASE
from liqod.kube.resources import NAMESPACEOFFLOADINGS
from liqod.kube.resources import PODS as POD
from tests.scenario.case import SHOP, ScenarioCase, live, offloaded, runs
from tests.scenario.kills import Ledger
from tests.scenario.side import Side, daemon_address
from tests.scenario.test_away import directly

SECOND = "10.0.1.4"
"""The machine of rome's second daemon."""
WRITES = ("create", "update", "patch", "delete")
OWN = {("patch", "leases"), ("create", "leases")}
"""How each process says by a Lease of its own that it runs."""
WITHIN = 3.0
"""Seconds from the end of a lease to the first write of who leads then."""
MANY = {
    "rome": {"pods", "secrets", "configmaps", "services", "virtualnodes", "namespaces"},
    "milan": {"pods", "shadowpods", "secrets", "configmaps", "services"},
}
"""What there is much of, by the side whose API server is asked."""


class TakeoverCase(ScenarioCase):
    """Rome borrows from milan, and has two daemons."""

    def begin(self, address: str = SECOND) -> None:
        """Have a peering with three pods, and a second daemon that stands by."""
        self.on = scene = self.scene()
        self.rome, self.milan = scene.peered(directly)
        scene.deploy(self.rome, "web", 3)
        scene.becomes("it runs", lambda: offloaded(self.rome, self.milan, "web", 3))
        self.address = address
        self.process, self.second = self.rome.join(address)
        scene.becomes("the second stands by", lambda: isinstance(self.second.state.value, StandingBy))
        scene.world.run(2.0)

    def asked(self, side: Side) -> Counter[tuple[str, str]]:
        """Return what the second daemon asked an API server for, so far."""
        found: Counter[tuple[str, str]] = Counter()
        for (host, verb, what), count in side.door.asked_by.items():
            if host == self.address:
                found[verb, what] += count
        return found

    def writes(self, side: Side) -> Counter[tuple[str, str]]:
        asked = self.asked(side)
        return Counter({one: count for one, count in asked.items() if one[0] in WRITES})

    def wrote_beyond(self, before: Counter[tuple[str, str]]) -> bool:
        """Tell whether the second daemon wrote anything but leases since."""
        return bool(set(self.writes(self.rome) - before) - {("update", "leases"), *OWN})

    def end_of_lease(self) -> float:
        """Return when the lease ends if nobody renews it."""
        body = self.rome.object(LEASES, "liqod", "liqo-system")
        assert body is not None
        spec = body["spec"]
        renewed: float = datetime.fromisoformat(spec["renewTime"]).timestamp()
        return renewed + int(spec["leaseDurationSeconds"])


class StandbyTests(TakeoverCase):
    """A daemon that stands by, and takes over."""

    def test_it_only_watches(self) -> None:
        """In half an hour of work it asks for nothing but who leads: no list, no write but of its own Lease."""
        self.begin()
        before = [self.asked(side) for side in self.on.sides]
        for number in range(6):
            self.on.scale(self.rome, "web", 2 + number % 3)
            self.on.world.run(300.0)
        for side, seen in zip(self.on.sides, before, strict=True):
            verbs = {one for one in self.asked(side) - seen if one[0] != "watch"}
            self.assertLessEqual(verbs - OWN, {("get", "leases")}, side.name)

    def test_takeover(self) -> None:
        """When the leader's machine fails it writes within 3 s of the end of the lease, without a list of what there
        is much of; what was asked for meanwhile comes about, and no pod notices.
        """
        self.begin()
        ledgers = Ledger(self.rome), Ledger(self.milan)
        uids = {name: pod["metadata"]["uid"] for name, pod in live(self.milan, "web").items()}
        before = [self.asked(side) for side in self.on.sides]
        written = self.writes(self.rome)
        self.rome.kill(power=True)
        self.on.scale(self.rome, "web", 4)
        ended = self.end_of_lease()
        self.on.becomes("it writes", lambda: self.wrote_beyond(written), 30.0)
        self.assertGreater(self.on.world.now, ended)
        self.assertLess(self.on.world.now - ended, WITHIN)
        self.on.becomes("the fourth runs", lambda: offloaded(self.rome, self.milan, "web", 4), 60.0)
        self.assertLess(self.on.world.now - ended, 2 * WITHIN)
        after = {name: pod["metadata"]["uid"] for name, pod in live(self.milan, "web").items()}
        self.assertEqual({name: uid for name, uid in after.items() if name in uids}, uids)
        for side, seen in zip(self.on.sides, before, strict=True):
            lists = {what for verb, what in self.asked(side) - seen if verb == "list"}
            self.assertEqual(lists & MANY[side.name], set(), side.name)
        for ledger in ledgers:
            self.assertEqual(ledger.oddities(), [])

    def test_a_standby_that_was_cut_off(self) -> None:
        """What it missed it knows when it takes over: pods that went meanwhile are gone, new ones are left alone."""
        self.begin()
        scene = self.on
        for address in (self.rome.api_address, self.milan.api_address):
            scene.network.part(SECOND, address)
        scene.scale(self.rome, "web", 1)
        scene.world.run(200.0)
        scene.deploy(self.rome, "more", 2)
        scene.becomes("they run", lambda: offloaded(self.rome, self.milan, "more", 2))
        uids = {pod["metadata"]["uid"] for app in ("web", "more") for pod in live(self.milan, app).values()}
        self.assertEqual(len(uids), 3)
        self.rome.kill(power=True)
        scene.network.heal()
        scene.becomes("it leads", lambda: isinstance(self.second.state.value, Leading), 120.0)
        scene.world.run(60.0)
        for app, count in (("web", 1), ("more", 2)):
            self.assertTrue(offloaded(self.rome, self.milan, app, count), scene.situation())
        found = {pod["metadata"]["uid"] for app in ("web", "more") for pod in live(self.milan, app).values()}
        self.assertEqual(found, uids)

    def test_a_lead_that_is_lost(self) -> None:
        """While another has the lease the former leader writes its own alone; it goes on as if it had never stopped."""
        self.begin()
        self.process.kill()
        scene, self.address = self.on, self.rome.address
        thief = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 30}}
        scene.do(self.rome.client.patch(LEASE, "liqod", thief, "liqo-system", view=None))
        former = self.rome.daemon
        scene.becomes("it stands by", lambda: former.state.value == StandingBy("thief"), 30.0)
        scene.world.run(1.0)
        before = [self.asked(side) for side in scene.sides]
        scene.scale(self.rome, "web", 4)
        scene.world.run(20.0)
        for side, seen in zip(scene.sides, before, strict=True):
            found = {one for one in self.asked(side) - seen if one[0] in (*WRITES, "list")}
            self.assertEqual(found - OWN, set(), side.name)
        self.assertEqual(len(live(self.milan, "web")), 3)
        scene.becomes("the fourth runs", lambda: offloaded(self.rome, self.milan, "web", 4), 60.0)

    def test_the_webhook(self) -> None:
        """On the host of the leader that died it has the webhook's port a second later, and answers before it leads."""
        self.begin(address=daemon_address(1))
        scene = self.on
        remote = {"metadata": {"name": "offloading"}, "spec": {"podOffloadingStrategy": "Remote"}}
        scene.do(self.rome.client.create(NAMESPACEOFFLOADINGS, remote, SHOP, view=None))
        scene.world.run(5.0)
        self.rome.kill()
        scene.world.run(2.0)
        pod = {"containers": [{"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "1"}}}]}
        scene.do(self.rome.client.create(POD, {"metadata": {"name": "early"}, "spec": pod}, SHOP, view=None))
        self.assertIsInstance(self.second.state.value, StandingBy)
        made = self.rome.object(PODS, "early", SHOP)
        assert made is not None
        self.assertIn("nodeAffinity", made["spec"].get("affinity", {}))
        scene.becomes("it runs", lambda: runs_at(self.milan, "early"), 60.0)


def runs_at(side: Side, name: str) -> bool:
    """Tell whether a pod of a name runs in any namespace."""
    return any(one["metadata"]["name"] == name and runs(one) for one in side.objects(PODS))
