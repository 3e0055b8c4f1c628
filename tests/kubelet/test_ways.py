"""Which way leads to a lender's API server, and when another one is taken."""

from __future__ import annotations

import base64
from typing import Any, cast

import attrs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import Readiness, not_known, not_ready
from liqod.kubelet.common.views import Secret
from liqod.kubelet.lender import failover
from liqod.kubelet.lender.access import Access, read
from liqod.kubelet.lender.endpoint_choice import LOOK_BACK, PATIENCE, STEADY, Course, Way, plan, possible
from liqod.kubelet.lender.failover import Approach
from liqod.kubelet.lender.health import ANSWERS
from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""How long anything takes is the machine's matter."""

FAILS = not_ready("PeerUnreachable", "no answer")


class Possible(SynchronousTestCase):
    """What both sides allow."""

    def test_table(self) -> None:
        """The preferred way is direct; nothing is possible that one of the two sides does not want."""
        for setting, direct, relay, ways in (
            ("auto", True, True, ("direct", "relay")),
            ("auto", True, False, ("direct",)),
            ("auto", False, True, ("relay",)),
            ("direct", True, True, ("direct",)),
            ("direct", False, True, ()),
            ("relay", True, True, ("relay",)),
            ("relay", True, False, ()),
        ):
            self.assertEqual(possible(cast(Any, setting), direct=direct, relay=relay), ways)


class Plan(SynchronousTestCase):
    """What is done when, on whatever way."""

    def test_table(self) -> None:
        """Who fails is doubted after some patience, at once if it never worked; who is left is taken back slowly."""
        for course, now, step in (
            (Course("direct", None, ill_since=0.0), 99.0, ("stay", None)),
            (Course("direct", "relay", proven=True), 99.0, ("stay", None)),
            (Course("direct", "relay", proven=True, ill_since=90.0), 91.0, ("stay", PATIENCE - 1.0)),
            (Course("direct", "relay", proven=True, ill_since=80.0), 91.0, ("look", None)),
            (Course("direct", "relay", ill_since=90.0), 90.0, ("look", None)),
            (Course("direct", "relay", ill_since=90.0, looked=91.0), 92.0, ("stay", 4.0)),
            (Course("direct", "relay", ill_since=90.0, looked=91.0, answers=1), 92.0, ("change", None)),
            # An answer from before it failed says nothing about now.
            (Course("direct", "relay", ill_since=90.0, looked=80.0, answers=1), 90.0, ("look", None)),
            (Course("relay", "direct", proven=True, looked=90.0), 99.0, ("stay", LOOK_BACK - 9.0)),
            (Course("relay", "direct", proven=True, looked=0.0), 99.0, ("look", None)),
            (Course("relay", "direct", proven=True, looked=90.0, answers=STEADY), 99.0, ("change", None)),
            (Course("relay", "direct", proven=True, looked=90.0, answers=1, untried=True), 99.0, ("change", None)),
            (Course("relay", "direct", untried=True), 99.0, ("look", None)),
            (Course("relay", "direct", proven=True, looked=90.0, answers=STEADY - 1), 99.0, ("stay", LOOK_BACK - 9.0)),
        ):
            self.assertEqual(plan(course, now), step, course)

    @STEADILY
    @given(
        st.sampled_from(["direct", "relay"]),
        st.booleans(),
        st.none() | st.floats(0, 100),
        st.integers(0, 5),
        st.floats(0, 100),
        st.floats(100, 200),
    )
    def test_never_without_reason(
        self, way: Way, proven: bool, ill: float | None, answers: int, looked: float, now: float
    ) -> None:
        """Whatever happened: a way that did not answer when it was looked at is not taken; a wait has an end."""
        other: Way = "relay" if way == "direct" else "direct"
        step, again = plan(Course(way, other, proven, ill, answers, looked), now)
        if step == "change":
            self.assertGreater(answers, 0)
            self.assertTrue(ill is not None or (way == "relay" and answers >= STEADY))
        self.assertTrue(again is None or 0 < again <= LOOK_BACK + 100)
        self.assertFalse(step == "stay" and again is None and not (way == "direct" and ill is None))


@attrs.define
class FakeAccess:
    """Ways that are taken by name; ``up`` are those that answer."""

    ways: Latest[tuple[Way, ...]] = attrs.field(factory=lambda: Latest(()))
    way: Latest[Way | None] = attrs.field(factory=lambda: Latest(None))
    taken: list[Way] = attrs.Factory(list)

    def take(self, way: Way) -> None:
        self.taken.append(way)
        self.way.set(way)

    def client_by(self, way: Way) -> Any:
        return FakeClient(way)


@attrs.frozen
class FakeClient:
    """A client of one way."""

    way: Way

    def close(self) -> Deferred[None]:
        return succeed(None)


class FakeReach:
    """What is known about the way in use."""

    def __init__(self) -> None:
        self.state: Latest[Readiness] = Latest(not_known("not yet"))


class ChangeOver(SynchronousTestCase):
    """The whole, under a clock of our own; the way in use is asked every three seconds, as ``Reach`` does."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.access, self.reach = FakeAccess(), FakeReach()
        self.up: set[Way] = {"direct", "relay"}
        self.looks: list[Way] = []

        async def answers(_: Any, client: FakeClient) -> bool:
            self.looks.append(client.way)
            return client.way in self.up

        self.patch(failover, "answers", answers)
        self.approach = Approach(self.clock, cast(Any, self.access), cast(Any, self.reach))
        self.approach.startService()
        self.addCleanup(self.approach.stopService)

    def begin(self, *ways: Way) -> None:
        self.access.way.set(ways[0])
        self.access.ways.set(ways)

    def pass_(self, seconds: float) -> None:
        for _ in range(int(seconds / 3)):
            self.reach.state.set(ANSWERS if self.access.way.value in self.up else FAILS)
            self.clock.advance(3.0)

    def test_direct_is_kept(self) -> None:
        """While the direct way answers the relay is not even looked at."""
        self.begin("direct", "relay")
        self.pass_(600)
        self.assertEqual((self.access.taken, self.looks), ([], []))

    def test_a_way_that_never_worked(self) -> None:
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
        self.pass_(PATIENCE - 3)
        self.up = {"direct", "relay"}
        self.pass_(60)
        self.assertEqual(self.access.taken, [])

    def test_over_and_back(self) -> None:
        """A failing direct way is left for the relay; back again, it is taken after it answered three minutes long."""
        self.begin("direct", "relay")
        self.pass_(30)
        self.up = {"relay"}
        self.pass_(30)
        self.assertEqual(self.access.taken, ["relay"])
        self.up = {"direct", "relay"}
        self.pass_(LOOK_BACK * (STEADY - 1))
        self.assertEqual(self.access.taken, ["relay"])
        self.pass_(LOOK_BACK + 30)
        self.assertEqual(self.access.taken, ["relay", "direct"])

    def test_a_way_that_comes_and_goes(self) -> None:
        """A direct way that answers every other time is not taken back: whatever watches the lender is left alone."""
        self.up = {"relay"}
        self.begin("relay", "direct")
        for turn in range(20):
            self.up = {"relay", "direct"} if turn % 2 else {"relay"}
            self.pass_(LOOK_BACK)
        self.assertEqual(self.access.taken, [])
        self.assertGreater(len(self.looks), 15)

    def test_nothing_answers(self) -> None:
        """While neither way works nothing is changed over, and the other one is looked at only now and then."""
        self.up = set()
        self.begin("direct", "relay")
        self.pass_(60)
        self.assertEqual(self.access.taken, [])
        self.assertLess(len(self.looks), 14)
        self.up = {"relay"}
        self.pass_(9)
        self.assertEqual(self.access.taken, ["relay"])

    def test_a_way_that_is_new(self) -> None:
        """A direct way that the lender offers from now on is taken as soon as it answers; once it failed, slowly."""
        for up, taken in (({"direct", "relay"}, ["direct"]), ({"relay"}, [])):
            self.setUp()
            self.begin("relay")
            self.pass_(90)
            self.up = cast(Any, up)
            self.access.ways.set(("direct", "relay"))
            self.pass_(3)
            self.assertEqual(self.access.taken, taken)
        self.up = {"direct", "relay"}
        self.pass_(LOOK_BACK * (STEADY - 1))
        self.assertEqual(self.access.taken, [])
        self.pass_(LOOK_BACK + 30)
        self.assertEqual(self.access.taken, ["direct"])

    def test_only_one_way(self) -> None:
        """Where there is only one way nothing is looked at."""
        self.up = set()
        self.begin("relay")
        self.pass_(600)
        self.assertEqual((self.access.taken, self.looks), ([], []))

    def test_stopped(self) -> None:
        """Stopped, it leaves no timer behind."""
        self.begin("relay", "direct")
        self.pass_(9)
        self.successResultOf(self.approach.stopService())
        self.assertEqual(self.clock.getDelayedCalls(), [])


def secret(**data: str) -> Secret:
    """Return a credential's Secret."""
    encoded = {key.replace("_", "-"): base64.b64encode(value.encode()).decode() for key, value in data.items()}
    encoded["ca.crt"] = ""
    return Secret(metadata=ObjectMeta(name="liqo-credential", namespace="t"), data=encoded)


class Credentials(SynchronousTestCase):
    """What a Secret says about ways."""

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

    def test_no_common_way(self) -> None:
        """A lender that offers only what the settings here exclude is named as such, with what to do."""
        clock: Any = Clock()
        access = Access(clock, cast(Any, None), "t", "direct", lambda: None, "milan")
        key = Key("t", "liqo-credential")
        access._changed(key, None, secret(api_url="", token="", relay="true"))
        self.assertEqual(access.readiness.value.reason, "NoCommonWay")
        self.assertIn("over its relay only", access.readiness.value.message)
        self.assertIsNone(access.client.value)
