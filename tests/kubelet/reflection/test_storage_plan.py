"""What is done with a claim that waits for its volume, and with a volume whose claim is gone."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.forge.claim import (
    SELECTED_NODE,
    AtHome,
    AtLender,
    Claim,
    Nothing,
    Step,
    Unselect,
    Volume,
    is_to_go,
    plan,
)
from liqod.model.names import PROVISIONER
from liqod.model.objects.storage_class import StorageClass

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
LENDERS = {"liqo-rome": "rome", "liqo-milan": "milan"}
OFFERED = {"rome": ["fast"], "milan": []}
CLASSES = {
    "liqo": msgspec.convert({"metadata": {"name": "liqo"}, "provisioner": PROVISIONER}, StorageClass),
    "real": msgspec.convert({"metadata": {"name": "real"}, "provisioner": "x"}, StorageClass),
}
nodes = st.sampled_from(["", "worker-1", *LENDERS])


def claim(node: str = "liqo-rome", volume: str = "", storage_class: str = "liqo", **annotations: str) -> Claim:
    if node:
        annotations[SELECTED_NODE] = node
    spec = {"storageClassName": storage_class, "volumeName": volume}
    return msgspec.convert({"metadata": {"name": "data", "uid": "c1", "annotations": annotations}, "spec": spec}, Claim)


def planned(one: Claim | None, *, offloaded: bool = True) -> Step:
    return plan(one, CLASSES, LENDERS, OFFERED, offloaded=offloaded)


class PlanTests(SynchronousTestCase):
    """One claim."""

    def test_where_its_pod_goes_decides(self) -> None:
        """At the lender behind the virtual node, at home on every other one; where nothing is offered, elsewhere."""
        self.assertEqual(planned(claim()), AtLender("rome"))
        self.assertEqual(planned(claim("worker-1")), AtHome())
        self.assertEqual(planned(claim("worker-1"), offloaded=False), AtHome())
        none_offered, not_offloaded = planned(claim("liqo-milan")), planned(claim(), offloaded=False)
        assert isinstance(none_offered, Unselect) and isinstance(not_offloaded, Unselect)
        self.assertEqual((none_offered.reason, not_offloaded.reason), ("StorageNotOffered", "NamespaceNotOffloaded"))
        chosen = claim("liqo-milan", **{"liqo.io/remote-storage-class": "theirs"})
        self.assertEqual(planned(chosen), AtLender("milan"))

    @given(nodes, st.sampled_from(["liqo", "real", "unknown"]), st.booleans())
    @STEADILY
    def test_a_claim_that_has_its_volume_is_left_alone(self, node: str, storage_class: str, offloaded: bool) -> None:
        """As is one of another class, one whose pod has no node yet, and one that is gone."""
        self.assertEqual(planned(claim(node, "pvc-1", storage_class), offloaded=offloaded), Nothing())
        self.assertEqual(planned(None, offloaded=offloaded), Nothing())
        if storage_class != "liqo" or not node:
            self.assertEqual(planned(claim(node, "", storage_class), offloaded=offloaded), Nothing())

    @given(
        st.sampled_from(["Pending", "Available", "Bound", "Released", "Failed", ""]),
        st.sampled_from(["Delete", "Retain", "Recycle", ""]),
    )
    @STEADILY
    def test_data_goes_only_where_that_was_said(self, phase: str, policy: str) -> None:
        """The claim is gone, and the class said Delete in so many words: all else is kept."""
        body: dict[str, Any] = {"spec": {"persistentVolumeReclaimPolicy": policy}, "status": {"phase": phase}}
        volume = msgspec.convert({"metadata": {"name": "pvc-1"}, **body}, Volume)
        self.assertEqual(is_to_go(volume), (phase, policy) == ("Released", "Delete"))
