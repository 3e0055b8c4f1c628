"""Carries out decisions about pods: the requests, what their failures mean, and what is remembered between steps."""

from __future__ import annotations

from typing import Any, Final, Protocol

from attrs import Factory, define, frozen
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.clocks import wall_clock
from liqod.flow.errors import ExpectedError
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unreachable
from liqod.kube.resources import PODS, SHADOWPODS
from liqod.kube.writing.mutation_cache import Mutations
from liqod.kube.writing.refusals import READ_AGAIN
from liqod.kube.writing.status_writer import StatusWriter, Written
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.common.refusals import NAME_TAKEN_RETRY, Attempts, Meaning, meaning_of
from liqod.kubelet.common.views import HomePod, Shadow, decoded
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.pods.decide import Report, WriteStatus, decide_refused, name_taken_report
from liqod.kubelet.pods.restarts import Tally
from liqod.kubelet.ports import Recorder
from liqod.model.ids import Key
from liqod.model.objects.meta import reference_to
from liqod.model.timestamps import rfc3339

DELETION_TIMEOUT: Final = 10.0
"""Seconds after which a deletion that the watch does not show is requested again."""


@frozen
class Deletion:
    """A deletion that was requested: of which UID, and when (seconds of the reactor's clock)."""

    uid: str
    requested_at: float

    def is_pending(self, uid: str, now: float) -> bool:
        """Tell whether this UID was requested to be deleted so recently that the watch may not show it yet."""
        return self.uid == uid and now - self.requested_at < DELETION_TIMEOUT


@define
class TrackedPod:
    """One pod of the virtual node; times are seconds of the reactor's clock."""

    home_uid: str = ""
    tally: Tally | None = None
    """Restart counts of the remote pods that came before."""
    status_due: float | None = None
    """When a status that differs is to be written; None: none does."""
    grace_sent_at: float | None = None
    """Since when the lender has known with which grace period the pod is to end."""
    postponed: bool = False
    """Waits until the lender answers, and shows what it has now."""
    catching_up: bool = False
    """Its status has been old since the last outage of the lender."""
    attempts: Attempts = Factory(Attempts)
    """Failed writes at the lender."""
    retry_at: float = 0.0
    """Until then no ShadowPod is created: the lender refused it."""
    shadow_deletion: Deletion | None = None
    home_deletion: Deletion | None = None

    def succeeded(self) -> None:
        """Note that the lender accepted a write."""
        self.attempts = Attempts()
        self.retry_at = 0.0


class Postponed(ExpectedError):
    """The lender does not answer: the pod is reconciled again when it does."""


class Grants(Protocol):
    """The namespaces that the lender granted (``namespaces.controller.NamespaceController``)."""

    def request_again(self, local: str) -> None:
        """Ask for a namespace again, because the lender refused something in it."""
        ...


@frozen
class Seen:
    """A pod at home as it is seen in one step, its remote namespace, and what is remembered about it."""

    key: Key
    home: HomePod | None
    remote: RemoteNamespace | None
    tracked: TrackedPod


class PodActions:
    """The requests of one virtual node's pods. Each returns the seconds after which to reconcile again, or None."""

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
    ) -> None:
        self._clock = clock
        self._client = client
        self._context = context
        self._grants = grants
        self._health = health
        self._recorder = recorder
        self.mutations: Mutations[Key, HomePod] = Mutations(clock)
        # A kubelet owns only part of a pod's status: conditions of others change at any time, and must not make ours
        # fail. The UID guards against a successor of the same name.
        self._status = StatusWriter(client, PODS, HomePod, self.mutations, versioned=False)

    async def create(self, pod: Seen, home: HomePod, remote: RemoteNamespace, body: dict[str, Any]) -> float | None:
        """Create the ShadowPod."""
        name, tracked = home.metadata.name, pod.tracked
        left = tracked.retry_at - self._clock.seconds()
        if left > 0:
            # Writing the refusal into the status changed the pod and so enqueued it: that is no reason to ask again.
            return left
        try:
            created = await remote.client.create(SHADOWPODS, body, remote.namespace, view=Shadow)
        except AlreadyExists:
            # The cache does not show it: it is not ours (the watch selects by label), or the watch is behind.
            found = await remote.client.get(SHADOWPODS, name, remote.namespace, view=Shadow)
            if not is_ours(found.metadata, self._context):
                tracked.retry_at = self._clock.seconds() + NAME_TAKEN_RETRY
                return await self.skip(home, name_taken_report(name, remote.namespace))
            remote.mutations.wrote(name, None, found)
            return 0.0
        except (ApiError, Unreachable) as error:
            return await self._failed(pod, home, remote, error, creating=True)
        self._health.request_succeeded()
        tracked.succeeded()
        remote.mutations.wrote(name, None, created)
        return None

    async def patch(self, pod: Seen, home: HomePod, remote: RemoteNamespace, patch: dict[str, Any]) -> float | None:
        """Update the ShadowPod."""
        name = home.metadata.name
        before = remote.shadow(name)
        try:
            patched = await remote.client.patch(SHADOWPODS, name, patch, remote.namespace, view=Shadow)
        except (Conflict, NotFound):
            remote.mutations.forget(name)
            return READ_AGAIN
        except (ApiError, Unreachable) as error:
            return await self._failed(pod, home, remote, error)
        self._health.request_succeeded()
        pod.tracked.succeeded()
        remote.mutations.wrote(name, before, patched)
        return 0.0

    async def delete_shadow(self, pod: Seen, remote: RemoteNamespace, uid: str) -> float | None:
        """Delete the ShadowPod, once; the watch shows when it is gone."""
        key, tracked, now = pod.key, pod.tracked, self._clock.seconds()
        if tracked.shadow_deletion is not None and tracked.shadow_deletion.is_pending(uid, now):
            return DELETION_TIMEOUT
        if pod.home is None and await self._exists_at_home(key):
            return DELETION_TIMEOUT
        tracked.shadow_deletion = Deletion(uid, now)
        try:
            await remote.client.delete(SHADOWPODS, key.name, remote.namespace, uid=uid)
        except Conflict:
            return None
        except (ApiError, Unreachable) as error:
            tracked.shadow_deletion = None
            if meaning_of(error, granted_for=float("inf")) is Meaning.NO_ANSWER:
                self._postpone(error)
            raise
        remote.mutations.forget(key.name)
        self._health.request_succeeded()
        return None

    async def _exists_at_home(self, key: Key) -> bool:
        """Ask the API server, before something is deleted because the cache does not show its pod.

        The cache selects by spec.nodeName: a pod that is bound to the node a moment later is not in it yet.
        """
        try:
            found = await self._client.get(PODS, key.name, key.namespace, view=HomePod)
        except NotFound:
            return False
        return decoded(found.spec).get("nodeName") == self._context.node_name

    async def delete_home(self, key: Key, tracked: TrackedPod, uid: str) -> float | None:
        """Delete the home pod with grace period 0, once: nothing of it runs any more.

        That is what a kubelet does when the last container has ended: the API server keeps a pod until its kubelet
        confirms the end (Kubernetes, "Pod Lifecycle", Termination of Pods).
        """
        now = self._clock.seconds()
        if tracked.home_deletion is not None and tracked.home_deletion.is_pending(uid, now):
            return DELETION_TIMEOUT
        tracked.home_deletion = Deletion(uid, now)
        try:
            await self._client.delete(PODS, key.name, key.namespace, uid=uid, grace=0)
        except Conflict:
            self._log.debug("{pod} was replaced by another pod of that name", pod=str(key))
        except Exception:
            tracked.home_deletion = None
            raise
        return None

    async def write_status(self, home: HomePod, decision: WriteStatus) -> None:
        """Write the home pod's status, and record what is new as an event."""
        written = await self._status.write(home, decision.status)
        if isinstance(written, Written) and decision.report is not None:
            reference, report = reference_to("v1", "Pod", home.metadata), decision.report
            self._recorder.emit(reference, "Warning", report.reason, report.message)

    async def skip(self, home: HomePod | None, report: Report) -> float | None:
        """Report that an object in the way is not ours, and try again later."""
        if home is None:
            return None
        await self._report(home, report)
        return NAME_TAKEN_RETRY

    async def _failed(
        self,
        pod: Seen,
        home: HomePod,
        remote: RemoteNamespace,
        error: ApiError | Unreachable,
        *,
        creating: bool = False,
    ) -> float | None:
        """Act on a failed write at the lender; returns the seconds until the next attempt."""
        tracked, now = pod.tracked, self._clock.seconds()
        meaning = meaning_of(error, granted_for=now - remote.since, creating=creating)
        if meaning is Meaning.NO_ANSWER:
            self._postpone(error)
        if meaning is Meaning.OVERLOADED or not isinstance(error, ApiError):
            raise error
        delay = tracked.attempts.delay(meaning)
        if meaning is Meaning.REFUSED:
            if isinstance(error, Forbidden | NotFound):
                self._grants.request_again(home.metadata.namespace)
            tracked.retry_at = now + delay
            message = f"the lender refuses the pod: {clean_message(error.message)}"
            await self._report(home, Report(f"Remote{type(error).__name__}", message))
        return delay

    def _postpone(self, error: Exception) -> None:
        self._health.request_failed()
        raise Postponed(str(error)) from error

    async def _report(self, home: HomePod, report: Report) -> None:
        """Put a reason on the home pod, as condition and event, unless it is there already."""
        decision = decide_refused(home, report.reason, report.message, rfc3339(wall_clock(self._clock)()))
        if isinstance(decision, WriteStatus):
            await self.write_status(home, decision)
