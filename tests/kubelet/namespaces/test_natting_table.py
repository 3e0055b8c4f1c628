"""What a natting table says of all its namespaces together."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.namespaces.natting_table import _summary
from liqod.kubelet.namespaces.plan import READY
from liqod.model.records.views import MappingStatus


class SummaryTests(SynchronousTestCase):
    """Phase and message."""

    def test_table(self) -> None:
        """All are ready, or so many are not, and the first of them says why; one that is written counts as written."""
        ready, refused = MappingStatus(phase=READY), MappingStatus(phase="Refused", reason="NameTaken", message="no")
        pending = MappingStatus(phase="Pending")
        for mappings, written, phase, message in (
            ({}, ready, READY, ""),
            ({"a": ready}, ready, READY, ""),
            ({"b": ready, "shop": refused}, ready, READY, ""),
            ({"b": refused}, None, "0 of 1 ready", "b: NameTaken: no"),
            ({"b": refused, "c": ready}, pending, "1 of 3 ready", "b: NameTaken: no"),
            ({"z": refused, "c": ready}, pending, "1 of 3 ready", "shop: Pending"),
            ({"c": ready, "shop": refused}, None, READY, ""),
        ):
            self.assertEqual(_summary(dict(mappings), "shop", written), {"phase": phase, "message": message}, mappings)
