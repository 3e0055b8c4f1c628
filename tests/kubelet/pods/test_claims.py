"""Pods do not get the data of an earlier claim of the name that they mount."""

from __future__ import annotations

from typing import Any, cast

import attrs
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.errors import Forbidden, KubeError, NotFound, ServerError, Unreachable
from liqod.kube.pages import Listing
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import HOME_CLAIM_UID, ownership
from liqod.kubelet.common.views import HomePod, Shadow
from liqod.kubelet.pods.actions import CLAIM_RETRY, ObservedPod, PodActions, Postponed, TrackedPod
from liqod.kubelet.pods.claims import claims_in, obstacle
from liqod.model.ids import ClusterID, Key
from liqod.model.objects.meta import Object, ObjectMeta
from tests.clocks import HostClock

CONTEXT = Context(home=ClusterID("home"), lender=ClusterID("lender"), node_name="liqo-lender")


def shadow(*volumes: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"pod": {"volumes": list(volumes)}}}


MOUNTED = shadow({"name": "v", "persistentVolumeClaim": {"claimName": "data"}})


def claim(owner: str, deleting: str | None = None, labels: dict[str, str] | None = None) -> ObjectMeta:
    """Return a claim at the lender that has the data of the claim with this UID."""
    labels = ownership(CONTEXT) if labels is None else labels
    annotations = {HOME_CLAIM_UID: owner} if owner else {}
    return ObjectMeta(name="data", uid="t", labels=labels, annotations=annotations, deletion_timestamp=deleting)


class ObstacleTests(SynchronousTestCase):
    def test_what_a_pod_mounts(self) -> None:
        """Claims are named once each; volumes of other sorts, and a ShadowPod without any, name none."""
        mounts = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("b", "a", "b")]
        self.assertEqual(claims_in(shadow(*mounts, {"name": "c", "emptyDir": {}})), ["a", "b"])
        empty: list[dict[str, Any]] = [{}, {"spec": {}}, {"spec": {"pod": {"volumes": None}}}]
        self.assertEqual([claims_in(one) for one in empty], [[], [], []])

    def test_whose_claim_it_is(self) -> None:
        """Only that of the present claim at home may be mounted, and not while it is being deleted."""
        self.assertEqual(obstacle(claim("now"), {"now"}), "")
        self.assertIn("pvc-before", obstacle(claim("before"), {"now"}))
        self.assertIn("pvc-before", obstacle(claim("before"), set()))
        self.assertIn("earlier claim", obstacle(claim(""), {"now"}))
        self.assertIn("is being deleted", obstacle(claim("now", deleting="2030-01-01T00:00:00Z"), {"now"}))


@attrs.define(kw_only=True)
class Clusters:
    """Home and lender in one: each has a claim ``data`` (None: none), and the lender creates ShadowPods."""

    there: ObjectMeta | None
    home: list[str] = attrs.Factory(lambda: ["now"])
    error: KubeError | None = None
    requests: list[str] = attrs.Factory(list)
    reasons: list[str] = attrs.Factory(list)
    namespace: str = "shop-home"
    since: float = float("-inf")

    @property
    def client(self) -> Any:
        return self

    @property
    def mutations(self) -> Any:
        return self

    async def get(self, resource: Any, name: str, namespace: str, *, view: Any) -> Object:
        self.requests.append(f"get {namespace}/{name}")
        if self.error is not None:
            raise self.error
        if self.there is None:
            raise NotFound(404, "NotFound", "no claim")
        return Object(metadata=self.there)

    async def list(self, resource: Any, namespace: str, *, view: Any, fields: str) -> Listing[Object]:
        self.requests.append(f"list {namespace} {fields}")
        return Listing([Object(metadata=ObjectMeta(name="data", uid=uid)) for uid in self.home], "1")

    async def create(self, resource: Any, body: Any, namespace: str, *, view: Any) -> Shadow:
        self.requests.append("create")
        return Shadow()

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, **more: Any) -> HomePod:
        return HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1"))

    def wrote(self, name: str, before: Any, after: Any) -> None:
        """The cache has it."""

    def request_succeeded(self) -> None:
        """The lender answers."""

    def recheck(self) -> None:
        """The lender is probed."""

    def request_again(self, local: str) -> None:
        """The namespace is granted."""

    def record_event(self, regarding: Any, type: str, reason: str, message: str) -> None:
        self.reasons.append(reason)


class CreateTests(SynchronousTestCase):
    """A pod that mounts the claim ``data`` is to be created."""

    def use(self, there: ObjectMeta | None, *, follow: bool = True, **more: Any) -> None:
        self.clock, self.tracked = HostClock(), TrackedPod()
        self.clusters = Clusters(there=there, **more)
        both = cast(Any, self.clusters)
        self.actions = PodActions(
            self.clock, both, context=CONTEXT, grants=both, health=both, recorder=both, claims_follow=follow
        )

    def create(self, body: dict[str, Any] = MOUNTED) -> Deferred[float | None]:
        home, remote = HomePod(metadata=ObjectMeta(name="web", namespace="shop", uid="u1")), cast(Any, self.clusters)
        seen = ObservedPod(Key("shop", "web"), home, remote, self.tracked)
        return Deferred.fromCoroutine(
            self.actions.create(seen, home, remote, {"metadata": {"annotations": {}}, **body})
        )

    def test_it_waits_for_the_name(self) -> None:
        """While the name is taken the pod waits, ever longer, says so, and is created when the claim is its own."""
        for taken in (claim("before"), claim("now", deleting="2030-01-01T00:00:00Z")):
            self.use(taken)
            for _ in range(600):
                left = self.successResultOf(self.create())
                assert left is not None
                self.assertTrue(0 < left <= CLAIM_RETRY.cap * 1.5)
                self.clock.advance(1)
            self.assertEqual(set(self.clusters.reasons), {"ClaimTaken"})
            self.assertNotIn("create", self.clusters.requests)
            self.assertLess(len(self.clusters.requests), 100)
            self.clock.advance(CLAIM_RETRY.cap * 2)
            self.clusters.there = claim("now")
            self.assertIsNone(self.successResultOf(self.create()))
            self.assertEqual(self.clusters.requests[-1], "create")
            self.assertEqual(self.tracked.claim_checks, 0)

    def test_it_is_gone_at_home(self) -> None:
        """A claim that home has no more has left its data to nobody."""
        self.use(claim("before"), home=[])
        self.successResultOf(self.create())
        self.assertNotIn("create", self.clusters.requests)

    def test_nothing_is_in_the_way(self) -> None:
        """Without a claim there, with the lender's own, without claims in the pod, or without storage it is created."""
        for there, follow, body in (
            (None, True, MOUNTED),
            (claim("", labels={}), True, MOUNTED),
            (claim("before"), True, shadow()),
            (claim("before"), False, MOUNTED),
        ):
            self.use(there, follow=follow)
            self.assertIsNone(self.successResultOf(self.create(body)))
            self.assertEqual(self.clusters.requests[-1], "create")
            self.assertFalse([one for one in self.clusters.requests if one.startswith("list")])

    def test_it_cannot_be_read(self) -> None:
        """What is not known is not taken for free: a claim that cannot be read is as a refused ShadowPod."""
        table: list[tuple[KubeError, type[Exception] | None]] = [
            (Unreachable("no answer"), Postponed),
            (ServerError(500, "InternalError", "etcd"), ServerError),
            (Forbidden(403, "Forbidden", "no"), None),
        ]
        for error, raised in table:
            self.use(claim("now"), error=error)
            if raised is None:
                self.assertTrue(self.successResultOf(self.create()))
            else:
                self.failureResultOf(self.create(), raised)
            self.assertNotIn("create", self.clusters.requests)
