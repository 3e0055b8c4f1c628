"""Tests of liqod.kubelet.pods.actions."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import (
    AlreadyExists,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from liqod.kube.resources import PODS
from liqod.kubelet.common.meta import FORGED_ANNOTATION
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow
from liqod.kubelet.pods.actions import (
    AGAIN_AFTER,
    DELETION_TIMEOUT,
    STAYED,
    ObservedPod,
    PodActions,
    Postponed,
    TrackedPod,
)
from liqod.kubelet.pods.controller import _count_restarts
from liqod.kubelet.pods.decide import WriteStatus
from liqod.model.ids import Key
from liqod.model.names import DELETION_GRACE_ANNOTATION, HOME_POD_UID_ANNOTATION
from liqod.model.objects.meta import ObjectMeta
from tests.clocks import HostClock

WEB = Key("shop", "web")


def forged(digest: str) -> dict[str, Any]:
    """Return the body of a ShadowPod."""
    return {"metadata": {"annotations": {FORGED_ANNOTATION: digest}}}


class Deletions:
    """An API server that counts deletions, or does not answer."""

    def __init__(self) -> None:
        self.uids: list[str] = []
        self.answers = True

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str, grace: int) -> None:
        self.uids.append(uid)
        if not self.answers:
            raise Unreachable("no answer")


class DeleteHomeTests(SynchronousTestCase):
    """The last step of a home pod."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.server = Deletions()
        unused: Any = None
        client: Any = self.server
        self.tracked = TrackedPod()
        self.actions = PodActions(self.clock, client, context=unused, grants=unused, health=unused, recorder=unused)

    def delete(self, uid: str) -> Deferred[float | None]:
        return Deferred.fromCoroutine(self.actions.delete_home(WEB, self.tracked, uid))

    def test_a_pod_is_deleted_once(self) -> None:
        """Until the watch shows that it is gone it is not deleted again, unless that takes too long."""
        self.assertIsNone(self.successResultOf(self.delete("a")))
        self.assertEqual(self.successResultOf(self.delete("a")), DELETION_TIMEOUT)
        self.assertEqual(self.server.uids, ["a"])
        self.clock.advance(DELETION_TIMEOUT + 1)
        self.successResultOf(self.delete("a"))
        self.assertEqual(self.server.uids, ["a", "a"])

    def test_another_pod_of_the_name_is_another_matter(self) -> None:
        """The pod that took the name is deleted when it is its turn, also when nobody saw the first one go."""
        self.successResultOf(self.delete("a"))
        self.successResultOf(self.delete("b"))
        self.assertEqual(self.server.uids, ["a", "b"])

    def test_a_failed_deletion_does_not_count(self) -> None:
        """What did not reach the server is tried again at the next look."""
        self.server.answers = False
        self.failureResultOf(self.delete("a"), Unreachable)
        self.server.answers = True
        self.assertIsNone(self.successResultOf(self.delete("a")))
        self.assertEqual(self.server.uids, ["a", "a"])


@attrs.define
class Lender:
    """A remote namespace that has one ShadowPod, counts requests, and accepts all."""

    has: Shadow | None
    requests: list[str] = attrs.Factory(list)
    namespace: str = "shop-home"

    @property
    def client(self) -> Any:
        return self

    @property
    def mutations(self) -> Any:
        return self

    def shadow(self, name: str) -> Shadow | None:
        return self.has

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str) -> None:
        self.requests.append("delete")

    async def create(self, resource: Any, body: Any, namespace: str, *, view: Any) -> Shadow:
        self.requests.append("create")
        return Shadow()

    def forget(self, name: str) -> None:
        self.has = None

    def wrote(self, name: str, before: Any, after: Any) -> None:
        self.has = after

    def request_succeeded(self) -> None:
        """The lender answers."""


class AgainTests(SynchronousTestCase):
    def test_a_pod_is_created_again_after_a_pause(self) -> None:
        """A lender can have a pod created once in a second, not faster; a successor of the name does not wait."""
        for owner, pause in (("u1", AGAIN_AFTER), ("another pod", 0.0)):
            clock, unused = Clock(), cast(Any, None)
            annotations = {HOME_POD_UID_ANNOTATION: owner}
            there: Any = Lender(Shadow(metadata=ObjectMeta(name="web", uid="s1", annotations=annotations)))
            actions = PodActions(clock, unused, context=unused, grants=unused, health=there, recorder=unused)
            home = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))
            seen = ObservedPod(WEB, home, there, TrackedPod())
            self.successResultOf(Deferred.fromCoroutine(actions.delete_shadow(seen, there, "s1")))
            if pause:
                left = self.successResultOf(Deferred.fromCoroutine(actions.create(seen, home, there, forged("a"))))
                self.assertEqual((left, there.requests), (pause, ["delete"]))
                clock.advance(pause)
            self.successResultOf(Deferred.fromCoroutine(actions.create(seen, home, there, forged("a"))))
            self.assertEqual(there.requests, ["delete", "create"])

    def test_a_shadowpod_that_vanishes_again_and_again(self) -> None:
        """A lender that accepts it and has it vanish does not have it created as fast as it answers."""
        clock, unused = Clock(), cast(Any, None)
        there: Any = Lender(None)
        actions = PodActions(clock, unused, context=unused, grants=unused, health=there, recorder=unused)
        home = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))
        seen = ObservedPod(WEB, home, there, TrackedPod())

        def in_an_hour() -> int:
            before, end = len(there.requests), clock.seconds() + 3600
            while clock.seconds() < end:
                there.has = None
                left = self.successResultOf(Deferred.fromCoroutine(actions.create(seen, home, there, forged("a"))))
                clock.advance(left or 0.01)
            return len(there.requests) - before

        self.assertLess(in_an_hour(), 70)
        clock.advance(STAYED)
        there.has = None
        self.assertIsNone(self.successResultOf(Deferred.fromCoroutine(actions.create(seen, home, there, forged("a")))))
        left = self.successResultOf(Deferred.fromCoroutine(actions.create(seen, home, there, forged("b"))))
        self.assertEqual(left, AGAIN_AFTER)


@attrs.define
class Fickle(Lender):
    """A remote namespace that refuses and accepts ShadowPods in turns, each time in other words."""

    since: float = -1000.0

    async def create(self, resource: Any, body: Any, namespace: str, *, view: Any) -> Shadow:
        self.requests.append("create")
        if len(self.requests) % 2:
            raise Invalid(422, "Invalid", f"no, for the reason {len(self.requests)}")
        return Shadow()


class Counting(PodActions):
    """Counts the statuses that would be written."""

    written = 0

    async def write_status(self, home: HomePod, decision: WriteStatus) -> None:
        self.written += 1


class FickleTests(SynchronousTestCase):
    def test_refusals_in_other_words(self) -> None:
        """Each is a status that home's database keeps: they are written at the pace of all statuses."""
        clock, unused = HostClock(), cast(Any, None)
        there: Any = Fickle(None)
        actions = Counting(clock, unused, context=unused, grants=unused, health=there, recorder=unused)
        home = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))
        seen = ObservedPod(WEB, home, there, TrackedPod())
        while clock.seconds() < 3600:
            there.has = None
            # Only the refusals are of interest here, and not how long a ShadowPod waits that vanished.
            seen.tracked.made = 0
            left = self.successResultOf(Deferred.fromCoroutine(actions.create(seen, home, there, forged("a"))))
            clock.advance(left or 0.01)
        self.assertGreater(there.requests.count("create"), 500)
        self.assertLess(actions.written, there.requests.count("create") // 4)
        self.assertGreater(actions.written, 10)


@attrs.define
class Forgetful(Lender):
    """A remote namespace whose admission drops annotations, until ``keeps``."""

    keeps: bool = False

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, *, view: Any) -> Shadow:
        self.requests.append("patch")
        annotations = patch["metadata"]["annotations"] if self.keeps else {}
        return Shadow(metadata=ObjectMeta(name=name, uid="s1", annotations=annotations))


class Events:
    """Counts events."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def record_event(self, regarding: Any, type: str, reason: str, message: str) -> None:
        self.reasons.append(reason)


class NotKeptTests(SynchronousTestCase):
    """A lender that drops what is annotated."""

    def setUp(self) -> None:
        self.clock, self.events, unused = Clock(), Events(), cast(Any, None)
        self.lender: Any = cast(Any, Forgetful(Shadow(metadata=ObjectMeta(name="web", uid="s1"))))
        self.tracked = TrackedPod()
        self.actions = PodActions(
            self.clock, unused, context=unused, grants=unused, health=self.lender, recorder=cast(Any, self.events)
        )

    def patched(self, deleting: str | None = None) -> float | None:
        metadata = ObjectMeta(name="web", namespace="shop", uid="u1", deletion_timestamp=deleting)
        home = HomePod(metadata=metadata)
        patch = {"metadata": {"uid": "s1", "annotations": {FORGED_ANNOTATION: "digest"}}}
        seen = ObservedPod(WEB, home, self.lender, self.tracked)
        return self.successResultOf(Deferred.fromCoroutine(self.actions.patch(seen, home, self.lender, patch)))

    def test_it_is_patched_ever_more_rarely(self) -> None:
        """However often the pod is reconciled in an hour, requests are few; the owner of the pod can see why."""
        for _ in range(3600):
            left = self.patched()
            self.assertTrue(left is not None and left > 0)
            self.clock.advance(1)
        self.assertLess(len(self.lender.requests), 30)
        self.assertEqual(self.events.reasons, ["NotKept"] * len(self.lender.requests))

    def test_once_it_keeps_them_all_is_as_before(self) -> None:
        """The next patch that is kept ends the back-off."""
        self.clock.advance(self.patched() or 0.0)
        self.lender.keeps = True
        self.assertEqual((self.patched(), self.patched()), (0.0, 0.0))
        self.lender.keeps = False
        self.clock.advance(self.patched() or 0.0)
        self.patched()
        self.assertEqual(self.lender.requests, ["patch"] * 5)

    def test_a_deletion_does_not_wait(self) -> None:
        """The grace period cannot be annotated: the ShadowPod is deleted all the same."""
        self.patched("2030-01-01T00:00:00Z")
        self.assertEqual(self.lender.requests, ["patch", "delete"])


@attrs.define
class Refusing(Lender):
    """A remote namespace that answers patches with an error, and the home cluster, which takes a status."""

    error: KubeError = attrs.Factory(lambda: Forbidden(403, "Forbidden", "too large records: delete some at home"))
    since: float = float("-inf")

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, **more: Any) -> HomePod:
        if resource == PODS:
            self.requests.append("status")
            return HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))
        self.requests.append("patch")
        raise self.error

    def request_again(self, local: str) -> None:
        """The namespace is granted."""

    def recheck(self) -> None:
        self.requests.append("probe")


class RefusedPatchTests(SynchronousTestCase):
    """A lender that answers patches with errors."""

    def setUp(self) -> None:
        self.clock, self.events, self.tracked, unused = HostClock(), Events(), TrackedPod(), cast(Any, None)
        self.lender: Any = cast(Any, Refusing(Shadow(metadata=ObjectMeta(name="web", uid="s1"))))
        self.actions = PodActions(
            self.clock,
            self.lender,
            context=unused,
            grants=self.lender,
            health=self.lender,
            recorder=cast(Any, self.events),
        )

    def patched(self, digest: str = "digest", deleting: str | None = None) -> Deferred[float | None]:
        home = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1", deletion_timestamp=deleting))
        annotations = {FORGED_ANNOTATION: digest} if digest else {DELETION_GRACE_ANNOTATION: "7"}
        patch = {"metadata": {"uid": "s1", "annotations": annotations}}
        seen = ObservedPod(WEB, home, self.lender, self.tracked)
        return Deferred.fromCoroutine(self.actions.patch(seen, home, self.lender, patch))

    def test_what_failed_is_counted(self) -> None:
        """By its reason: what is refused, what has no answer, and what the lender has no time for."""
        for error, reason in (
            (Forbidden(403, "Forbidden", "no"), "RemoteForbidden"),
            (Unreachable("no answer"), "PeerUnreachable"),
            (Unauthorized(401, "Unauthorized", "no"), "CredentialRejected"),
            (ServerError(503, "ServiceUnavailable", "later"), "RemoteApiError"),
        ):
            self.setUp()
            self.lender.error = error
            done = self.patched()
            done.addErrback(lambda _: None)
            self.assertEqual(self.actions._counts.failures, {("Pod", reason): 1}, reason)

    def test_a_refused_patch_waits(self) -> None:
        """However often the pod is reconciled in an hour, requests are few; an event reports each, no status."""
        for _ in range(3600):
            left = self.successResultOf(self.patched())
            self.assertTrue(left is not None and left > 0)
            self.clock.advance(1)
        self.assertLess(len(self.lender.requests), 30)
        self.assertNotIn("status", self.lender.requests)
        self.assertEqual(self.events.reasons, ["UpdateRefused"] * len(self.lender.requests))

    def test_another_change_does_not_wait(self) -> None:
        """What the lender refused is one change: another one at home, or a note, is sent at once."""
        for digest in ("a", "a", "b", "b", "", ""):
            self.successResultOf(self.patched(digest))
        self.assertEqual(self.lender.requests, ["patch"] * 3)

    def test_a_deletion_goes_on(self) -> None:
        """Where the grace period is refused the ShadowPod is deleted all the same, though another change is held."""
        for error in (Forbidden(403, "Forbidden", "too large records"), Invalid(422, "Invalid", "no")):
            self.setUp()
            self.lender.error = error
            self.successResultOf(self.patched())
            self.successResultOf(self.patched("", deleting="2030-01-01T00:00:00Z"))
            self.assertEqual(self.lender.requests, ["patch", "patch", "delete"])
            self.assertEqual(self.events.reasons, ["UpdateRefused"] * 2)

    def test_every_failure_holds_the_patch_back(self) -> None:
        """Whatever the answer was, the next look at the pod does not repeat the patch: it reads the status."""
        table: list[tuple[KubeError, type[Exception] | None, list[str]]] = [
            (Forbidden(403, "Forbidden", "no"), None, ["UpdateRefused"]),
            (Invalid(422, "Invalid", "no"), None, ["UpdateRefused"]),
            (Throttled(429, "TooManyRequests", "slowly"), Throttled, []),
            (ServerError(500, "InternalError", "failed calling webhook"), ServerError, []),
            (Unreachable("no answer"), Postponed, []),
        ]
        for error, raised, reported in table:
            self.setUp()
            self.lender.error = error
            if raised is None:
                self.successResultOf(self.patched())
            else:
                self.failureResultOf(self.patched(), raised)
            left = self.successResultOf(self.patched())
            self.assertTrue(left is not None and left > 0, error)
            self.assertEqual(self.lender.requests.count("patch"), 1, error)
            self.assertEqual(self.events.reasons, reported, error)


@attrs.define
class Taken(Refusing):
    """A remote namespace where the name is taken, and where a look at what has it fails."""

    async def create(self, resource: Any, body: Any, namespace: str, *, view: Any) -> Shadow:
        raise AlreadyExists(409, "AlreadyExists", "there is one")

    async def get(self, resource: Any, name: str, namespace: str, *, view: Any) -> Shadow:
        raise self.error


class TakenNameTests(SynchronousTestCase):
    def test_a_look_that_fails(self) -> None:
        """The look at what has a pod's name fails as any request: without an answer the lender is probed, and what has
        gone meanwhile is created soon.
        """
        table: list[tuple[KubeError, type[Exception] | None, list[str]]] = [
            (Unreachable("no answer"), Postponed, ["probe"]),
            (Unauthorized(401, "Unauthorized", "who?"), Postponed, ["probe"]),
            (ServerError(500, "InternalError", "etcd"), ServerError, []),
            (NotFound(404, "NotFound", "gone"), None, []),
            (Forbidden(403, "Forbidden", "no"), None, ["status"]),
        ]
        for error, raised, requests in table:
            unused, lender = cast(Any, None), cast(Any, Taken(None, error=error))
            events: Any = Events()
            actions = PodActions(HostClock(), lender, context=unused, grants=lender, health=lender, recorder=events)
            home = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))
            created = Deferred.fromCoroutine(
                actions.create(ObservedPod(WEB, home, lender, TrackedPod()), home, lender, forged("a"))
            )
            if raised is not None:
                self.failureResultOf(created, raised)
            else:
                left = self.successResultOf(created)
                self.assertTrue(left is not None and left > 0)
            self.assertEqual(lender.requests, requests, error)


@attrs.define
class Strict(Refusing):
    """A remote namespace where no ShadowPod is created."""

    async def create(self, resource: Any, body: Any, namespace: str, *, view: Any) -> Shadow:
        self.requests.append(f"create {body['metadata']['annotations'][FORGED_ANNOTATION]}")
        raise self.error


class RefusedTests(SynchronousTestCase):
    def test_a_change_at_home_is_tried_at_once(self) -> None:
        """What the lender refused waits; what home made of it since does not."""
        unused, lender = cast(Any, None), cast(Any, Strict(None, error=Invalid(422, "Invalid", "no")))
        events: Any = Events()
        actions = PodActions(HostClock(), lender, context=unused, grants=lender, health=lender, recorder=events)
        home = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))
        seen = ObservedPod(WEB, home, lender, TrackedPod())
        for digest in ("a", "a", "b", "b"):
            left = self.successResultOf(Deferred.fromCoroutine(actions.create(seen, home, lender, forged(digest))))
            self.assertTrue(left is not None and left > 0)
        self.assertEqual([one for one in lender.requests if one.startswith("create")], ["create a", "create b"])


class TrackedPodTests(SynchronousTestCase):
    """What is remembered of a pod ends with it."""

    def test_a_refusal_ends_with_the_next_pause(self) -> None:
        """A pause for another reason, such as a name that is taken, is not cut short by what was refused before it."""
        tracked = TrackedPod()
        tracked.pause(300.0, "a")
        self.assertEqual((tracked.retry_at, tracked.refused), (300.0, "a"))
        tracked.pause(60.0)
        self.assertEqual((tracked.retry_at, tracked.refused), (60.0, ""))

    def test_a_patch_does_not_end_the_pause_of_a_creation(self) -> None:
        """A lender that has each ShadowPod patched before it vanishes gets the next one no sooner."""
        tracked = TrackedPod()
        for _ in range(3):
            tracked.created(0.0)
        waits_until = tracked.retry_at
        self.assertGreater(waits_until, 0.0)
        tracked.hold({"metadata": {"annotations": {}}}, 100.0)
        tracked.unkept = 2
        tracked.patched()
        self.assertEqual(tracked.retry_at, waits_until)
        self.assertEqual((tracked.held_for(0.0), tracked.unkept), (0.0, 0))

    def test_a_refusal_is_of_one_pod(self) -> None:
        """A pod that takes the name of a refused one is not kept waiting for that one's refusal."""
        tracked = TrackedPod()
        for uid, expected in (("a", 0.0), ("a", 300.0), ("b", 0.0)):
            _count_restarts(tracked, HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid=uid)), None)
            self.assertEqual(tracked.retry_at, expected)
            tracked.retry_at = 300.0

    def test_restarts_of_an_earlier_pod_of_the_name_do_not_count(self) -> None:
        """The remote pod of another pod of the same name says nothing about this one; one without a mark may be its."""
        home = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="new"))
        for of, counted in (("old", False), ("new", True), ("", True)):
            marks = {HOME_POD_UID_ANNOTATION: of} if of else {}
            pod = RemotePod(metadata=ObjectMeta(name="web", namespace="shop-rome", uid="r", annotations=marks))
            found = _count_restarts(TrackedPod(), home, pod)
            self.assertEqual(found is not None, counted, of)
