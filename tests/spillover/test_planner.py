"""Which pods may come home: a table of what keeps them away, and properties of room."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects.node import Node, Taint
from liqod.model.objects.pod import Pod
from liqod.spillover.planner import (
    ATTEMPTS,
    OffloadedPod,
    RefusedEviction,
    Room,
    attempted,
    requested_on,
    returnable,
    rooms,
)

OWNER = {"kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True}
RULE = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}


def pod(name: str = "web", cpu: str = "1", *, meta: dict[str, Any] | None = None, **spec: Any) -> OffloadedPod:
    containers = [{"resources": {"requests": {"cpu": cpu}}}]
    metadata = {
        "name": name,
        "namespace": "shop",
        "creationTimestamp": f"2026-01-01T00:00:{len(name):02}Z",
        "ownerReferences": [OWNER],
        **(meta or {}),
    }
    return msgspec.convert({"metadata": metadata, "spec": {"containers": containers, **spec}}, OffloadedPod)


def room(name: str = "node", cpu: str | Fraction = "1", **more: Any) -> Room:
    return Room(name, more.get("labels", {}), more.get("taints", ()), {"cpu": Fraction(cpu), "pods": Fraction(9)})


def names(found: list[OffloadedPod]) -> list[str]:
    return [one.metadata.name for one in found]


class ReturnableTests(SynchronousTestCase):
    def test_who_may(self) -> None:
        """Pods that a controller makes again and that certainly fit; not bare ones, jobs', or what cannot be judged."""
        zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]}}
        table: list[tuple[OffloadedPod, bool]] = [
            (pod(), True),
            (pod(cpu="1001m"), False),
            (pod(cpu="many"), False),
            (pod(meta={"ownerReferences": []}), False),
            (pod(meta={"ownerReferences": [{**OWNER, "controller": False}]}), False),
            (pod(meta={"ownerReferences": [{**OWNER, "kind": "StatefulSet"}]}), True),
            (pod(meta={"ownerReferences": [{**OWNER, "kind": "Job"}]}), False),
            (pod(meta={"ownerReferences": [{**OWNER, "kind": "DaemonSet"}]}), False),
            (pod(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), False),
            (pod(nodeSelector={"zone": "a"}), True),
            (pod(nodeSelector={"zone": "b"}), False),
            (pod(affinity={"nodeAffinity": required}), True),
            (pod(affinity={"nodeAffinity": PREFERRED}), True),
            (pod(affinity={"podAntiAffinity": PREFERRED}), True),
            (pod(affinity={"podAntiAffinity": RULE}), False),
            (pod(affinity={"podAffinity": RULE}), False),
            (pod(volumes=[{"name": "tmp", "emptyDir": {}}]), True),
            (pod(volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]), False),
            (pod(volumes=[{"name": "data", "ephemeral": {}}]), False),
            (pod(topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway"}]), True),
            (pod(topologySpreadConstraints=[{"whenUnsatisfiable": "DoNotSchedule"}]), False),
            (pod(hostNetwork=True), False),
            (pod(containers=[{"ports": [{"hostPort": 80}]}]), False),
            (pod(containers=[{"ports": [{"containerPort": 80}]}]), True),
        ]
        for one, expected in table:
            found = returnable([one], [room(labels={"zone": "a"})], [])
            self.assertEqual(found, [one] if expected else [], one)

    def test_taints(self) -> None:
        """A taint that keeps pods away keeps this one, unless it is tolerated for good."""
        taint = Taint(key="gpu", value="yes", effect="NoSchedule")
        table: list[tuple[list[dict[str, Any]], bool]] = [
            ([], False),
            ([{"key": "gpu", "operator": "Exists"}], True),
            ([{"operator": "Exists"}], True),
            ([{"key": "gpu", "value": "yes"}], True),
            ([{"key": "gpu", "value": "no"}], False),
            ([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], False),
            ([{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}], False),
        ]
        for tolerations, expected in table:
            found = returnable([pod(tolerations=tolerations)], [room(taints=(taint,))], [])
            self.assertEqual(bool(found), expected, tolerations)

    def test_mild_taints(self) -> None:
        """A node that the scheduler would rather leave alone is no room: it may rank a virtual node higher."""
        mild = (Taint(key="DeletionCandidateOfClusterAutoscaler", effect="PreferNoSchedule"),)
        everything = [{"operator": "Exists"}]
        self.assertEqual(returnable([pod()], [room(taints=mild)], []), [])
        self.assertTrue(returnable([pod(tolerations=everything)], [room(taints=mild)], []))
        # A pending pod takes room there only if there is none elsewhere.
        waits, tolerant = pod("waits"), pod(tolerations=everything)
        self.assertEqual(returnable([tolerant], [room(taints=mild)], [waits]), [])
        self.assertEqual(returnable([pod()], [room("a", taints=mild), room("b")], [waits]), [])

    def test_pending_pods_come_first(self) -> None:
        """What a pending pod needs is taken; one that fits nowhere, is gated or goes takes nothing."""
        waits = pod("waits")
        self.assertEqual(returnable([pod()], [room()], [waits]), [])
        self.assertEqual(len(returnable([pod()], [room(), room("other")], [waits])), 1)
        for idle in (
            pod("waits", "64"),
            pod("waits", nodeSelector={"no": "where"}),
            pod("waits", schedulingGates=[{"name": "x"}]),
            pod("waits", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ):
            self.assertEqual(len(returnable([pod()], [room()], [idle])), 1, idle)

    def test_oldest_first(self) -> None:
        """The order is by age."""
        self.assertEqual(names(returnable([pod("bbb"), pod("c"), pod("aa")], [room()], [])), ["c", "aa", "bbb"])

    @given(st.lists(st.integers(1, 8), max_size=6), st.lists(st.integers(1, 8), max_size=6), st.integers(0, 10))
    def test_no_pod_without_room(self, wanted: list[int], pending: list[int], free: int) -> None:
        """On one node a pod returns only where it fits beside all pending ones that fit before it."""
        waiting = [pod("p" * (index + 1), str(cpu)) for index, cpu in enumerate(pending)]
        left = free
        for cpu in pending:
            left -= cpu if cpu <= left else 0
        away = [pod(f"w{index}", str(cpu)) for index, cpu in enumerate(wanted)]
        found = returnable(away, [room(cpu=Fraction(free))], waiting)
        self.assertEqual(len(found), sum(cpu <= left for cpu in wanted))


class AttemptedTests(SynchronousTestCase):
    def test_whom_a_step_tries(self) -> None:
        """Pods never refused come first, then those refused whose time is over; who was refused a moment ago waits."""
        many = "abcdefgh"
        table: list[tuple[str, dict[str, float], str]] = [
            ("", {}, ""),
            ("abc", {}, "abc"),
            (many, {}, many[:ATTEMPTS]),
            ("abc", {"a": 101}, "bc"),
            ("abc", {"a": 100}, "bca"),
            ("abc", {"a": 90, "b": 80}, "cba"),
            ("abc", {"a": 101, "b": 101, "c": 101}, ""),
            (many, dict.fromkeys("abcde", 101), "fgh"),
            (many, dict.fromkeys("abcde", 99), "fghab"),
            (many, {name: 99 - index for index, name in enumerate(many)}, "hgfed"),
            ("abc", {"z": 101}, "abc"),
        ]
        for pods, until, expected in table:
            refused = {name: RefusedEviction(1, moment) for name, moment in until.items()}
            found = attempted([pod(name, meta={"uid": name}) for name in pods], refused, 100)
            self.assertEqual("".join(names(found)), expected, (pods, until))


class RoomTests(SynchronousTestCase):
    def node(self, name: str, *, ready: str = "True", cpu: str = "4", **spec: Any) -> Node:
        labels = {"liqo.io/type": "virtual-node"} if name.startswith("liqo-") else {}
        status = {"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [{"type": "Ready", "status": ready}]}
        return msgspec.convert({"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}, Node)

    def occupying(self, node: str, cpu: str) -> Pod:
        containers = [{"resources": {"requests": {"cpu": cpu}}}]
        return msgspec.convert({"metadata": {}, "spec": {"nodeName": node, "containers": containers}}, Pod)

    def test_rooms(self) -> None:
        """Own nodes that are ready and schedulable have what is allocatable without what their pods request."""
        nodes = [
            self.node("b"),
            self.node("a"),
            self.node("liqo-milan"),
            self.node("lost", ready="Unknown"),
            self.node("cordoned", unschedulable=True),
            self.node("odd", cpu="many"),
            self.node("unread"),
        ]
        pods = [self.occupying(*one) for one in (("a", "1"), ("a", "1500m"), ("liqo-milan", "9"), ("unread", "x"))]
        found = rooms(nodes, requested_on([node.metadata.name for node in nodes if node.lendable], pods))
        self.assertEqual(
            [(one.name, one.free) for one in found],
            [
                ("a", {"cpu": Fraction(3, 2), "pods": Fraction(8)}),
                ("b", {"cpu": Fraction(4), "pods": Fraction(10)}),
            ],
        )
