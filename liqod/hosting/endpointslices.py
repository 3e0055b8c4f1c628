"""ShadowEndpointSlices made real: each an EndpointSlice of its name, kept also while the borrower is away.

The slice belongs to its ShadowEndpointSlice and goes with it (the API server's garbage collector sees to that).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from liqod.flow.backoff import Backoff
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.hosting.endpointslice_forge import (
    Create,
    EndpointSlice,
    Mapped,
    Nothing,
    Replace,
    Step,
    Update,
    body_of,
    decide,
    template_of,
)
from liqod.hosting.shadowpods.admission import sentence
from liqod.hosting.shadowpods.status import Recorder
from liqod.hosting.tenants.namespaces import Namespaces
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from liqod.kube.resources import ENDPOINTSLICES, SHADOWENDPOINTSLICES
from liqod.model.ids import Key
from liqod.model.objects.meta import reference_to
from liqod.model.records.views import ShadowEndpointSlice, SliceTemplate

SETTLING: Final = Backoff(initial=1.0, cap=300.0)


def _same(tenant: str, address: str) -> str:
    return address


class ShadowSlices(MultiService):
    """The reconciler of ShadowEndpointSlices. ``mapped`` turns addresses of borrowers into addresses here."""

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        shadows: Informer[ShadowEndpointSlice],
        slices: Informer[EndpointSlice],
        namespaces: Namespaces,
        recorder: Recorder,
        workers: int,
        mapped: Mapped = _same,
    ) -> None:
        super().__init__()
        self._client = client
        self._clock = clock
        self._shadows = shadows
        self._slices = slices
        self._namespaces = namespaces
        self._recorder = recorder
        self._mapped = mapped
        self._queue: WorkQueue[Key] = WorkQueue(clock, "shadow endpoint slices")
        self._workers = Workers(self._queue, workers, self._process, "keeping the slice of ShadowEndpointSlice")
        self._subscriptions: list[Callable[[], None]] = []
        self._attempts: dict[Key, int] = {}
        self._written: dict[Key, tuple[str, SliceTemplate, float]] = {}

    def begin(self) -> None:
        """Start working; to be called when every watch has listed."""
        self._subscriptions = [
            self._shadows.subscribe(lambda key, old, new: self._queue.add(key)),
            self._slices.subscribe(lambda key, old, new: self._queue.add(key)),
        ]
        self._workers.setServiceParent(self)

    def look_all(self) -> None:
        """Have every slice looked at again, because what addresses map to changed."""
        for shadow in self._shadows.items():
            self._queue.add(shadow.metadata.key)

    def stopService(self) -> Deferred[None]:
        for unsubscribe in self._subscriptions:
            unsubscribe()
        self._subscriptions = []
        stopped: Deferred[None] = super().stopService()
        return stopped.addCallback(lambda _: self._queue.close())

    async def _process(self, key: Key) -> float | None:
        shadow = self._shadows.get(key)
        if shadow is None or self._namespaces.is_ending(key.namespace):
            self._attempts.pop(key, None)
            self._written.pop(key, None)
            return None
        tenant = await self._namespaces.tenant_of(key.namespace)
        if not tenant:
            self._tell(shadow, "NotGranted", f"namespace {key.namespace} was granted to no cluster")
            return None
        wanted = template_of(shadow, tenant, self._mapped)
        step = decide(shadow, self._slices.get(key), wanted)
        if isinstance(step, Nothing):
            return None
        if (left := self._left(shadow, wanted)) > 0:
            return left
        try:
            await self._carry_out(shadow, wanted, step)
        except (Invalid, Forbidden, AlreadyExists) as error:
            return self._refused(shadow, error)
        self._attempts.pop(key, None)
        return None

    async def _carry_out(self, shadow: ShadowEndpointSlice, wanted: SliceTemplate, step: Step) -> None:
        key, client = shadow.metadata.key, self._client
        match step:
            case Create():
                await client.create(ENDPOINTSLICES, body_of(shadow, wanted), key.namespace, view=None)
            case Update(uid):
                body = body_of(shadow, wanted)
                patch = {
                    "metadata": {"uid": uid, "labels": body["metadata"]["labels"]},
                    "endpoints": body["endpoints"],
                    "ports": body["ports"],
                }
                try:
                    await client.patch(ENDPOINTSLICES, key.name, patch, key.namespace, view=None)
                except (NotFound, Conflict):
                    return  # The watch tells what became of it.
            case Replace(uid):
                await client.delete(ENDPOINTSLICES, key.name, key.namespace, uid=uid)
                return
        self._written[key] = (shadow.metadata.uid, wanted, self._clock.seconds())

    def _left(self, shadow: ShadowEndpointSlice, wanted: SliceTemplate) -> float:
        """Return for how long the same thing is not written again: the watch may lag, or somebody here undoes it."""
        uid, template, at = self._written.get(shadow.metadata.key, ("", None, 0.0))
        if uid != shadow.metadata.uid or template != wanted:
            self._attempts.pop(shadow.metadata.key, None)
            return 0.0
        attempt = self._attempts.get(shadow.metadata.key, 0)
        left = at + SETTLING.delay(attempt) - self._clock.seconds()
        if left <= 0:
            self._attempts[shadow.metadata.key] = attempt + 1
        return max(0.0, left)

    def _refused(self, shadow: ShadowEndpointSlice, error: ApiError) -> float:
        key = shadow.metadata.key
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        if isinstance(error, AlreadyExists):
            message = f"an endpoint slice {key.name} that is not of this ShadowEndpointSlice exists; it is left alone"
            self._tell(shadow, "NameTaken", message)
        else:
            self._tell(shadow, "SliceRefused", sentence(error.message))
        return SETTLING.delay(attempt + 2)

    def _tell(self, shadow: ShadowEndpointSlice, reason: str, message: str) -> None:
        regarding = reference_to(SHADOWENDPOINTSLICES.api_version, SHADOWENDPOINTSLICES.kind, shadow.metadata)
        self._recorder.emit(regarding, "Warning", reason, message)
