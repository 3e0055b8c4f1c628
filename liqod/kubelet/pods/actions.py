"""The requests behind a decision about a pod, and what their failures mean."""

from __future__ import annotations

from typing import Any, Final

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
    Unauthorized,
    Unreachable,
)
from liqod.kube.resources import PODS, SHADOWPODS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.common.patches import merge_diff
from liqod.kubelet.common.views import HomePod, Shadow, decoded
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.pods.decide import Report, WriteStatus, decide_refused, name_taken_report
from liqod.kubelet.ports import Recorder
from liqod.model.ids import Key
from liqod.model.objects.meta import reference_to
from liqod.model.timestamps import rfc3339

FRESH: Final = 10.0
"""Seconds after a namespace was granted in which a refusal may only mean that the grant has not taken effect yet."""

EARLY: Final = Backoff(initial=0.1, factor=2.0, cap=2.0)
LATE: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)
NAME_TAKEN_RETRY: Final = 60.0
DELETION_SEEN: Final = 10.0


class Postponed(ExpectedError):
    """The lender does not answer: the pod is looked at again when it does."""


class PodActions:
    """Carries decisions out; one instance per virtual node."""

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        context: Context,
        namespaces: NamespaceController,
        health: LenderHealth,
        recorder: Recorder,
        written: Overlay[Key, HomePod],
    ) -> None:
        self._reactor = reactor
        self._client = client
        self._context = context
        self._health = health
        self._recorder = recorder
        self._written = written
        self._namespaces = namespaces
        self._attempts: dict[Key, int] = {}
        self._early: dict[Key, int] = {}
        self._resting: dict[Key, float] = {}
        self._deleted: dict[Key, tuple[str, float]] = {}
        self._ended: dict[Key, tuple[str, float]] = {}

    def forget(self, key: Key, *, shadow_too: bool) -> None:
        """A pod is gone at home (and its ShadowPod at the lender)."""
        self._attempts.pop(key, None)
        self._early.pop(key, None)
        self._resting.pop(key, None)
        self._ended.pop(key, None)
        if shadow_too:
            self._deleted.pop(key, None)

    async def create(self, home: HomePod, remote: RemoteNamespace, body: dict[str, Any]) -> float | None:
        """Create the ShadowPod."""
        name, key = home.metadata.name, home.metadata.key
        rest: float = self._resting.get(key, 0.0) - self._reactor.seconds()
        if rest > 0:
            # Telling the refusal changed the pod, which brought it here again: the lender is not asked for that.
            return rest
        try:
            made = await remote.client.create(SHADOWPODS, body, remote.namespace, view=Shadow)
        except AlreadyExists:
            # It is there, and the cache does not show it: not ours (the watch selects by label), or not seen yet.
            found = await remote.client.get(SHADOWPODS, name, remote.namespace, view=Shadow)
            if not is_ours(found.metadata, self._context):
                self._resting[key] = self._reactor.seconds() + NAME_TAKEN_RETRY
                return await self.skip(home, name_taken_report(name, remote.namespace))
            remote.answers.put(name, found)
            return 0.0
        except (ApiError, Unreachable) as error:
            return await self._refused(home, remote, error)
        self._health.request_succeeded()
        self._attempts.pop(key, None)
        self._early.pop(key, None)
        self._resting.pop(key, None)
        remote.answers.put(name, made)
        return None

    async def patch(self, home: HomePod, remote: RemoteNamespace, patch: dict[str, Any]) -> float | None:
        """Bring the ShadowPod up to date."""
        name = home.metadata.name
        try:
            made = await remote.client.patch(SHADOWPODS, name, patch, remote.namespace, view=Shadow)
        except NotFound:
            remote.answers.drop(name)
            return 1.0
        except Conflict:
            return 1.0
        except (ApiError, Unreachable) as error:
            return await self._refused(home, remote, error)
        self._health.request_succeeded()
        self._attempts.pop(home.metadata.key, None)
        self._early.pop(home.metadata.key, None)
        remote.answers.put(name, made)
        return 0.0

    async def delete_shadow(self, key: Key, home: HomePod | None, remote: RemoteNamespace, uid: str) -> float | None:
        """Delete the ShadowPod, once; the watch tells when it is gone."""
        now = self._reactor.seconds()
        known, since = self._deleted.get(key, ("", 0.0))
        if known == uid and now - since < DELETION_SEEN:
            return DELETION_SEEN
        if home is None and await self._exists_after_all(key):
            return DELETION_SEEN
        self._deleted[key] = (uid, now)
        try:
            await remote.client.delete(SHADOWPODS, key.name, remote.namespace, uid=uid)
        except Conflict:
            return None
        except (ApiError, Unreachable) as error:
            self._deleted.pop(key, None)
            self._doubt(error)
            raise
        remote.answers.drop(key.name)
        self._health.request_succeeded()
        return None

    async def _exists_after_all(self, key: Key) -> bool:
        """Ask the home cluster itself before something is deleted because of a pod that the cache does not show.

        Pods pass the virtual node's watch only while they are bound to it; one that is not there is looked for by name.
        """
        try:
            found = await self._client.get(PODS, key.name, key.namespace, view=HomePod)
        except NotFound:
            return False
        return decoded(found.spec).get("nodeName") == self._context.node_name

    async def delete_home(self, key: Key, uid: str) -> float | None:
        """Delete the home pod for good, once: nothing of it runs any more, and the watch tells when it is gone."""
        now: float = self._reactor.seconds()
        known, since = self._ended.get(key, ("", 0.0))
        if known == uid and now - since < DELETION_SEEN:
            return DELETION_SEEN
        self._ended[key] = (uid, now)
        try:
            await self._client.delete(PODS, key.name, key.namespace, uid=uid, grace=0)
        except Conflict:
            self._log.debug("{pod} was replaced by another pod of that name", pod=str(key))
        except Exception:
            self._ended.pop(key, None)
            raise
        return None

    async def write_status(self, home: HomePod, decision: WriteStatus) -> None:
        """Patch what differs of the home pod's status; guarded by its UID."""
        meta = home.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": merge_diff(decoded(home.status), decision.status)}
        try:
            seen = await self._client.patch(PODS, meta.name, patch, meta.namespace, subresource="status", view=HomePod)
        except (NotFound, Conflict):
            self._written.drop(meta.key)
            return
        self._written.put(meta.key, seen)
        if decision.report is not None:
            self._report(home, decision.report)

    async def skip(self, home: HomePod | None, report: Report) -> float | None:
        """Say that an object in the way is not ours, and look again later."""
        if home is None:
            return None
        await self._tell(home, report)
        return NAME_TAKEN_RETRY

    async def _refused(self, home: HomePod, remote: RemoteNamespace, error: ApiError | Unreachable) -> float | None:
        """Find out what a failed request at the lender means; returns when to try again."""
        key = home.metadata.key
        if isinstance(error, Forbidden | NotFound) and self._reactor.seconds() - remote.since < FRESH:
            early = self._early[key] = self._early.get(key, -1) + 1
            return EARLY.delay(early)
        self._early.pop(key, None)
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        self._doubt(error)
        if isinstance(error, Throttled | ServerError | Conflict) or not isinstance(error, ApiError):
            raise error
        if isinstance(error, Forbidden | NotFound):
            self._namespaces.request_again(key.namespace)
        delay = LATE.delay(attempt)
        self._resting[key] = self._reactor.seconds() + delay
        reason = f"Remote{type(error).__name__}"
        await self._tell(home, Report(reason, f"the lender refuses the pod: {clean_message(error.message)}"))
        return delay

    def _doubt(self, error: Exception) -> None:
        if isinstance(error, Unreachable | Unauthorized):
            self._health.request_failed()
            raise Postponed(str(error)) from error

    async def _tell(self, home: HomePod, report: Report) -> None:
        """Put a reason on the home pod, as condition and event, unless it is there already."""
        now = rfc3339(wall_clock(self._reactor)())
        decision = decide_refused(home, report.reason, report.message, now)
        if isinstance(decision, WriteStatus):
            await self.write_status(home, decision)

    def _report(self, home: HomePod, report: Report) -> None:
        self._recorder.emit(reference_to("v1", "Pod", home.metadata), "Warning", report.reason, report.message)
