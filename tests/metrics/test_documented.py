"""docs/metrics.md names each metric with its labels, and says which labels mean the same."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.packaging.test_monitoring import served

PAGE = Path(__file__).resolve().parents[2] / "docs/metrics.md"
ROW = re.compile(r"^\| `(liqod_\w+)` \| (.+?) \|", re.MULTILINE)
HISTOGRAM = ("_bucket", "_sum", "_count")


class DocumentedTests(SynchronousTestCase):
    """The page for those who write a dashboard."""

    def setUp(self) -> None:
        self.page = PAGE.read_text()
        self.known: dict[str, frozenset[str]] = {}
        for name, (kind, labels) in served().items():
            suffix = next((one for one in HISTOGRAM if name.endswith(one)), "") if kind == "histogram" else ""
            self.known[name.removesuffix(suffix)] = labels

    def test_each_metric_has_its_row(self) -> None:
        """Names and labels are those of the code, in both directions."""
        rows = {name: frozenset(re.findall(r"`(\w+)`", labels)) for name, labels in ROW.findall(self.page)}
        self.assertEqual(rows, self.known)

    def test_labels_that_mean_the_same(self) -> None:
        """The label of the queues has the values of the one of the controllers; the page has a row for both."""
        self.assertEqual(self.known["liqod_queue_length"], {"queue"})
        self.assertEqual(self.known["liqod_reconcile_duration_seconds"], {"controller"})
        explained = re.findall(r"^\| `(\w+)` \| .+ \|$", self.page.partition("## The daemon")[0], re.MULTILINE)
        self.assertLessEqual({"queue", "controller", "peer", "cluster", "resource", "name"}, set(explained))
