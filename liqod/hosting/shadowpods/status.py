"""Writes ShadowPod statuses and events; an unchanged status is not written."""

from __future__ import annotations

from typing import Final

from twisted.logger import Logger

from liqod.flow.connections.admission import Bucket
from liqod.flow.controller import After
from liqod.kube.client import Client
from liqod.kube.events import Recorder
from liqod.kube.resources import SHADOWPODS
from liqod.kube.writing.mutation_cache import MutationCache
from liqod.kube.writing.refusals import RefusedWrite, RefusedWrites
from liqod.kube.writing.status_writer import StatusWriter
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, reference_to
from liqod.model.records.views import ShadowPod, ShadowPodStatus

CREATED_PER_SECOND: Final = 1.0
"""Events of created pods, far below what may be recorded in all, so that they displace no warning; and at once:"""
CREATED_BURST: Final = 10


class ShadowPodReports:
    """Reports to borrowers about their ShadowPods: statuses, and events about ShadowPods and pods."""

    _log = Logger()

    def __init__(self, client: Client, recorder: Recorder, shadows: MutationCache[ShadowPod]) -> None:
        self._recorder = recorder
        # Without the resource version: no other client writes this status, and a spec that the borrower changes is no
        # reason to fail. The UID keeps a ShadowPod from inheriting the result of another one of its name.
        self._writer = StatusWriter(client, SHADOWPODS, ShadowPod, shadows, versioned=False)
        self._refusals: RefusedWrites[Key] = RefusedWrites()
        self._pace = Bucket(CREATED_PER_SECOND, CREATED_BURST)

    async def clear(self, shadow: ShadowPod) -> After | None:
        """Remove a refusal from the status: the pod runs now. Returns like ``write``."""
        return await self.write(shadow, ShadowPodStatus()) if shadow.status.reason else None

    async def write(self, shadow: ShadowPod, status: ShadowPodStatus) -> After | None:
        """Write a status, unless the record has it; returns when to try again what was refused. Raises KubeError."""
        key = shadow.metadata.key
        answer = await self._writer.write(shadow, status)
        if not isinstance(answer, RefusedWrite):
            self._refusals.forget(key)
            return None
        self._log.debug("status of {pod} not written: {error}", pod=str(key), error=answer.message)
        seconds = self._refusals.refused(key, answer)
        return After(seconds) if seconds is not None else None

    def record_event(self, shadow: ShadowPod, reason: str, message: str) -> None:
        """Record a warning about a ShadowPod."""
        regarding = reference_to(SHADOWPODS.api_version, SHADOWPODS.kind, shadow.metadata)
        self._recorder.record_event(regarding, "Warning", reason, message)

    def record_created(self, shadow: ShadowPod, now: float) -> None:
        """Record that the pod of a ShadowPod was created, unless many others were just now."""
        if self._pace.delay(now) == 0.0:
            self._pace.take(now)
            regarding = reference_to(SHADOWPODS.api_version, SHADOWPODS.kind, shadow.metadata)
            self._recorder.record_event(regarding, "Normal", "CreatedPod", f"created the pod {shadow.metadata.name}")

    def record_update_refused(self, pod: Object, message: str) -> None:
        """Record a warning about a pod that cannot be changed; it is reflected to the borrower's own pod."""
        self._recorder.record_event(reference_to("v1", "Pod", pod.metadata), "Warning", "UpdateRefused", message)

    def forget(self, key: Key) -> None:
        """Forget the refusals of a ShadowPod that is gone."""
        self._refusals.forget(key)
