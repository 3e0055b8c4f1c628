"""Tests of liqod.kubelet.lender.endpoint_choice, failover and access."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kube.connection.kept_caches import KeptCaches
from liqod.kubelet.common.readiness import Readiness, not_known, not_ready
from liqod.kubelet.common.views import Secret
from liqod.kubelet.lender.access import LenderAccess, read
from liqod.kubelet.lender.endpoint_choice import (
    DIRECT_PROBE_INTERVAL,
    FAILURE_TOLERANCE,
    SUCCESSES_TO_RETURN,
    Endpoint,
    EndpointState,
    allowed_endpoints,
    plan,
)
from liqod.kubelet.lender.failover import Failover
from liqod.kubelet.lender.health import ANSWERS
from liqod.model.ids import ClusterID, Key
from liqod.model.names import tenant_namespace
from liqod.model.objects.meta import ObjectMeta

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long anything takes is the machine's matter."""

FAILS = not_ready("PeerUnreachable", "no answer")


class NoRelays:
    """Null object: no lender has a relay."""

    def relay_of(self, peer: ClusterID) -> None:
        """Return None."""


class AllowedEndpointsTests(SynchronousTestCase):
    """The endpoints that both sides allow."""

    def test_table(self) -> None:
        """Direct is preferred; an endpoint that one of the two sides excludes is not allowed."""
        for setting, direct, relay, endpoints in (
            ("auto", True, True, ("direct", "relay")),
            ("auto", True, False, ("direct",)),
            ("auto", False, True, ("relay",)),
            ("direct", True, True, ("direct",)),
            ("direct", False, True, ()),
            ("relay", True, True, ("relay",)),
            ("relay", True, False, ()),
        ):
            self.assertEqual(allowed_endpoints(cast(Any, setting), direct=direct, relay=relay), endpoints)


class PlanTests(SynchronousTestCase):
    """When the other endpoint is probed, and when it is switched to."""

    def test_table(self) -> None:
        """A failing endpoint is tolerated for a while, not if it never worked; a left one is used again slowly."""
        for course, now, step in (
            (EndpointState("direct", None, failing_since=0.0), 99.0, ("stay", None)),
            (EndpointState("direct", "relay", proven=True), 99.0, ("stay", None)),
            (
                EndpointState("direct", "relay", proven=True, failing_since=90.0),
                91.0,
                ("stay", FAILURE_TOLERANCE - 1.0),
            ),
            (EndpointState("direct", "relay", proven=True, failing_since=80.0), 91.0, ("probe", None)),
            (EndpointState("direct", "relay", failing_since=90.0), 90.0, ("probe", None)),
            (EndpointState("direct", "relay", failing_since=90.0, probed_at=91.0), 92.0, ("stay", 4.0)),
            (EndpointState("direct", "relay", failing_since=90.0, probed_at=91.0, successes=1), 92.0, ("switch", None)),
            # A successful probe from before the failure says nothing about now.
            (EndpointState("direct", "relay", failing_since=90.0, probed_at=80.0, successes=1), 90.0, ("probe", None)),
            (
                EndpointState("relay", "direct", proven=True, probed_at=90.0),
                99.0,
                ("stay", DIRECT_PROBE_INTERVAL - 9.0),
            ),
            (EndpointState("relay", "direct", proven=True, probed_at=0.0), 99.0, ("probe", None)),
            (
                EndpointState("relay", "direct", proven=True, probed_at=90.0, successes=SUCCESSES_TO_RETURN),
                99.0,
                ("switch", None),
            ),
            (
                EndpointState("relay", "direct", proven=True, probed_at=90.0, successes=1, untried=True),
                99.0,
                ("switch", None),
            ),
            (EndpointState("relay", "direct", untried=True), 99.0, ("probe", None)),
            (
                EndpointState("relay", "direct", proven=True, probed_at=90.0, successes=SUCCESSES_TO_RETURN - 1),
                99.0,
                ("stay", DIRECT_PROBE_INTERVAL - 9.0),
            ),
        ):
            self.assertEqual(plan(course, now), step, course)

    @STEADILY
    @given(
        st.sampled_from(["direct", "relay"]),
        st.booleans(),
        st.none() | st.floats(0, 100),
        st.tuples(st.integers(0, 5), st.floats(0, 100)),
        st.floats(100, 200),
    )
    def test_never_without_reason(
        self, endpoint: Endpoint, proven: bool, ill: float | None, probed: tuple[int, float], now: float
    ) -> None:
        """Whatever happened: an endpoint whose last probe failed is not used; every wait has an end."""
        probe, probed_at = probed
        other: Endpoint = "relay" if endpoint == "direct" else "direct"
        step, again = plan(EndpointState(endpoint, other, proven, ill, probe, probed_at), now)
        if step == "switch":
            self.assertGreater(probe, 0)
            self.assertTrue(ill is not None or (endpoint == "relay" and probe >= SUCCESSES_TO_RETURN))
        self.assertTrue(again is None or 0 < again <= DIRECT_PROBE_INTERVAL + 100)
        self.assertFalse(step == "stay" and again is None and not (endpoint == "direct" and ill is None))


@attrs.define
class FakeEndpoints:
    """Endpoints by name; ``taken`` are those that were used."""

    endpoints: Latest[tuple[Endpoint, ...]] = attrs.field(factory=lambda: Latest(()))
    endpoint: Latest[Endpoint | None] = attrs.field(factory=lambda: Latest(None))
    taken: list[Endpoint] = attrs.Factory(list)

    def use(self, endpoint: Endpoint) -> None:
        self.taken.append(endpoint)
        self.endpoint.set(endpoint)

    def client_for(self, endpoint: Endpoint) -> Any:
        return FakeClient(endpoint)


@attrs.frozen
class FakeClient:
    """A client of one endpoint."""

    endpoint: Endpoint

    def close(self) -> Deferred[None]:
        return succeed(None)


class FailoverTests(SynchronousTestCase):
    """The service under a fake clock; the endpoint in use is probed every three seconds, as ``LenderHealth`` does."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.access = FakeEndpoints()
        self.health: Latest[Readiness] = Latest(not_known("not yet"))
        self.up: set[Endpoint] = {"direct", "relay"}
        self.probes: list[Endpoint] = []

        async def probe(_: Any, client: Any) -> Readiness:
            self.probes.append(client.endpoint)
            return ANSWERS if client.endpoint in self.up else FAILS

        self.failover = Failover(self.clock, self.access, self.health, probe=probe)
        self.failover.startService()
        self.addCleanup(self.failover.stopService)

    def begin(self, *endpoints: Endpoint) -> None:
        self.access.endpoint.set(endpoints[0])
        self.access.endpoints.set(endpoints)

    def pass_(self, seconds: float) -> None:
        for _ in range(int(seconds / 3)):
            self.health.set(ANSWERS if self.access.endpoint.value in self.up else FAILS)
            self.clock.advance(3.0)

    def test_direct_is_kept(self) -> None:
        """While the direct endpoint works the relay is not even probed."""
        self.begin("direct", "relay")
        self.pass_(600)
        self.assertEqual((self.access.taken, self.probes), ([], []))

    def test_an_endpoint_that_never_worked(self) -> None:
        """A lender whose address cannot be reached is reached over its relay at once."""
        self.up = {"relay"}
        self.begin("direct", "relay")
        self.pass_(3)
        self.assertEqual(self.access.taken, ["relay"])

    def test_a_short_failure(self) -> None:
        """A restart of the API server, seconds long, changes nothing."""
        self.begin("direct", "relay")
        self.pass_(30)
        self.up = {"relay"}
        self.pass_(FAILURE_TOLERANCE - 3)
        self.up = {"direct", "relay"}
        self.pass_(60)
        self.assertEqual(self.access.taken, [])

    def test_failover_and_return(self) -> None:
        """A failing direct endpoint is left for the relay; it is used again after it worked for three minutes."""
        self.begin("direct", "relay")
        self.pass_(30)
        self.up = {"relay"}
        self.pass_(30)
        self.assertEqual(self.access.taken, ["relay"])
        self.up = {"direct", "relay"}
        self.pass_(DIRECT_PROBE_INTERVAL * (SUCCESSES_TO_RETURN - 1))
        self.assertEqual(self.access.taken, ["relay"])
        self.pass_(DIRECT_PROBE_INTERVAL + 30)
        self.assertEqual(self.access.taken, ["relay", "direct"])

    def test_a_flapping_endpoint(self) -> None:
        """A direct endpoint that answers every other probe is not used again: watches of the lender are left alone."""
        self.up = {"relay"}
        self.begin("relay", "direct")
        for turn in range(20):
            self.up = {"relay", "direct"} if turn % 2 else {"relay"}
            self.pass_(DIRECT_PROBE_INTERVAL)
        self.assertEqual(self.access.taken, [])
        self.assertGreater(len(self.probes), 15)

    def test_nothing_answers(self) -> None:
        """While neither endpoint works there is no switch, and the other one is probed only now and then."""
        self.up = set()
        self.begin("direct", "relay")
        self.pass_(60)
        self.assertEqual(self.access.taken, [])
        self.assertLess(len(self.probes), 14)
        self.up = {"relay"}
        self.pass_(9)
        self.assertEqual(self.access.taken, ["relay"])

    def test_a_new_endpoint(self) -> None:
        """A direct endpoint that is offered for the first time is used after one probe; once it failed, slowly."""
        for up, taken in (({"direct", "relay"}, ["direct"]), ({"relay"}, [])):
            self.setUp()
            self.begin("relay")
            self.pass_(90)
            self.up = cast(Any, up)
            self.access.endpoints.set(("direct", "relay"))
            self.pass_(3)
            self.assertEqual(self.access.taken, taken)
        self.up = {"direct", "relay"}
        self.pass_(DIRECT_PROBE_INTERVAL * (SUCCESSES_TO_RETURN - 1))
        self.assertEqual(self.access.taken, [])
        self.pass_(DIRECT_PROBE_INTERVAL + 30)
        self.assertEqual(self.access.taken, ["direct"])

    def test_only_one_endpoint(self) -> None:
        """Where there is only one endpoint nothing is probed."""
        self.up = set()
        self.begin("relay")
        self.pass_(600)
        self.assertEqual((self.access.taken, self.probes), ([], []))

    def test_stopped(self) -> None:
        """Stopped, it leaves no timer behind."""
        self.begin("relay", "direct")
        self.pass_(9)
        self.successResultOf(self.failover.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])


def secret(**data: str) -> Secret:
    """Return a credential's Secret."""
    encoded = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in data.items()}
    encoded["ca.crt"] = ""
    return Secret(metadata=ObjectMeta(name="liqo-credential", namespace="t"), data=encoded)


class CredentialTests(SynchronousTestCase):
    """What a Secret says about endpoints."""

    def test_forms(self) -> None:
        """With a URL, with the relay as well, and with the relay alone; a Secret of before knows no relay."""
        url = "https://lender:6443"
        for data, found in (
            ({"api_url": url, "token": "t"}, (url, False, "t")),
            ({"api_url": url, "token": "t", "relay": ""}, (url, False, "t")),
            ({"api_url": url, "token": "t", "relay": "true"}, (url, True, "t")),
            ({"api_url": "", "token": "", "relay": "true"}, ("", True, "")),
        ):
            grant, token = read(secret(**data))
            self.assertEqual((grant.api_url, grant.relay, token), found)
        for data in ({"api_url": "", "token": ""}, {"api_url": "", "token": "t", "relay": "yes"}):
            self.assertRaises(ValueError, read, secret(**data))

    def test_no_common_endpoint(self) -> None:
        """A lender that offers only what the settings here exclude is named as such, with what to do."""
        clock: Any = Clock()
        access = LenderAccess(clock, cast(Any, None), ClusterID("milan"), setting="direct", relays=NoRelays())
        key = Key(tenant_namespace(ClusterID("milan")), "liqo-credential")
        access._changed(key, None, secret(api_url="", token="", relay="true"))
        self.assertEqual(access.readiness.value.reason, "NoCommonWay")
        self.assertIn("over its relay only", access.readiness.value.message)
        self.assertIsNone(access.client.value)

    def test_requests_of_former_clients_count(self) -> None:
        """The count of requests to a lender never goes back: a counter of Prometheus that does has begun again."""
        clock: Any = Clock()
        home: Any = SimpleNamespace(kept=KeptCaches())
        access = LenderAccess(clock, home, ClusterID("milan"), setting="direct", relays=NoRelays())
        key = Key(tenant_namespace(ClusterID("milan")), "liqo-credential")
        for url in ("https://192.0.2.1:6443", "https://192.0.2.2:6443"):
            access._changed(key, None, secret(api_url=url, token="t"))
            client = access.client.value
            assert client is not None
            client.requests["list", "pods"] += 1
        self.assertEqual(access.requests, {("list", "pods"): 2})

    def test_when_it_ends(self) -> None:
        """The end is known as long as the credential is there; one that is not said, or is no date, is none."""
        clock: Any = Clock()
        home: Any = SimpleNamespace(kept=KeptCaches())
        access = LenderAccess(clock, home, ClusterID("milan"), setting="auto", relays=NoRelays())
        key = Key(tenant_namespace(ClusterID("milan")), "liqo-credential")
        self.assertIsNone(access.expires)
        grant = {"api_url": "https://lender:6443", "token": "t"}
        for end, found in (
            ({"expires_at": "2026-11-27T12:00:00Z"}, datetime(2026, 11, 27, 12, tzinfo=UTC)),
            ({"expires_at": "soon"}, None),
            ({}, None),
        ):
            access._changed(key, None, secret(**grant, **end))
            self.assertEqual(access.expires, found)
        access._changed(key, None, secret(**grant, expires_at="2026-11-27T12:00:00Z"))
        access._changed(key, None, None)
        self.assertIsNone(access.expires)
