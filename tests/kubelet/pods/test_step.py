"""Tests of liqod.kubelet.pods.step: the next step of a pod by its namespace and by how the lender answers."""

from __future__ import annotations

from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.common.readiness import CREDENTIAL_REJECTED
from liqod.kubelet.common.views import HomePod, decoded
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.namespaces.state import (
    NamespacePending,
    NamespaceRefused,
    NamespaceState,
    NotOffloaded,
    Offloaded,
)
from liqod.kubelet.pods.decide import Create, Decision, DeleteHome, Keep, Patch, WriteStatus
from liqod.kubelet.pods.restarts import tally
from liqod.kubelet.pods.step import AtLender, LenderState, Observation, Step, next_step
from tests.kubelet.pods.test_decide import CONTEXT, DELETING, NOW, RUNNING, home, remote, shadow

REMOTE = cast(RemoteNamespace, object())
"""Decisions pass it on, and read nothing of it."""
OFFLOADED, DRAINING = Offloaded(REMOTE, draining=False), Offloaded(REMOTE, draining=True)
WELL = LenderState(ok=True, live=True, silent=False, rejected=False, usable=True)
AWAY = LenderState(ok=False, live=False, silent=False, rejected=False, usable=True)
LOST = LenderState(ok=False, live=False, silent=True, rejected=False, usable=True)
REJECTED = LenderState(ok=False, live=False, silent=True, rejected=True, usable=True)
BEHIND = LenderState(ok=True, live=False, silent=False, rejected=False, usable=True)
CUT = LenderState(ok=True, live=True, silent=False, rejected=False, usable=False)

STATEFUL: dict[str, Any] = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "o", "controller": True}]
}


def nothing_there(**more: Any) -> AtLender:
    values: dict[str, Any] = {
        "shadow": None,
        "pod": None,
        "ended": None,
        "tally": None,
        "grace_ignored": False,
        "held": None,
        **more,
    }
    return AtLender(namespace="shop-home", **values)


def runs_there(pod: HomePod, **more: Any) -> AtLender:
    runs = remote()
    count = tally(None, decoded(pod.status), runs.metadata.uid, decoded(runs.status))
    return nothing_there(shadow=shadow(), pod=runs, tally=count, **more)


def observed(
    pod: HomePod | None,
    state: NamespaceState = OFFLOADED,
    there: AtLender | None = None,
    lender: LenderState = WELL,
    **more: Any,
) -> Observation:
    values: dict[str, Any] = {
        "given_up": False,
        "name_refused": False,
        "prepared": True,
        "context": CONTEXT,
        "now": NOW,
        **more,
    }
    return Observation(home=pod, namespace=state, there=there, lender=lender, **values)


def kind(step: Step) -> tuple[type[Decision], bool]:
    return type(step.decision), step.postponed


class StepTests(SynchronousTestCase):
    """One table for each thing that a step follows from."""

    def table(self, rows: list[tuple[str, Observation, type[Decision], bool]]) -> None:
        for name, one, decision, postponed in rows:
            self.assertEqual(kind(next_step(one)), (decision, postponed), name)

    def test_by_namespace(self) -> None:
        """Where pods are not offloaded that is written to the pod; one that is deleted goes as soon as it may."""
        no, refused = NotOffloaded("why not"), NamespaceRefused("NotGranted", "no")
        asked, not_asked = NamespacePending(asked=True), NamespacePending(asked=False)
        gone, stateful = home(RUNNING, **DELETING), home(RUNNING, **DELETING, **STATEFUL)
        never_ran = home(**DELETING, **STATEFUL)
        self.table(
            [
                ("not offloaded", observed(home(), no), WriteStatus, False),
                ("not offloaded, no pod", observed(None, no), Keep, False),
                ("not offloaded, deleted", observed(gone, no), DeleteHome, False),
                ("refused", observed(home(), refused), WriteStatus, False),
                ("refused, deleted", observed(gone, refused), DeleteHome, False),
                ("refused, a StatefulSet's that may run", observed(stateful, refused), Keep, False),
                ("by name, so that it does not", observed(stateful, refused, name_refused=True), DeleteHome, False),
                ("refused, never started", observed(never_ran, refused), DeleteHome, False),
                ("pending", observed(home(), asked), Keep, False),
                ("pending, deleted", observed(gone, asked), Keep, False),
                ("pending, deleted, given up", observed(gone, asked, given_up=True), DeleteHome, False),
                ("not asked for, deleted", observed(gone, not_asked), DeleteHome, False),
                ("pending, no pod", observed(None, asked), Keep, False),
                ("not known yet", observed(home()), Keep, False),
                ("not known yet, deleted", observed(gone), Keep, False),
                ("not known yet, given up", observed(gone, given_up=True), DeleteHome, False),
                ("nothing there", observed(home(), there=nothing_there()), Create, False),
                ("draining", observed(home(), DRAINING, nothing_there()), Keep, False),
                ("draining, it runs", observed(home(), DRAINING, runs_there(home())), WriteStatus, False),
            ]
        )

    def test_by_lender(self) -> None:
        """While the lender does not answer, or what it shows may be old, a step waits for it as well."""
        up, new = home(RUNNING), home()
        same = runs_there(up)
        self.table(
            [
                ("away", observed(up, there=nothing_there(), lender=AWAY), Create, True),
                ("behind", observed(new, there=nothing_there(), lender=BEHIND), Create, True),
                ("away, not known yet", observed(new, lender=AWAY), Keep, True),
                ("away, no pod", observed(None, there=nothing_there(), lender=AWAY), Keep, False),
                ("away, not offloaded", observed(new, NotOffloaded("no"), lender=AWAY), WriteStatus, False),
                ("lost, it runs", observed(up, there=same, lender=LOST), WriteStatus, True),
                ("rejected, it is gone there", observed(up, there=nothing_there(), lender=REJECTED), WriteStatus, True),
            ]
        )
        for lender, reason in ((LOST, "LenderUnreachable"), (REJECTED, CREDENTIAL_REJECTED)):
            self.assertEqual(self.ready(next_step(observed(up, there=same, lender=lender))), ("False", reason))

    def test_by_network(self) -> None:
        """Where packets do not reach the lender's pods, none of them is ready; that waits for nothing."""
        up = home(RUNNING)
        step = next_step(observed(up, there=runs_there(up), lender=CUT))
        self.assertFalse(step.postponed)
        self.assertEqual(self.ready(step)[0], "False")

    def ready(self, step: Step) -> tuple[str, str]:
        assert isinstance(step.decision, WriteStatus), step
        (found,) = [one for one in step.decision.status["conditions"] if one["type"] == "Ready"]
        return found["status"], found.get("reason", "")

    def test_an_update_waits_for_the_lender(self) -> None:
        """An update of a ShadowPod is not sent while it could not be, or was refused; the pod's status is written."""
        changed = home(labels={"new": "1"})
        there = runs_there(changed)
        step = next_step(observed(changed, there=there))
        assert isinstance(step.decision, Patch)
        self.assertFalse(step.postponed)
        digest = step.decision.patch["metadata"]["annotations"]["offloading.liqo.io/forged"]
        held = runs_there(changed, held=digest)
        self.table(
            [
                ("not prepared", observed(changed, there=there, prepared=False), WriteStatus, True),
                ("refused a moment ago", observed(changed, there=held), WriteStatus, False),
                ("another was refused", observed(changed, there=runs_there(changed, held="x")), Patch, False),
            ]
        )
        deleted = home(**{**DELETING, "deletionGracePeriodSeconds": 5})
        note = observed(deleted, there=runs_there(deleted), prepared=False)
        self.assertEqual(kind(next_step(note)), (Patch, False), "a note of the grace period does not wait")
