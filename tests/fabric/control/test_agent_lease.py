"""Whether the network agent of the gateway renews its lease, as control sees it: without a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.control.agent_lease import MARGIN, AgentLease
from liqod.fabric.control.cluster_facts import is_lost
from liqod.flow.observe import Latest
from liqod.kube.leader import Lease, LeaseSpec
from liqod.model.ids import Key
from liqod.model.names import TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.node import Node

LEASE = Key("liqo-system", "liqod-network")
DURATION = 10


class Watch:
    """An informer that is followed by hand."""

    def __init__(self) -> None:
        self.live: Latest[bool] = Latest(True)
        self.shows: Callable[[Key, Lease | None, Lease | None], None] = lambda key, old, new: None

    def subscribe(self, subscriber: Callable[[Key, Lease | None, Lease | None], None]) -> Callable[[], None]:
        self.shows = subscriber
        return lambda: None


def lease(renewed: str) -> Lease:
    """Return the lease after a renewal; its date is by the agent's clock, and means nothing here."""
    return Lease(spec=LeaseSpec(holder_identity="one", lease_duration_seconds=DURATION, renew_time=renewed))


class AgentLeaseTests(SynchronousTestCase):
    """One lease, and time that passes."""

    def setUp(self) -> None:
        self.clock, self.watch = Clock(), Watch()
        self.lease = AgentLease(cast(Any, self.watch), self.clock)

    def passes(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        return self.lease.is_silent()

    def test_it_is_silent_when_it_does_not_renew(self) -> None:
        """After the duration and the margin since the last change was seen; the next renewal ends it."""
        one, two = lease("2001-01-01T00:00:00Z"), lease("2001-01-01T00:00:03Z")
        self.watch.shows(LEASE, None, one)
        self.assertFalse(self.passes(DURATION + MARGIN))
        self.assertTrue(self.passes(1))
        self.watch.shows(LEASE, one, one)
        self.assertTrue(self.passes(0))
        self.watch.shows(LEASE, one, two)
        self.assertFalse(self.passes(DURATION + MARGIN))
        self.assertTrue(self.passes(1))

    def test_no_lease_says_nothing(self) -> None:
        """Before there is one, and when somebody deleted it."""
        self.assertFalse(self.passes(1000))
        self.watch.shows(LEASE, None, lease("a"))
        self.assertTrue(self.passes(1000))
        self.watch.shows(LEASE, lease("a"), None)
        self.assertFalse(self.passes(1000))

    def test_without_a_watch_no_time_passes(self) -> None:
        """Who cannot see renewals does not miss them; a silent agent is not renewed by a watch that is back."""
        self.watch.shows(LEASE, None, lease("a"))
        self.passes(DURATION)
        self.watch.live.set(False)
        self.assertFalse(self.passes(1000))
        self.watch.live.set(True)
        self.assertFalse(self.passes(DURATION + MARGIN))
        self.assertTrue(self.passes(1))
        for live in (False, True):
            self.watch.live.set(live)
            self.assertTrue(self.passes(1))


class LostHostTests(SynchronousTestCase):
    """A host of which Kubernetes knows nothing any more."""

    def test_only_a_silent_kubelet_loses_a_host(self) -> None:
        """Not one that says that it is not ready, not a virtual node at the same address, not a host without a node."""
        for status, virtual, address, expected in (
            ("Unknown", False, "192.0.2.1", True),
            ("False", False, "192.0.2.1", False),
            ("True", False, "192.0.2.1", False),
            ("Unknown", True, "192.0.2.1", False),
            ("Unknown", False, "192.0.2.2", False),
            ("Unknown", False, "", False),
        ):
            node = {
                "metadata": {"name": "one", "labels": {TYPE_LABEL: VIRTUAL_NODE_TYPE} if virtual else {}},
                "status": {
                    "conditions": [{"type": "Ready", "status": status}],
                    "addresses": [{"type": "Hostname", "address": ""}, {"type": "InternalIP", "address": "192.0.2.1"}],
                },
            }
            self.assertEqual(is_lost(address, [msgspec.convert(node, Node)]), expected, (status, virtual, address))
