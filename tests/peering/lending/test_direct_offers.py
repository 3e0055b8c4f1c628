"""What a lender offers its homes for direct connections, from session to session."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID, Key
from liqod.model.records.network import NetworkConfig, NetworkConfigSpec, NetworkConfigStatus, TunnelSide
from liqod.model.records.views import ForeignCluster, Lent
from liqod.peering.lending.direct import DirectLending
from liqod.wire.events import DirectOffer
from tests.peering.clusters import context_of

ROME = ClusterID("rome")
SIDE = TunnelSide(pod_cidrs=["10.201.0.0/16"], endpoints=["192.0.2.1:5871"], public_key="key", mtu=1420)


class Session:
    """A session with a home; ``sent`` is what it gets."""

    def __init__(self) -> None:
        self.sent: list[DirectOffer] = []

    def send(self, event: DirectOffer) -> bool:
        self.sent.append(event)
        return True


@attrs.define
class Home:
    """A cluster that borrows here."""

    id: ClusterID = ROME
    session: Session | None = attrs.Factory(Session)
    lent: Lent = attrs.Factory(lambda: Lent(verdict="Accepted"))


class Records:
    """The home's ForeignCluster."""

    def get(self, peer: ClusterID) -> ForeignCluster:
        return ForeignCluster()


class Configs:
    """What is agreed with the home about networks."""

    def __init__(self) -> None:
        self.phase = "Agreed"

    def get(self, key: Key) -> NetworkConfig:
        return NetworkConfig(
            spec=NetworkConfigSpec(cluster_id=ROME, local=SIDE), status=NetworkConfigStatus(phase=self.phase)
        )

    def keys(self) -> list[Key]:
        return []


class OfferTests(SynchronousTestCase):
    """One home."""

    def setUp(self) -> None:
        clock, self.home, self.configs = Clock(), Home(), Configs()
        self.lending = DirectLending(
            context_of(clock, {ROME: self.home}),
            cast(Any, Records()),
            own=ClusterID("milan"),
            willing=True,
            configs=cast(Any, self.configs),
            tunnels=cast(Any, None),
        )

    def offered(self) -> list[list[str]]:
        """Take two steps; return the endpoints of each offer that the home was sent."""
        for _ in range(2):
            self.successResultOf(Deferred.fromCoroutine(self.lending.reconcile(ROME)))
        session = self.home.session
        assert session is not None
        sent, session.sent = session.sent, []
        return [event.endpoints for event in sent]

    def test_in_each_session(self) -> None:
        """An offer is sent once in a session, and again when it changes; without one nothing is sent."""
        self.configs.phase = "None"
        self.assertEqual(self.offered(), [])
        self.configs.phase = "Agreed"
        self.assertEqual(self.offered(), [SIDE.endpoints])
        self.home.session = Session()
        self.assertEqual(self.offered(), [SIDE.endpoints])
        self.configs.phase = "None"
        self.assertEqual(self.offered(), [[]])

    def test_taken_back_between_two_sessions(self) -> None:
        """Home keeps what was offered: it is sent that there is none, once."""
        self.assertEqual(self.offered(), [SIDE.endpoints])
        self.home.session, self.configs.phase = Session(), "None"
        self.assertEqual(self.offered(), [[]])
        self.home.session = Session()
        self.assertEqual(self.offered(), [])
