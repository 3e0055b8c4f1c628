"""What is told to a borrower about its ShadowPods: statuses written only when they differ, and events.

The informer shows a write a little later; until then the last thing written counts as what the record says, so that
nothing is written twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from twisted.logger import Logger

from liqod.kube.client import Client
from liqod.kube.errors import Conflict, Invalid, NotFound
from liqod.kube.resources import SHADOWPODS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, reference_to
from liqod.model.records.views import ShadowPod, ShadowPodStatus


class Recorder(Protocol):
    """What emits events about objects, without waiting for them to be written."""

    def emit(self, regarding: Mapping[str, str], type: str, reason: str, message: str) -> None:
        """Emit an event of type Normal or Warning."""


class Statuses:
    """The writer of ShadowPods' statuses; remembers at most what the informer has not shown yet."""

    _log = Logger()

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self._written: dict[Key, tuple[str, ShadowPodStatus]] = {}

    def of(self, shadow: ShadowPod) -> ShadowPodStatus:
        """Return what the record says, or what was written to it and is still on its way back."""
        uid, written = self._written.get(shadow.metadata.key, ("", shadow.status))
        return written if uid == shadow.metadata.uid else shadow.status

    async def clear(self, shadow: ShadowPod) -> None:
        """Take back a refusal: the pod runs now."""
        if self.of(shadow).reason:
            await self.write(shadow, ShadowPodStatus())

    async def write(self, shadow: ShadowPod, status: ShadowPodStatus) -> None:
        """Write a status, unless the record says so already. Raises KubeError."""
        if self.of(shadow) == status:
            return
        key = shadow.metadata.key
        fields = {"phase": status.phase, "reason": status.reason, "message": status.message}
        body = {
            # A ShadowPod that was replaced by another of its name must not inherit the end of the first.
            "metadata": {"uid": shadow.metadata.uid},
            "status": {name: text or None for name, text in fields.items()},
        }
        try:
            await self._client.patch(
                SHADOWPODS, key.name, body, key.namespace, kind="merge", subresource="status", view=None
            )
        except (NotFound, Conflict) as error:
            self._log.debug("status of {key} not written: {error}", key=str(key), error=str(error))
        except Invalid as error:
            self._log.warn("status of {key} not written: {error}", key=str(key), error=str(error))
        else:
            self._written[key] = (shadow.metadata.uid, status)

    def tell(self, shadow: ShadowPod, reason: str, message: str) -> None:
        """Emit a warning event about a ShadowPod."""
        regarding = reference_to(SHADOWPODS.api_version, SHADOWPODS.kind, shadow.metadata)
        self._recorder.emit(regarding, "Warning", reason, message)

    def tell_pod(self, pod: Object, reason: str, message: str) -> None:
        """Emit a warning event about a pod, which its borrower gets to see as one about its own."""
        self._recorder.emit(reference_to("v1", "Pod", pod.metadata), "Warning", reason, message)

    def seen(self, shadow: ShadowPod) -> None:
        """Take note of what the informer shows."""
        if self._written.get(shadow.metadata.key) == (shadow.metadata.uid, shadow.status):
            del self._written[shadow.metadata.key]

    def forget(self, key: Key) -> None:
        """Forget a ShadowPod that is gone."""
        self._written.pop(key, None)
