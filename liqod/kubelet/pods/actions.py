"""Applies decisions about pods: the requests, how their failures are handled, and the record kept for each pod."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, Protocol

from attrs import Factory, define, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.clocks import wall_clock
from liqod.flow.errors import ExpectedError
from liqod.kube.client import Client
from liqod.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    Throttled,
    Unreachable,
)
from liqod.kube.events import Recorder
from liqod.kube.resources import PERSISTENTVOLUMECLAIMS, PODS, SHADOWPODS
from liqod.kube.writing.mutation_cache import Mutations
from liqod.kube.writing.refusals import LATER, READ_AGAIN
from liqod.kube.writing.status_writer import StatusWriter, Written
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.meta import home_uid, is_ours
from liqod.kubelet.common.reflection_counts import ReflectionCounts
from liqod.kubelet.common.refusals import (
    NAME_TAKEN_RETRY,
    Attempts,
    Meaning,
    counted_reason,
    is_invalid_pod,
    meaning_of,
)
from liqod.kubelet.common.views import HomePod, Shadow, decoded
from liqod.kubelet.lender.failed_writes import NO_ANSWER_RETRY, FailedWrite, existing, failed_write
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.pods.claims import CLAIM_TAKEN, claims_in, obstacle
from liqod.kubelet.pods.decide import Report, WriteStatus, decide_refused, name_taken_report
from liqod.kubelet.pods.forge import digest_in
from liqod.kubelet.pods.restarts import Tally
from liqod.kubelet.pods.status_pace import Pace
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, reference_to
from liqod.model.timestamps import rfc3339

FLOOD_INTERVAL: Final = 60.0
"""Seconds between two events about a lender that changes too many statuses."""
AGAIN_AFTER: Final = 1.0
"""Seconds between the deletion of a ShadowPod for its patch and the next one of that pod. A lender that does not keep
its annotation would otherwise have it deleted and created as fast as it answers."""
MADE_AGAIN: Final = Backoff(initial=AGAIN_AFTER, factor=2.0, cap=60.0, jitter=0.0)
"""Back-off of a pod whose ShadowPod does not stay at the lender, though it was accepted there."""
STAYED: Final = 600.0
"""Seconds after which a ShadowPod counts as one that stayed."""
NOT_KEPT: Final = "the lender drops annotations of liqod from the ShadowPod, so that its changes cannot be followed"
UPDATE_REFUSED: Final = "UpdateRefused"
"""The reason that a lender's daemon gives as well, for a change that its pod cannot take."""
DELETION_TIMEOUT: Final = 10.0
"""Seconds after which a deletion that the watch has not shown is requested again."""
_KIND: Final = "Pod"
CLAIM_RETRY: Final = Backoff(initial=1.0, factor=2.0, cap=30.0)
"""Back-off of pods whose claim's name is taken at the lender."""


@frozen
class Deletion:
    """A requested deletion: the UID of the object and the time of the request (seconds of the reactor's clock)."""

    uid: str
    requested_at: float

    def is_pending(self, uid: str, now: float) -> bool:
        """Return whether the deletion of this UID was requested so recently that the watch may not show it yet."""
        return self.uid == uid and now - self.requested_at < DELETION_TIMEOUT


@define
class TrackedPod:
    """The record of one pod between reconciles; times are seconds of the reactor's clock."""

    home_uid: str = ""
    tally: Tally | None = None
    """Restart counts of this and the earlier remote pods."""
    status_due: float | None = None
    """When a changed status must be written; None: no status changed."""
    pace: Pace = Factory(Pace)
    """How often the status was written of late."""
    grace_sent_at: float | None = None
    """Since when the ShadowPod carries the requested grace period, or the lender answers it with errors."""
    postponed: bool = False
    """Waits until the lender answers and its objects are observed again."""
    catching_up: bool = False
    """Its status has been stale since the last outage of the lender."""
    attempts: Attempts = Factory(Attempts)
    """Failed writes at the lender."""
    unkept: int = 0
    """Patches in a row whose annotations the lender did not keep."""
    held: str | None = None
    """The digest of the patch of the ShadowPod that the lender refused, failed to take (429, 5xx), did not answer or
    did not keep; empty for a note."""
    patch_at: float = 0.0
    """Until then that patch is not sent again; another one is."""
    retry_at: float = 0.0
    """Until then no ShadowPod is created: the lender refused it, the last one was just deleted, or a claim is taken."""
    refused: str = ""
    """The digest of the ShadowPod whose creation the lender refused; another, as home changed it, is tried at once."""
    claim_checks: int = 0
    """How often in a row a claim of it was taken at the lender."""
    made: int = 0
    """ShadowPods that were created in a row, none of which stayed but maybe the last."""
    made_at: float = 0.0
    """When the last of them was."""
    shadow_deletion: Deletion | None = None
    home_deletion: Deletion | None = None

    def reset_backoff(self) -> None:
        """Let the next write at the lender be tried at once: it accepted one, or this is another pod."""
        self.patched()
        self.retry_at, self.refused = 0.0, ""
        self.claim_checks = 0

    def patched(self) -> None:
        """Note a patch that the lender accepted and kept; what waits until it is created again goes on waiting."""
        self.attempts = Attempts()
        self.held, self.patch_at = None, 0.0
        self.unkept = 0

    def pause(self, until: float, refused: str = "") -> None:
        """Create no ShadowPod before a time; where one was refused, by its digest, only that one waits."""
        self.retry_at, self.refused = until, refused

    def created(self, now: float) -> None:
        """Note a ShadowPod that the lender accepted: the next one waits, in case this one vanishes."""
        self.reset_backoff()
        self.made = self.made + 1 if now - self.made_at < STAYED else 1
        self.made_at = now
        self.pause(now + MADE_AGAIN.delay(self.made - 1))

    def hold(self, patch: dict[str, Any], until: float) -> None:
        """Do not send this patch again before a time."""
        self.held, self.patch_at = digest_in(patch), until

    def held_for(self, now: float) -> float:
        """Return the seconds for which a patch is held back; 0 if none is."""
        return 0.0 if self.held is None else max(0.0, self.patch_at - now)


def _is_kept(patch: dict[str, Any], patched: Shadow) -> bool:
    """Return whether a patched ShadowPod has the annotations of the patch. Pure."""
    sent = patch.get("metadata", {}).get("annotations") or {}
    return all(patched.metadata.annotations.get(key) == value for key, value in sent.items())


class Postponed(ExpectedError):
    """Raised when the lender does not answer; the pod is reconciled again when it does."""


class Grants(Protocol):
    """The namespaces that the lender granted (``namespaces.controller.NamespaceController``)."""

    def request_again(self, local: str) -> None:
        """Request a namespace again, because the lender refused a write in it."""
        ...


@frozen
class ObservedPod:
    """A home pod as observed in one step, its remote namespace and its record."""

    key: Key
    home: HomePod | None
    remote: RemoteNamespace | None
    tracked: TrackedPod


class PodActions:
    """Sends the requests for one virtual node's pods; each returns the seconds until the next reconcile, or None.

    ``claims_follow``: whether claims are reflected, so that one at the lender may be that of an earlier claim.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        *,
        context: Context,
        grants: Grants,
        health: LenderHealth,
        recorder: Recorder,
        claims_follow: bool = False,
        counts: ReflectionCounts | None = None,
    ) -> None:
        self._clock = clock
        self._counts = counts or ReflectionCounts()
        self._client = client
        self._context = context
        self._grants = grants
        self._health = health
        self._recorder = recorder
        self._claims_follow = claims_follow
        self._flooded_at: float | None = None
        self.mutations: Mutations[Key, HomePod] = Mutations(clock)
        # Without resourceVersion: a kubelet owns only part of a pod's status, and conditions of other writers change at
        # any time; a 409 for those helps nobody. The UID in the patch protects a successor of the same name.
        self._status = StatusWriter(client, PODS, HomePod, self.mutations, versioned=False)

    async def create(
        self, pod: ObservedPod, home: HomePod, remote: RemoteNamespace, body: dict[str, Any]
    ) -> float | None:
        """Create the ShadowPod, unless it would get a claim that is not the pod's."""
        name, tracked = home.metadata.name, pod.tracked
        left = tracked.retry_at - self._clock.seconds()
        if left > 0 and tracked.refused in ("", digest_in(body)):
            # Writing the refusal into the pod's status enqueued the pod; the back-off still applies.
            return left
        try:
            claims = await self._claims_there(remote, body)
        except (ApiError, Unreachable) as error:
            return await self._not_created(pod, home, remote, error, digest_in(body))
        if claims and (why := await self._taken(home, claims)):
            delay = CLAIM_RETRY.delay(tracked.claim_checks)
            tracked.claim_checks += 1
            tracked.pause(self._clock.seconds() + delay)
            await self._report(home, Report(CLAIM_TAKEN, why), tracked)
            return delay
        try:
            created = await remote.client.create(SHADOWPODS, body, remote.namespace, view=Shadow)
        except AlreadyExists as conflict:
            return await self._find(pod, home, remote, conflict)
        except (ApiError, Unreachable) as error:
            return await self._not_created(pod, home, remote, error, digest_in(body))
        self._health.request_succeeded()
        tracked.created(self._clock.seconds())
        remote.mutations.wrote(name, None, created)
        return None

    async def _claims_there(self, remote: RemoteNamespace, body: dict[str, Any]) -> list[Object]:
        """Return those of a ShadowPod's claims that are at the lender and were made from here.

        They are read, not taken from a cache: what that does not show (yet) would be mounted all the same.
        """
        found = []
        for name in claims_in(body) if self._claims_follow else ():
            with suppress(NotFound):
                claim = await remote.client.get(PERSISTENTVOLUMECLAIMS, name, remote.namespace, view=Object)
                found += [claim] if is_ours(claim.metadata, self._context) else []
        return found

    async def _taken(self, home: HomePod, claims: list[Object]) -> str:
        """Return why the first claim that is not that of the home pod cannot be mounted; empty if all can be."""
        for claim in claims:
            name = claim.metadata.name
            known = await self._client.list(
                PERSISTENTVOLUMECLAIMS, home.metadata.namespace, view=Object, fields=f"metadata.name={name}"
            )
            if why := obstacle(claim.metadata, {each.metadata.uid for each in known.items}):
                return why
        return ""

    async def _find(
        self, pod: ObservedPod, home: HomePod, remote: RemoteNamespace, conflict: AlreadyExists
    ) -> float | None:
        """Look at the object that has a ShadowPod's name: ours, which the cache shows late, or a stranger's."""
        name = home.metadata.name
        try:
            found = await existing(remote.client, SHADOWPODS, name, remote.namespace, view=Shadow, conflict=conflict)
        except (ApiError, Unreachable) as error:
            return await self._not_created(pod, home, remote, error)
        self._health.request_succeeded()
        if not is_ours(found.metadata, self._context):
            pod.tracked.pause(self._clock.seconds() + NAME_TAKEN_RETRY)
            return await self.skip(home, name_taken_report(name, remote.namespace))
        remote.mutations.wrote(name, None, found)
        return 0.0

    async def patch(
        self, pod: ObservedPod, home: HomePod, remote: RemoteNamespace, patch: dict[str, Any]
    ) -> float | None:
        """Update the ShadowPod.

        A patch that the lender refuses, or whose annotations it drops (a webhook may), is sent again ever more rarely,
        one with other changes at once. A deletion does not wait for the annotation with its grace period: where that is
        refused the ShadowPod is deleted all the same, and its pod ends with a grace of its own.
        """
        name, tracked = home.metadata.name, pod.tracked
        before = remote.shadow(name)
        left = tracked.held_for(self._clock.seconds())
        if left > 0 and tracked.held == digest_in(patch) and not home.metadata.deleting:
            return left
        try:
            patched = await remote.client.patch(SHADOWPODS, name, patch, remote.namespace, view=Shadow)
        except (Conflict, NotFound):
            # 409: the UID is another one's; 404: it was deleted. Either way the cache is behind the API server.
            remote.mutations.forget(name)
            return READ_AGAIN
        except (Throttled, ServerError) as error:
            # A webhook of the lender that does not answer is a 500. The controller backs off; statuses go home.
            now = self._clock.seconds()
            self._counts.failed(_KIND, counted_reason(error, granted_for=now - remote.since))
            tracked.hold(patch, now + max(error.retry_after, tracked.attempts.delay(Meaning.OVERLOADED)))
            if home.metadata.deleting and tracked.grace_sent_at is None:
                tracked.grace_sent_at = now
            raise
        except (ApiError, Unreachable) as error:
            return await self._not_patched(pod, home, remote, patch, error)
        self._health.request_succeeded()
        remote.mutations.wrote(name, before, patched)
        if _is_kept(patch, patched):
            tracked.patched()
            return 0.0
        if home.metadata.deleting:
            return await self.delete_shadow(pod, remote, patched.metadata.uid)
        delay = LATER.delay(tracked.unkept)
        tracked.unkept += 1
        tracked.hold(patch, self._clock.seconds() + delay)
        self._recorder.record_event(reference_to("v1", "Pod", home.metadata), "Warning", "NotKept", NOT_KEPT)
        return delay

    async def delete_shadow(self, pod: ObservedPod, remote: RemoteNamespace, uid: str) -> float | None:
        """Delete the ShadowPod, once; the watch reports when it is gone.

        Raises the error of a failed request, so that the controller backs off.
        """
        key, tracked, now = pod.key, pod.tracked, self._clock.seconds()
        if tracked.shadow_deletion is not None and tracked.shadow_deletion.is_pending(uid, now):
            return DELETION_TIMEOUT
        if pod.home is None and await self._exists_at_home(key):
            return DELETION_TIMEOUT
        tracked.shadow_deletion = Deletion(uid, now)
        shadow = remote.shadow(key.name)
        if pod.home is not None and shadow is not None and home_uid(shadow.metadata) == pod.home.metadata.uid:
            tracked.pause(max(tracked.retry_at, now + AGAIN_AFTER))
        try:
            # The UID: the ShadowPod of a namesake that was created meanwhile is not this one.
            await remote.client.delete(SHADOWPODS, key.name, remote.namespace, uid=uid)
        except Conflict:
            # The UID precondition failed: another ShadowPod has the name now; the watch brings it.
            return None
        except (ApiError, Unreachable) as error:
            tracked.shadow_deletion = None
            meaning = meaning_of(error, granted_for=now - remote.since)
            if meaning is Meaning.NO_ANSWER:
                self._health.recheck()
                raise Postponed(str(error)) from error
            if meaning is Meaning.REFUSED and isinstance(error, Forbidden | NotFound):
                self._grants.request_again(key.namespace)
            raise
        remote.mutations.forget(key.name)
        self._health.request_succeeded()
        return None

    async def _exists_at_home(self, key: Key) -> bool:
        """Return whether the API server has the pod on this node; asked before its absence leads to a deletion.

        The cache selects by spec.nodeName, so a pod that was bound to the node a moment ago may be missing from it.
        """
        try:
            found = await self._client.get(PODS, key.name, key.namespace, view=HomePod)
        except NotFound:
            return False
        return decoded(found.spec).get("nodeName") == self._context.node_name

    async def delete_home(self, key: Key, tracked: TrackedPod, uid: str) -> float | None:
        """Delete the home pod with grace period 0, once; none of its containers runs any more.

        A kubelet does the same when the last container has terminated: the API server keeps a deleted pod until its
        kubelet confirms this. Source: Kubernetes, "Pod Lifecycle", Termination of Pods.
        """
        now = self._clock.seconds()
        if tracked.home_deletion is not None and tracked.home_deletion.is_pending(uid, now):
            return DELETION_TIMEOUT
        tracked.home_deletion = Deletion(uid, now)
        try:
            # A kubelet removes a terminating pod, with period 0, once its containers have ended (Kubernetes, "Pod
            # Lifecycle"): on a virtual node this daemon is the kubelet.
            await self._client.delete(PODS, key.name, key.namespace, uid=uid, grace=0)
        except Conflict:
            self._log.debug("{pod} was replaced by another pod of that name", pod=str(key))
        except Exception:
            tracked.home_deletion = None
            raise
        return None

    async def write_status(self, home: HomePod, decision: WriteStatus) -> None:
        """Write the home pod's status; record the report as an event if the status changed."""
        written = await self._status.write(home, decision.status)
        if isinstance(written, Written) and decision.report is not None:
            reference, report = reference_to("v1", "Pod", home.metadata), decision.report
            self._recorder.record_event(reference, "Warning", report.reason, report.message)

    def report_flood(self, now: float) -> None:
        """Record, once a minute, an event of the Node: its lender changes more statuses than are written home."""
        if self._flooded_at is not None and now - self._flooded_at < FLOOD_INTERVAL:
            return
        self._flooded_at = now
        name = self._context.node_name
        message = "the lender changes more statuses than are written here; those of phase and readiness come first"
        # A kubelet refers to its Node by the name in place of the UID.
        reference = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
        self._recorder.record_event(reference, "Warning", "StatusesDelayed", message)
        self._log.warn("{node}: {detail}", node=name, detail=message)

    async def skip(self, home: HomePod | None, report: Report) -> float | None:
        """Report as condition and event that another object has the name; retry after ``NAME_TAKEN_RETRY``."""
        if home is None:
            return None
        await self._report(home, report, None)
        return NAME_TAKEN_RETRY

    async def _not_created(
        self, pod: ObservedPod, home: HomePod, remote: RemoteNamespace, error: ApiError | Unreachable, digest: str = ""
    ) -> float | None:
        """Handle a failed creation of the ShadowPod with a digest; return the seconds until the next attempt."""
        failed = self._failed(pod, home, remote, error, creating=True)
        if failed.is_refused:
            pod.tracked.pause(self._clock.seconds() + failed.delay, digest)
            report = Report(failed.reason, f"the lender refuses the pod: {failed.message}")
            await self._report(home, report, pod.tracked)
        return failed.delay

    async def _not_patched(
        self,
        pod: ObservedPod,
        home: HomePod,
        remote: RemoteNamespace,
        patch: dict[str, Any],
        error: ApiError | Unreachable,
    ) -> float | None:
        """Handle a failed patch; return the seconds until the next attempt.

        The pod at the lender goes on as it is, and so does its status at home: an event alone reports a refusal.
        """
        now = self._clock.seconds()
        try:
            failed = self._failed(pod, home, remote, error, creating=False)
        except Postponed:
            pod.tracked.hold(patch, now + NO_ANSWER_RETRY)
            raise
        pod.tracked.hold(patch, now + failed.delay)
        if not failed.is_refused:
            return failed.delay
        deleting = home.metadata.deleting
        outcome = "ends with a grace period of its own" if deleting else "goes on as it is"
        message = f"the lender refuses the change, and the pod {outcome} ({failed.reason}): {failed.message}"
        reference = reference_to("v1", "Pod", home.metadata)
        self._recorder.record_event(reference, "Warning", UPDATE_REFUSED, message)
        return await self.delete_shadow(pod, remote, patch["metadata"]["uid"]) if deleting else failed.delay

    def _failed(
        self, pod: ObservedPod, home: HomePod, remote: RemoteNamespace, error: ApiError | Unreachable, *, creating: bool
    ) -> FailedWrite:
        """Return what a failed write at the lender means; count it, and request the namespace again for a refusal.

        Raises ``Postponed`` without an answer, and the error itself for 429 and 5xx.
        """
        granted_for = self._clock.seconds() - remote.since
        self._counts.failed(_KIND, counted_reason(error, granted_for=granted_for, creating=creating))
        failed = failed_write(error, pod.tracked.attempts, self._health, granted_for=granted_for, creating=creating)
        if failed.meaning is Meaning.NO_ANSWER:
            raise Postponed(str(error)) from error
        if failed.is_refused and isinstance(error, Forbidden | NotFound) and not is_invalid_pod(error):
            self._grants.request_again(home.metadata.namespace)
        return failed

    async def _report(self, home: HomePod, report: Report, tracked: TrackedPod | None) -> None:
        """Write a report to the home pod as condition and event, unless the pod has it already.

        ``tracked`` is given where the lender chooses the words, so that they may change all the time: it is then
        written at the pace of all statuses, or with the next attempt.
        """
        now = self._clock.seconds()
        decision = decide_refused(home, report.reason, report.message, rfc3339(wall_clock(self._clock)()))
        if not isinstance(decision, WriteStatus) or (tracked is not None and tracked.pace.wait(now, urgent=False) > 0):
            return
        if tracked is not None:
            tracked.pace = tracked.pace.written(now, urgent=False)
        await self.write_status(home, decision)
