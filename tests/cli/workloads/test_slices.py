"""What ``liqodctl slice`` and ``status`` show of slices."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.status.peers import status_rows
from liqod.cli.workloads.slices import row_of
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.views import (
    ForeignCluster,
    ForeignClusterSpec,
    ResourceSlice,
    ResourceSliceNode,
    ResourceSliceSpec,
    ResourceSliceStatus,
)

REDUCED = ResourceSliceStatus(
    phase="Reduced", reason="ClassLimit", message="as much as the class has", resources={"cpu": "2"}
)


def record(status: ResourceSliceStatus, *, node: bool = True) -> ResourceSlice:
    """Return a slice of the peer c2."""
    spec = ResourceSliceSpec(
        provider_cluster_id="c2",
        slice_class="small",
        resources={"cpu": "4"},
        virtual_node=ResourceSliceNode() if node else None,
    )
    return ResourceSlice(metadata=ObjectMeta(name="gpu", namespace="liqo-system"), spec=spec, status=status)


class RowTests(SynchronousTestCase):
    """Rows of both commands."""

    def test_a_row(self) -> None:
        """What was asked for, what it has, and why that is less; one that nobody looked at yet is pending."""
        row = row_of(record(REDUCED), {})
        self.assertEqual(
            (row["peer"], row["class"], row["state"], row["asked"], row["has"], row["node"]),
            ("c2", "small", "Reduced", "cpu 4", "cpu 2", "gpu"),
        )
        self.assertIn("as much as the class has", row["why"])
        row = row_of(record(ResourceSliceStatus(), node=False), {})
        self.assertEqual((row["state"], row["has"], row["node"], row["why"]), ("Pending", "", "", ""))

    def test_status(self) -> None:
        """The row of a peer names its slices."""
        cluster = ForeignCluster(metadata=ObjectMeta(name="c2"), spec=ForeignClusterSpec(cluster_id="c2"))
        facts = ClusterRecords(peers=[cluster], slices=[record(REDUCED), record(ResourceSliceStatus())])
        (row,) = status_rows(facts, {})
        self.assertEqual(row["slices"], ["gpu reduced, ClassLimit (cpu 2)", "gpu pending"])
