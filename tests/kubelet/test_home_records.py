"""What the records of this cluster say about lenders."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.cache.shared_informers import Informers
from liqod.kubelet.ports import HomeRecords
from liqod.kubelet.service import _StorageLenders
from liqod.model.records.views import VirtualNode
from tests.hosting.shadowpods.test_controller import Cache


class HomeRecordsTests(SynchronousTestCase):
    """The records of two lenders."""

    def setUp(self) -> None:
        self.virtual_nodes, self.tables = Cache(), Cache()
        watched = HomeRecords.watched_by(Informers(cast(Any, None), Clock()))
        fields = {name: getattr(watched, name) for name in ("offers", "enabled", "offloadings", "nodes", "peers")}
        self.records = HomeRecords(virtual_nodes=cast(Any, self.virtual_nodes), tables=cast(Any, self.tables), **fields)

    def test_virtual_nodes(self) -> None:
        """A lender's are its own, without those that are being deleted."""
        for name, lender, deleted in (("a", "rome", ""), ("b", "rome", "2030-01-01T00:00:00Z"), ("c", "milan", "")):
            metadata = {"name": name, "namespace": lender} | ({"deletionTimestamp": deleted} if deleted else {})
            record = msgspec.convert({"metadata": metadata, "spec": {"clusterID": lender}}, VirtualNode)
            self.virtual_nodes.held[record.metadata.key] = record
        for lender, names in (("rome", ["a"]), ("milan", ["c"]), ("turin", [])):
            found = [record.metadata.name for record in self.records.virtual_nodes_of(lender)]
            self.assertEqual(found, names)

    def test_what_is_not_known_yet(self) -> None:
        """The volume provisioner takes a lender for gone only when both kinds of records were listed."""
        lenders = _StorageLenders(cast(Any, None), self.records)
        for nodes, tables in product((False, True), repeat=2):
            self.virtual_nodes.synced, self.tables.synced = nodes, tables
            self.assertIs(lenders.synced, nodes and tables)
