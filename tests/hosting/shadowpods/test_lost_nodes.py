"""Which pods may be deleted with force, because no kubelet will confirm that they ended."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.shadowpods.lost_nodes import STATEFULSET_POD_LABEL, may_be_forced
from liqod.hosting.views import Pod


def pod(*, deleting: bool = True, node: str = "worker-1", labels: dict[str, str] | None = None) -> Pod:
    metadata: dict[str, Any] = {"name": "web", "labels": labels or {}}
    if deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    return msgspec.convert({"metadata": metadata, "spec": {"nodeName": node} if node else {}}, Pod)


class ForceTests(SynchronousTestCase):
    def test_table(self) -> None:
        """Only a pod that is terminating on a node, and never one of a StatefulSet: no two of those may run."""
        of_a_set = {STATEFULSET_POD_LABEL: "web-0"}
        self.assertTrue(may_be_forced(pod()))
        self.assertFalse(may_be_forced(pod(deleting=False)), "it was not asked to end")
        self.assertFalse(may_be_forced(pod(node="")), "it is on no node that could be lost")
        self.assertFalse(may_be_forced(pod(labels=of_a_set)))
        self.assertFalse(may_be_forced(pod(labels=of_a_set, deleting=False)))
