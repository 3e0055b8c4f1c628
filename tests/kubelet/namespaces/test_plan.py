"""Tests of liqod.kubelet.namespaces.plan."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.namespaces import plan
from liqod.model.ids import ClusterID
from liqod.model.records.views import MappingStatus

THERE = "shop-rome"


class BegunReleaseTests(SynchronousTestCase):
    def plan(self, *, enabled: bool, pods: bool) -> plan.Step:
        return plan.plan(
            "shop",
            enabled=enabled,
            pods=pods,
            table={"shop": THERE},
            reverse={THERE: "shop"},
            status=MappingStatus(phase=plan.RELEASING),
            asked=False,
            home=ClusterID("rome"),
        )

    def test_without_pods_it_is_completed(self) -> None:
        """A release that was begun goes on, also where the namespace may be offloaded again."""
        for enabled in (False, True):
            self.assertEqual(self.plan(enabled=enabled, pods=False), plan.Release(THERE))

    def test_new_pods_end_it(self) -> None:
        """A namespace that has pods again is asked for again, if it may be offloaded; else they leave first."""
        self.assertEqual(self.plan(enabled=True, pods=True), plan.Ask(THERE))
        self.assertEqual(self.plan(enabled=False, pods=True), plan.Drain(THERE))
