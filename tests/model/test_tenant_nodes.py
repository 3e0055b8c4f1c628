"""Which nodes tenants may use, as a truth table; the same rule decides what is lent."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.load import SettingsError, parse
from liqod.model.objects.node import Node
from liqod.model.objects.pod import Pod
from liqod.model.objects.quantity import parse_all
from liqod.model.objects.tenant_nodes import ControlPlane, TenantNodes
from liqod.peering.lending.capacity import FreeCapacity
from tests.hosting.shadowpods.test_controller import Cache

ROLE = "node-role.kubernetes.io/control-plane"
CONTROL = {ROLE: ""}
OLD_CONTROL = {"node-role.kubernetes.io/master": "true"}
VIRTUAL = {"liqo.io/type": "virtual-node"}


def node(
    name: str = "n",
    labels: dict[str, str] | None = None,
    *taints: tuple[str, str],
    ready: str = "True",
    cordoned: bool = False,
    deleting: bool = False,
) -> Node:
    metadata: dict[str, object] = {"name": name, "labels": labels or {}}
    if deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    spec = {"unschedulable": cordoned, "taints": [{"key": key, "effect": effect} for key, effect in taints]}
    status = {"allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": ready}]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, Node)


CP, CP_TAINTED = node("cp", CONTROL), node("cpt", CONTROL, (ROLE, "NoSchedule"))
WORKER = node("w")
OTHERS: dict[str, tuple[Node | None, bool]] = {
    "none": (None, False),
    "worker": (WORKER, True),
    "not ready": (node("w", ready="Unknown"), True),
    "failing": (node("w", {}, ("node.kubernetes.io/unreachable", "NoExecute"), ready="Unknown"), True),
    "under pressure": (node("w", {}, ("node.kubernetes.io/memory-pressure", "NoSchedule")), True),
    "cordoned": (node("w", cordoned=True), False),
    "leaving": (node("w", deleting=True), False),
    "virtual": (node("v", VIRTUAL), False),
    "of others": (node("g", {}, ("example.com/gpu", "NoSchedule")), False),
    "evicting": (node("g", {}, ("example.com/gpu", "NoExecute")), False),
    "preferring others": (node("g", {}, ("example.com/gpu", "PreferNoSchedule")), True),
    "a second of the control plane": (node("m", OLD_CONTROL), False),
}
"""A node beside that of the control plane, and whether it takes pods of tenants."""


def names(nodes: list[Node]) -> list[str]:
    return [one.metadata.name for one in nodes]


class TenantNodesTests(SynchronousTestCase):
    """The truth table."""

    def test_auto(self) -> None:
        """The control plane is open exactly where no other node takes tenants' pods, when it is ready."""
        for (what, (other, takes)), control in product(OTHERS.items(), (CP, CP_TAINTED)):
            nodes = [control] if other is None else [control, other]
            with self.subTest(f"{what}, {control.metadata.name}"):
                self.assertEqual(TenantNodes().avoids_control_plane(nodes), takes)

    def test_settings(self) -> None:
        """Yes and no hold whatever there is; the former true and false mean the same."""
        for other, _ in OTHERS.values():
            nodes = [CP] if other is None else [CP, other]
            opened: tuple[ControlPlane | bool, ...] = ("yes", True)
            closed: tuple[ControlPlane | bool, ...] = ("no", False)
            for choice in opened:
                self.assertFalse(TenantNodes.of(choice, ()).avoids_control_plane(nodes))
            for choice in closed:
                self.assertTrue(TenantNodes.of(choice, ()).avoids_control_plane(nodes))

    def test_usable(self) -> None:
        """What is lent: nodes that take tenants' pods now."""
        gpu = node("g", {}, ("example.com/gpu", "NoSchedule"))
        rows: list[tuple[list[Node], ControlPlane, tuple[str, ...], list[str]]] = [
            ([CP], "auto", (), ["cp"]),
            ([CP], "yes", (), ["cp"]),
            ([CP], "no", (), []),
            ([CP, WORKER], "auto", (), ["w"]),
            ([CP, WORKER], "yes", (), ["cp", "w"]),
            ([CP, WORKER], "no", (), ["w"]),
            ([CP_TAINTED], "yes", (), []),
            ([CP_TAINTED], "yes", (ROLE,), ["cpt"]),
            ([CP_TAINTED], "auto", (), []),
            ([CP, node("w", ready="False")], "auto", (), []),
            ([CP, node("w", cordoned=True)], "auto", (), ["cp"]),
            ([CP, gpu], "auto", (), ["cp"]),
            ([CP, gpu], "auto", ("example.com/gpu",), ["g"]),
            ([node("v", VIRTUAL)], "auto", (), []),
        ]
        for nodes, choice, tolerated, usable in rows:
            with self.subTest(f"{names(nodes)} {choice} {tolerated}"):
                self.assertEqual(names(TenantNodes.of(choice, tolerated).usable(nodes)), usable)


class CapacityTests(SynchronousTestCase):
    """The same rule decides what is free to lend, also after a change that is of another node."""

    def test_lent(self) -> None:
        """A worker that joins takes the control plane out of the offer; a cordoned one brings it back."""
        clock = Clock()
        nodes: Any = Cache()
        pods: Any = Cache()
        pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "cp", "containers": []}}
        pods.put(msgspec.convert(pod, Pod))
        nodes.put(CP)
        capacity = FreeCapacity(nodes, pods, clock, TenantNodes())
        capacity.start()
        self.addCleanup(capacity.stop)
        clock.advance(5)
        self.assertEqual(capacity.free(), parse_all({"cpu": "4"}))
        for change, cpu in (
            (node("w", ready="False"), dict[str, str]()),
            (WORKER, {"cpu": "4"}),
            (node("w", cordoned=True), {"cpu": "4"}),
            (node("w", {}, ("example.com/gpu", "NoSchedule")), {"cpu": "4"}),
        ):
            before = capacity.revision.value
            nodes.put(change)
            clock.advance(5)
            self.assertEqual(capacity.free(), parse_all(cpu))
            self.assertEqual(capacity.revision.value, before + 1)


class SettingTests(SynchronousTestCase):
    """``[hosting] control-plane-nodes`` in a file and in the environment."""

    def test_values(self) -> None:
        """Three words, true and false; anything else is refused with what is allowed."""
        for text, expected in (('"auto"', "auto"), ('"no"', "no"), ("true", True), ("false", False)):
            found = parse(f"[hosting]\ncontrol-plane-nodes = {text}", {}).hosting.control_plane_nodes
            self.assertEqual(found, expected)
        for value, expected in (("yes", "yes"), ("true", True)):
            found = parse("", {"LIQOD_HOSTING__CONTROL_PLANE_NODES": value}).hosting.control_plane_nodes
            self.assertEqual(found, expected)
        with self.assertRaisesRegex(SettingsError, '"auto", "yes", "no" or true or false'):
            parse('[hosting]\ncontrol-plane-nodes = "never"', {})
