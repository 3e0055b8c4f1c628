"""Steps of pods with the requests that they send, between two small fakes of API servers."""

from __future__ import annotations

from typing import Any, cast

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import After
from liqod.flow.observe import Latest
from liqod.kube.errors import Forbidden, KubeError, ServerError
from liqod.kube.writing.merge_patch import apply_merge_patch
from liqod.kubelet.common.context import Context, NoHomeServices
from liqod.kubelet.common.readiness import Readiness, not_ready
from liqod.kubelet.common.views import HomePod, RemotePod, Shadow, decoded
from liqod.kubelet.lender.health import ANSWERS
from liqod.kubelet.namespaces.state import (
    NamespacePending,
    NamespaceRefused,
    NamespaceState,
    NotOffloaded,
    Offloaded,
)
from liqod.kubelet.pods.actions import PodActions
from liqod.kubelet.pods.controller import GIVE_UP_AFTER, UNREADY_AFTER, PodController
from liqod.kubelet.pods.decide import GRACE_DEADLINE
from liqod.kubelet.pods.status_pace import PER_MINUTE, StatusBudget
from liqod.model.ids import Key
from liqod.model.records.offer import HomeStreamsGrant
from liqod.model.timestamps import parse_rfc3339
from tests.clocks import HostClock
from tests.kubelet.pods.test_decide import CONTEXT, NOW, RUNNING, home, remote, shadow

WEB = Key("shop", "web")
CHANGED = {"new": "1"}


@attrs.define
class Home:
    """The home cluster: its API server, and what the daemon knows of it."""

    pod: HomePod
    state: NamespaceState
    refuses_name: bool = False
    requests: list[str] = attrs.Factory(list)
    events: list[str] = attrs.Factory(list)

    def get(self, key: Key) -> HomePod | None:
        return self.pod

    def items(self) -> list[HomePod]:
        return [self.pod]

    def state_of(self, local: str) -> NamespaceState:
        return self.state

    def is_name_refused(self, local: str) -> bool:
        return self.refuses_name

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, **more: Any) -> HomePod:
        self.requests.append("status")
        status = apply_merge_patch(decoded(self.pod.status), patch["status"])
        self.pod = msgspec.structs.replace(self.pod, status=msgspec.Raw(msgspec.json.encode(status)))
        return self.pod

    async def delete(self, resource: Any, name: str, namespace: str, **more: Any) -> None:
        self.requests.append("delete")

    def record_event(self, regarding: Any, type: str, reason: str, message: str) -> None:
        self.events.append(reason)

    def __getattr__(self, name: str) -> Any:
        return lambda *more, **most: True


@attrs.define(kw_only=True)
class Lender:
    """The lender with one ShadowPod and its pod: it answers patches with ``error``, or accepts them."""

    has: Shadow | None
    runs: RemotePod | None
    error: KubeError | None = None
    requests: list[Any] = attrs.Factory(list)
    state: Latest[Readiness] = attrs.Factory(lambda: Latest(ANSWERS))
    namespace: str = "shop-home"
    since: float = float("-inf")
    synced: bool = True
    live: bool = True

    @property
    def ok(self) -> bool:
        return self.state.value.ready

    @property
    def client(self) -> Any:
        return self

    mutations = client

    def shadow(self, name: str) -> Shadow | None:
        return self.has

    def pod(self, name: str) -> RemotePod | None:
        return self.runs

    def ended(self, name: str) -> RemotePod | None:
        return None

    def forget_ended(self, name: str) -> None:
        """Nothing has ended."""

    async def patch(self, resource: Any, name: str, patch: Any, namespace: str, *, view: Any) -> Shadow:
        self.requests.append(patch)
        if self.error is not None:
            raise self.error
        assert self.has is not None
        return msgspec.convert(
            {"metadata": apply_merge_patch(msgspec.to_builtins(self.has.metadata), patch["metadata"])}, Shadow
        )

    async def create(self, resource: Any, body: Any, namespace: str, *, view: Any) -> Shadow:
        self.requests.append("create")
        return msgspec.convert(body, Shadow)

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str) -> None:
        self.requests.append("delete")

    def wrote(self, name: str, before: Any, after: Shadow) -> None:
        self.has = after

    def forget(self, name: str) -> None:
        """The watch shows the state."""

    def request_succeeded(self) -> None:
        """The lender answers."""

    recheck = request_succeeded


class Case(SynchronousTestCase):
    """One pod on the virtual node of one lender."""

    context = CONTEXT
    sends_policies = False
    awaits_services = False

    def begin(
        self, pod: HomePod, there: Shadow | None, runs: RemotePod | None, budget: StatusBudget | None = None
    ) -> None:
        self.clock = HostClock()
        self.lender = Lender(has=there, runs=runs)
        self.home = Home(pod, Offloaded(cast(Any, self.lender), draining=False))
        known: Any = self.home
        actions = PodActions(
            self.clock, known, context=self.context, grants=known, health=cast(Any, self.lender), recorder=known
        )
        self.controller = PodController(
            self.clock,
            known,
            actions,
            context=self.context,
            namespaces=known,
            health=cast(Any, self.lender),
            network_usable=Latest(True),
            gate=known,
            workers=1,
            status_delay=0.0,
            budget=StatusBudget() if budget is None else budget,
            sends_policies=self.sends_policies,
            awaits_services=self.awaits_services,
        )

    def step(self) -> float | None:
        after = self.successResultOf(Deferred.fromCoroutine(self.controller.reconcile(WEB)))
        return after.seconds if isinstance(after, After) else None

    def is_ready(self) -> bool:
        conditions = decoded(self.home.pod.status).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


class HeldUpdateTests(Case):
    """An update that the lender does not take."""

    def test_statuses_come_home(self) -> None:
        """A running pod stays ready while the lender refuses a new label, and its end is reported as ever."""
        self.begin(home(RUNNING, labels=CHANGED), shadow(), remote())
        self.lender.error = Forbidden(403, "Forbidden", "too large records")
        for _ in range(20):
            self.step()
        self.assertEqual((len(self.lender.requests), self.home.events), (1, ["UpdateRefused"]))
        self.assertTrue(self.is_ready())
        self.lender.runs = remote({"phase": "Succeeded"})
        self.step()
        self.assertEqual(decoded(self.home.pod.status)["phase"], "Succeeded")

    def test_it_is_tried_again(self) -> None:
        """Without another event the update is sent again when its pause is over, and then at once as before."""
        self.begin(home(RUNNING, labels=CHANGED), shadow(), remote())
        self.lender.error = Forbidden(403, "Forbidden", "too large records")
        self.step()
        left = self.step()
        assert left is not None
        self.clock.advance(left)
        self.lender.error = None
        self.step()
        self.assertEqual(len(self.lender.requests), 2)
        assert self.lender.has is not None
        self.assertEqual(self.lender.has.metadata.labels["new"], "1")
        self.step()
        self.assertIsNone(self.step())

    def test_a_lender_that_is_silent(self) -> None:
        """A pod whose update waits for a silent lender is not ready either, as any other."""
        self.begin(home(RUNNING, labels=CHANGED), shadow(), remote())
        self.lender.state.set(not_ready("PeerUnreachable", "no answer"))
        self.controller._health_changed(self.lender.state.value)
        self.step()
        self.assertTrue(self.is_ready())
        self.clock.advance(UNREADY_AFTER + 1)
        self.step()
        self.assertFalse(self.is_ready())
        self.assertEqual(self.lender.requests, [])

    def test_a_watch_that_is_interrupted(self) -> None:
        """Where the lender answers and its pods are not watched just now, what they were makes no pod ready."""
        self.begin(home(), shadow(), remote())
        self.lender.live = False
        self.step()
        self.assertEqual((self.home.requests, self.is_ready()), ([], False))
        self.lender.live = True
        self.step()
        self.assertTrue(self.is_ready())

    def test_a_lender_that_takes_the_right_back(self) -> None:
        """A pod whose ShadowPod went with the right is not ready; with a right again it is created once more."""
        answers = (["CredentialRejected"], ["PeerUnreachable", "CredentialRejected"], ["PeerUnreachable"])
        for reasons in answers:
            self.begin(home(RUNNING), None, None)
            pod = self.home.pod
            for reason in reasons:
                self.lender.state.set(not_ready(reason, "no"))
                self.assertEqual(list(self.controller._health_changed(self.lender.state.value)), [])
                self.step()
                self.assertTrue(self.is_ready(), "a short silence")
            self.clock.advance(UNREADY_AFTER + 1)
            for _ in range(2):
                self.step()
            self.assertEqual(self.is_ready(), "CredentialRejected" not in reasons)
            self.assertEqual((self.lender.requests, self.home.pod.metadata), ([], pod.metadata))
            self.lender.state.set(ANSWERS)
            self.assertEqual(list(self.controller._health_changed(ANSWERS)), [WEB])
            self.step()
            self.assertEqual(len(self.lender.requests), 1)

    def test_a_late_answer(self) -> None:
        """A lender that says after a long silence that there is no right has its pods looked at again."""
        self.begin(home(RUNNING), None, None)
        self.lender.state.set(not_ready("PeerUnreachable", "no answer"))
        self.controller._health_changed(self.lender.state.value)
        self.clock.advance(UNREADY_AFTER + 1)
        self.step()
        self.assertTrue(self.is_ready())
        self.lender.state.set(not_ready("CredentialRejected", "no"))
        self.assertEqual(list(self.controller._health_changed(self.lender.state.value)), [WEB])
        self.step()
        (said,) = decoded(self.home.pod.status)["conditions"]
        self.assertEqual((said["status"], said["reason"]), ("False", "CredentialRejected"))


class GraceTests(Case):
    """A pod that is deleted with another grace than its own, at a lender that does not take note of it."""

    def test_it_ends(self) -> None:
        """Its ShadowPod is deleted at once where the grace is refused; errors that may pass get ten seconds."""
        refused = Forbidden(403, "Forbidden", "too large records; delete some at home")
        broken = ServerError(500, "InternalError", "failed calling webhook")
        deleting = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 7}
        for error, waits in ((refused, 0.0), (broken, GRACE_DEADLINE)):
            self.begin(home(RUNNING, **deleting), shadow(), remote())
            self.lender.error = error
            reconciled = Deferred.fromCoroutine(self.controller.reconcile(WEB))
            if waits:
                self.failureResultOf(reconciled, ServerError)
                self.assertNotIn("delete", self.lender.requests)
                self.clock.advance(waits)
                self.step()
            self.assertEqual(self.lender.requests[-1], "delete")


class LostLenderTests(Case):
    """A deleted pod whose lender is lost."""

    def test_a_pod_that_finalizers_hold(self) -> None:
        """A pod that has ended at home, but for its finalizers, is not looked at again and again; any other one is."""
        held = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/hold"]}
        for known in (True, False):
            ended = home({"phase": "Failed"}, **held)
            for pod, deleted in ((ended, []), (home(RUNNING, **held | {"finalizers": []}), ["delete"])):
                self.begin(pod, shadow(), remote())
                self.lender.synced = known
                self.lender.state.set(not_ready("PeerUnreachable", "no answer"))
                deleted_at = parse_rfc3339(NOW)
                assert deleted_at is not None
                self.clock.set_date(deleted_at.timestamp() + GIVE_UP_AFTER + 1)
                left = self.step()
                self.assertEqual((self.home.requests, left is None), (deleted, not deleted), known)

    def test_a_namespace_that_is_not_there(self) -> None:
        """Neither is it deleted again and again where its namespace was never asked for."""
        held = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/hold"]}
        self.begin(home(RUNNING, **held), None, None)
        self.home.state = NamespacePending(asked=False)
        for _ in range(3):
            self.assertEqual((self.step(), self.home.requests), (None, ["status"]))
        self.assertEqual(decoded(self.home.pod.status)["phase"], "Failed")

    def test_a_phase_that_somebody_waits_for(self) -> None:
        """A pod deleted by force that finalizers hold gets its final phase when it is given up, though nothing else
        happens.
        """
        held = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0, "finalizers": ["example.com/hold"]}
        self.begin(home(RUNNING, **held), shadow(deletionTimestamp=NOW), remote())
        self.lender.state.set(not_ready("PeerUnreachable", "no answer"))
        deleted_at = parse_rfc3339(NOW)
        assert deleted_at is not None
        self.clock.set_date(deleted_at.timestamp())
        left = self.step()
        assert left is not None
        self.assertEqual(self.home.requests, [])
        self.clock.advance(left)
        self.step()
        self.assertEqual((self.home.requests, decoded(self.home.pod.status)["phase"]), (["status"], "Failed"))

    def test_a_stateful_pod_of_a_namespace_that_is_refused_now(self) -> None:
        """It may run still at a lender that granted the namespace before, so that its successor must wait; one that
        never ran, has ended or is of another owner does not.
        """
        owned = {"ownerReferences": [{"kind": "StatefulSet", "name": "web", "controller": True}]}
        deleting: dict[str, Any] = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 30}
        rows: list[tuple[HomePod, bool, list[str]]] = [
            (home(RUNNING, **deleting, **owned), False, []),
            (home(RUNNING, **deleting, **owned, finalizers=["example.com/hold"]), False, []),
            (home(RUNNING, **deleting, **owned), True, ["delete"]),
            (home({"phase": "Pending"}, **deleting, **owned), False, ["delete"]),
            (home({"phase": "Failed"}, **deleting, **owned), False, ["delete"]),
            (home(RUNNING, **deleting), False, ["delete"]),
        ]
        for reason in ("NotLending", "PeerUnreachable"):
            for pod, refuses_name, requests in rows:
                self.begin(pod, None, None)
                self.home.state, self.home.refuses_name = NamespaceRefused(reason, "no"), refuses_name
                self.step()
                self.assertEqual(self.home.requests, requests, (reason, pod))


class UnpreparedTests(Case):
    """A namespace of which it is not known yet what its pods find at the lender."""

    sends_policies = True

    def test_statuses_come_home(self) -> None:
        """An update waits for what it is made of; the status of the pod does not."""
        self.begin(home(labels=CHANGED), shadow(), remote())
        self.step()
        self.assertEqual((self.lender.requests, self.home.requests), ([], ["status"]))
        self.assertTrue(self.is_ready())

    def test_notes_do_not_wait(self) -> None:
        """The grace of a deletion and the end of a pod are noted at the lender: they are made of nothing else."""
        deleting = {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 7}
        ended = home({"phase": "Succeeded"})
        for pod, runs in ((home(RUNNING, **deleting), remote()), (ended, None)):
            self.begin(pod, shadow(), runs)
            self.step()
            self.assertEqual(len(self.lender.requests), 1)


class FirstPodTests(Case):
    """A pod of a namespace that the lender granted a moment ago."""

    awaits_services = True

    def test_it_waits_for_services(self) -> None:
        """It goes to the lender when the Services that were there before it are there."""
        self.context = attrs.evolve(CONTEXT, settled=Latest(frozenset()))
        self.begin(home(), None, None)
        self.step()
        self.assertEqual(self.lender.requests, [])
        self.context.settled.set(frozenset({WEB.namespace}))
        self.assertEqual(self.controller._take_postponed(), [WEB])
        self.step()
        self.assertEqual(self.lender.requests, ["create"])


class RecoveryTests(Case):
    """A lender that answers again."""

    def test_a_short_answer_between_two_outages(self) -> None:
        """A pod that it left waiting waits for the next one, and the log has the moment when all are up to date."""
        self.begin(home(RUNNING), shadow(), remote())
        silent = not_ready("PeerUnreachable", "no answer")
        with capturedLogs() as events:
            self.lender.state.set(silent)
            self.controller._health_changed(silent)
            self.step()
            for state in (ANSWERS, silent, ANSWERS):
                self.lender.state.set(state)
                waiting = self.controller._health_changed(state)
            self.assertEqual((waiting, events), ([WEB], []))
            self.step()
        self.assertEqual([event["count"] for event in events], [1])


class GonePodTests(Case):
    """A pod that is gone at home."""

    def test_nothing_is_kept_of_it(self) -> None:
        """Where the lender has nothing of it, or its namespace is no longer offloaded, its record goes, too."""
        for is_offloaded in (True, False):
            self.begin(home(RUNNING), None, None)
            self.lender.state.set(not_ready("PeerUnreachable", "no answer"))
            self.step()
            self.assertEqual(list(self.controller._tracked), [WEB])
            self.home.pod = cast(Any, None)
            if not is_offloaded:
                self.home.state = NotOffloaded("no")
            self.step()
            self.assertEqual(self.controller._tracked, {})


class SharedBudgetTests(Case):
    """A lender with more than one virtual node."""

    def test_one_budget(self) -> None:
        """What one of its nodes has spent is spent for the others: their statuses wait, and that is counted."""
        budget = StatusBudget()
        for _ in range(2):
            self.begin(home(RUNNING), shadow(), remote({**RUNNING, "message": "x"}), budget)
            budget.left, budget.at = 0.0, self.clock.seconds()
            left = self.step()
            assert left is not None
            self.assertGreater(left, 0.0)
            self.assertEqual((self.home.requests, self.controller.delayed_statuses), ([], 1))
            budget.left = PER_MINUTE
            self.step()
            self.assertEqual(self.home.requests, ["status"])
            self.assertLess(budget.left, PER_MINUTE)


class WayHomeTests(Case):
    """A pod of which it is not known where it reaches the API server of its home."""

    def test_streams_that_end(self) -> None:
        """It waits for the service while there are streams, and no longer when there are none any more."""
        services, woken = NoHomeServices(), list[Key]()
        self.patch(services, "knows_api_server", lambda namespace: services.streams.value is None)
        self.context = Context(CONTEXT.home, CONTEXT.lender, CONTEXT.node_name, services=services)
        self.begin(home(), None, None)
        for source in self.controller.sources():
            source.start(woken.append)
        services.streams.set(HomeStreamsGrant(4))
        self.step()
        self.assertEqual((self.lender.requests, woken), ([], []))
        services.streams.set(None)
        self.assertEqual(woken, [WEB])
