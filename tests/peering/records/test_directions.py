"""Whether a cluster lends to a peer and borrows from it."""

from __future__ import annotations

from itertools import product
from typing import Any, cast, get_args

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.unpeering import FINALIZER
from liqod.model.records.views import ForeignCluster, Switch
from liqod.peering.records.directions import NEITHER, DirectionPolicy

SWITCHES = cast("tuple[Switch, ...]", get_args(Switch))
KEY = "sha256:" + 64 * "a"


def record(incoming: str = "Auto", outgoing: str = "Auto", *, key: str = KEY, **metadata: Any) -> ForeignCluster:
    """Return the record of a peer with these switches."""
    spec = {"clusterID": "rome", "fingerprint": key, "incomingPeering": incoming, "outgoingPeering": outgoing}
    return msgspec.convert({"metadata": {"name": "rome", **metadata}, "spec": spec}, ForeignCluster)


class DirectionTests(SynchronousTestCase):
    """The settings, and what a record says instead."""

    def test_a_record_goes_before_the_settings(self) -> None:
        """Yes and No of a record count; Auto, and no record, leave it to the settings, each direction by itself."""
        for incoming, outgoing in product(SWITCHES, SWITCHES):
            policy = DirectionPolicy("Yes", "No")
            found = policy.of(record(incoming, outgoing))
            self.assertEqual((found.lends, found.borrows), (incoming != "No", outgoing == "Yes"), (incoming, outgoing))
        found = DirectionPolicy("No", "Yes").of(None)
        self.assertEqual((found.lends, found.borrows), (False, True))

    def test_what_ends_has_neither(self) -> None:
        """A record that is being deleted, or whose key was distrusted, wants nothing, whatever its switches say."""
        policy = DirectionPolicy("Yes", "Yes")
        ending = record("Yes", "Yes", deletionTimestamp="2030-01-01T00:00:00Z")
        distrusted = record("Yes", "Yes", key="", finalizers=[FINALIZER])
        self.assertEqual([policy.of(one) for one in (ending, distrusted)], [NEITHER, NEITHER])
