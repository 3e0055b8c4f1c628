"""Whose key the relay takes for whose, and where other clusters' relays are asked."""

from __future__ import annotations

from typing import Any, cast

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.views import AnnouncedKey, Endpoint, ForeignCluster, ForeignClusterSpec, Lent
from liqod.peering.relay.callers import PinnedCallers
from liqod.peering.session.lending import Lending

ROME, MILAN = ClusterID("rome"), ClusterID("milan")
KEYS = tuple(Fingerprint("sha256:" + letter * 64) for letter in "abc")
keys = st.sampled_from(KEYS)


@attrs.define
class Session:
    """A session, by who dialled."""

    role: str
    address: str = "192.0.2.9:5872"


@attrs.define
class Known:
    """A peer, as far as the relay asks."""

    lending: Lending = attrs.field(factory=Lending)
    session: Session | None = None
    sightings: tuple[Endpoint, ...] = ()


class Pins:
    """Records of keys that are pinned, and announced."""

    def __init__(self, pins: dict[ClusterID, Fingerprint], records: dict[ClusterID, ForeignCluster]) -> None:
        self.pins = pins
        self._records = records

    def get(self, peer: ClusterID) -> ForeignCluster | None:
        return self._records.get(peer)


def record(fingerprint: str, next_key: str | None = None) -> ForeignCluster:
    announced = AnnouncedKey(fingerprint=next_key, by=fingerprint) if next_key else None
    return ForeignCluster(spec=ForeignClusterSpec(fingerprint=fingerprint, announced_key=announced))


def callers(pins: Any, records: Any, peers: Any) -> PinnedCallers:
    return PinnedCallers(cast(Any, Pins(pins, records)), peers)


class CallerTests(SynchronousTestCase):
    """The holder of a key."""

    @given(st.none() | keys, st.none() | keys, st.none() | keys, keys)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_the_pinned_key_and_the_one_that_it_announced(
        self, pin: Fingerprint | None, recorded: Fingerprint | None, following: Fingerprint | None, key: Fingerprint
    ) -> None:
        """Nothing else; an announcement counts for the key that is pinned now, not for one that was."""
        pins = {ROME: pin} if pin is not None else {}
        records = {ROME: record(recorded, following)} if recorded is not None else {}
        peers = {ROME: Known(Lending(lent=Lent(tenant_namespace="liqo-tenant-rome")))}
        trusted = [each for each in (pin,) if each is not None]
        if pin is not None and recorded == pin and following is not None:
            trusted.append(following)
        found = callers(pins, records, peers)
        self.assertEqual(list(found.keys(ROME)), trusted)
        self.assertEqual(found.caller(key), ROME if key in trusted else None)

    def test_only_who_was_admitted_as_a_borrower(self) -> None:
        """A peer that is trusted and borrows nothing has no business with the API server."""
        for known, admitted in (
            (None, False),
            (Known(), False),
            (Known(Lending(lent=Lent())), False),
            (Known(Lending(lent=Lent(tenant_namespace="liqo-tenant-rome"))), True),
        ):
            peers = {} if known is None else {ROME: known}
            self.assertEqual(callers({ROME: KEYS[0]}, {}, peers).caller(KEYS[0]), ROME if admitted else None)

    def test_each_key_is_its_own_clusters(self) -> None:
        """Of several peers the one that has it."""
        peers = {peer: Known(Lending(lent=Lent(tenant_namespace=f"liqo-tenant-{peer}"))) for peer in (ROME, MILAN)}
        found = callers({ROME: KEYS[0], MILAN: KEYS[1]}, {}, peers)
        self.assertEqual([found.caller(key) for key in KEYS], [ROME, MILAN, None])


class AddressTests(SynchronousTestCase):
    """Where a peer's relay is."""

    def test_where_the_session_is_comes_first_if_we_dialled(self) -> None:
        """A peer that called us did so from a port where nobody listens; no address is there twice."""
        seen = (Endpoint(address="192.0.2.1:5872"), Endpoint(address="192.0.2.9:5872"))
        for session, expected in (
            (None, ["192.0.2.1:5872", "192.0.2.9:5872"]),
            (Session("listener"), ["192.0.2.1:5872", "192.0.2.9:5872"]),
            (Session("dialer"), ["192.0.2.9:5872", "192.0.2.1:5872"]),
        ):
            peers = {ROME: Known(session=session, sightings=seen)}
            self.assertEqual(callers({}, {}, peers).addresses(ROME), expected)
        self.assertEqual(callers({}, {}, {}).addresses(ROME), [])
