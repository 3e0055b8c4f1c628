"""What `check`, `status` and `doctor` say of releases of Kubernetes that lack something."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.findings import failed
from liqod.cli.setup.check import MINIMUM
from liqod.cli.setup.doctor import findings
from liqod.cli.status.status import lacks
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.diagnosis.examination import Evidence
from liqod.model.diagnosis.kubernetes_release import GAPS, gaps, release_of
from liqod.model.diagnosis.kubernetes_release import KUBERNETES as KUBERNETES_TOPIC
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.node import Node, NodeInfo, NodeStatus
from tests.cli.cluster_case import ClusterCase
from tests.testbed.versions import KUBERNETES, OLDER, release


def node(name: str, peer: str, version: str) -> Node:
    """Return the virtual node of a peer with a release."""
    meta = ObjectMeta(name=name, labels={REMOTE_CLUSTER_LABEL: peer})
    return Node(metadata=meta, status=NodeStatus(node_info=NodeInfo(kubelet_version=version)))


class GapTests(SynchronousTestCase):
    """The table of releases."""

    def test_releases(self) -> None:
        """Versions of all distributions name their release; what is no version names none."""
        cases = {"v1.30.14": (1, 30), "1.36.1": (1, 36), "v1.33.4+k3s1": (1, 33), "v1.34.1-gke.5": (1, 34)}
        self.assertEqual({version: release_of(version) for version in cases}, cases)
        self.assertEqual([release_of(text) for text in ("", "v1", "latest", "v.1.2")], [None] * 4)

    def test_what_each_lacks(self) -> None:
        """An older release lacks what a later one lacks, and more; the usual one lacks nothing; unknown is not old."""
        counts = [len(gaps(release_of(release(name)))) for name in sorted(OLDER)]
        self.assertEqual(counts, sorted(counts, reverse=True))
        self.assertEqual(len(gaps(MINIMUM)), len(GAPS))
        self.assertEqual(gaps(release_of(KUBERNETES)), [])
        self.assertEqual(gaps(None), [])

    @given(st.text(max_size=40))
    def test_any_text(self, text: str) -> None:
        """Whatever a peer calls its version, there is an answer."""
        self.assertLessEqual(len(gaps(release_of(text), at_lender=True)), len(GAPS))

    def test_of_a_lender(self) -> None:
        """`status PEER` says what the lender's own release lacks for pods there, and nothing of other peers."""
        nodes = [node("liqo-milan", "milan", "v1.30.14"), node("liqo-paris", "paris", f"v{KUBERNETES}")]
        said = lacks(nodes, "milan")
        self.assertEqual(len(said), sum(gap.at_lender for gap in GAPS))
        self.assertTrue(all(line.startswith("v1.30.14 ") for line in said))
        self.assertEqual(lacks(nodes, "paris"), [])
        self.assertEqual(lacks(nodes, "rome"), [])

    def test_of_doctor(self) -> None:
        """`doctor` warns of what this cluster and its lenders lack, with what to do, and calls no such one well."""
        lenders = [node("liqo-milan", "milan", "v1.30.14"), node("liqo-paris", "paris", f"v{KUBERNETES}")]
        nodes = [*lenders, Node(metadata=ObjectMeta(name="own"))]
        found = findings(Evidence(records=ClusterRecords(nodes=nodes), kubernetes="v1.33.1"))
        of_it = [one for one in found if one.group == KUBERNETES_TOPIC]
        warned = [one.text for one in of_it if one.verdict == "warning"]
        self.assertTrue(all(one.hint and one.code == "OlderKubernetes" for one in of_it if one.verdict == "warning"))
        self.assertEqual(len([one for one in warned if "v1.30.14" in one]), sum(gap.at_lender for gap in GAPS))
        self.assertEqual(len([one for one in warned if "Kubernetes v1.33.1" in one]), len(gaps((1, 33))))
        (well,) = [one.text for one in of_it if one.verdict == "good"]
        self.assertIn("liqo-paris", well)
        self.assertFalse(failed(of_it), "an older release is supported")


class CheckedReleaseTests(ClusterCase):
    """`liqodctl check` of a cluster of the sandbox, which is of the usual release."""

    async def test_nothing_is_lacking(self) -> None:
        """Of the usual release nothing is said."""
        out, err, _ = await self.outcome("check", "--pre", env={"HOME": "/nonexistent"})
        self.assertIn("Kubernetes 1.36", out)
        self.assertNotIn("MutatingAdmissionPolicies", out + err)
