"""What ``liqodctl node`` reads from its options, and what it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.workloads.nodes import amounts, create, pairs, row_of, taints
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import VirtualNode, VirtualNodeSpec, VirtualNodeStatus


class OptionsTests(SynchronousTestCase):
    def read(self, callback: Callable[..., Any], *given: str) -> Any:
        return callback(click.Context(create), create.params[0], given)

    def test_what_is_read(self) -> None:
        """Pairs, amounts in their canonical form, and taints with and without a value."""
        self.assertEqual(self.read(pairs, "a=1", "b=x=y", "c="), {"a": "1", "b": "x=y", "c": ""})
        self.assertEqual(self.read(amounts, "cpu=1500m", "memory=1024Mi"), {"cpu": "1500m", "memory": "1Gi"})
        expected = [
            {"key": "example.com/gpu", "effect": "NoSchedule"},
            {"key": "spot", "value": "yes", "effect": "NoExecute"},
        ]
        self.assertEqual(self.read(taints, "example.com/gpu:NoSchedule", "spot=yes:NoExecute"), expected)

    def test_what_is_refused(self) -> None:
        """What is none of these is refused in words, also an amount below zero and a key that is given twice."""
        for callback, given, word in (
            (pairs, ("a",), "KEY=VALUE"),
            (pairs, ("=1",), "KEY=VALUE"),
            (pairs, ("a=1", "a=2"), "twice"),
            (amounts, ("cpu=much",), "not a quantity"),
            (amounts, ("cpu=-1",), "negative"),
            (taints, ("gpu",), "EFFECT"),
            (taints, ("gpu:Never",), "EFFECT"),
            (taints, (":NoSchedule",), "EFFECT"),
        ):
            with self.assertRaises(click.BadParameter) as refused:
                self.read(callback, *given)
            self.assertIn(word, refused.exception.message)

    def test_a_row(self) -> None:
        """A node that is not ready says why; one that no daemon looked at yet is pending."""
        meta = ObjectMeta(name="gpu", namespace="liqo-system")
        spec = VirtualNodeSpec(cluster_id="c2", node_name="gpu", limits={"cpu": "2"})
        status = VirtualNodeStatus(phase="NotReady", reason="NodeNameTaken", message="it is taken")
        row = row_of(VirtualNode(metadata=meta, spec=spec, status=status), {}, {"gpu"})
        self.assertEqual((row["peer"], row["state"], row["limits"], row["exists"]), ("c2", "NotReady", "cpu 2", True))
        self.assertIn("it is taken", row["why"])
        row = row_of(VirtualNode(metadata=meta, spec=spec), {}, set())
        self.assertEqual((row["state"], row["why"], row["exists"]), ("Pending", "", False))
