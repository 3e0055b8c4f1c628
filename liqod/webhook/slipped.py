"""Finds pods that were created while the webhook could not be asked: they lack the toleration and stay Pending.

The API server goes on without the webhook when that is down, by our own wish. Such a pod can still run on a node of
this cluster; only when it found none is it told, once, by an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from twisted.logger import Logger

from liqod.kube.client import Client
from liqod.kube.resources import NAMESPACES, PODS
from liqod.model.meta import Object, View
from liqod.model.names import ENABLED_LABEL
from liqod.webhook.placement import tolerates

REASON: Final = "OffloadingNotAdmitted"
MESSAGE: Final = (
    "the pod was created while liqod's admission webhook could not be asked, so it lacks the toleration for virtual "
    "nodes and cannot be offloaded; delete it (its owner creates it anew), or create it again"
)


class Recorder(Protocol):
    """Where events go (``kube.events.EventRecorder``)."""

    def emit(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:
        """Record that something happened to an object; returns at once and never fails."""
        ...


class Tolerations(View, frozen=True):
    """The part of a pod's spec that matters here."""

    tolerations: list[dict[str, Any]] = []


class WaitingPod(Object, frozen=True):
    """A pod that is not scheduled yet."""

    spec: Tolerations = Tolerations()


class Slipped:
    """Looks for such pods; what was told is remembered as long as the pod is there."""

    _log = Logger()

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self._told: set[str] = set()

    async def look(self) -> int:
        """Report the pods that slipped through since the last time; returns how many there are."""
        namespaces = await self._client.list(NAMESPACES, view=Object, labels=f"{ENABLED_LABEL}=true")
        seen: set[str] = set()
        for namespace in namespaces.items:
            pods = await self._client.list(
                PODS, namespace.metadata.name, view=WaitingPod, fields="spec.nodeName=,status.phase=Pending"
            )
            for pod in pods.items:
                if pod.metadata.deleting or tolerates(pod.spec.tolerations):
                    continue
                seen.add(pod.metadata.uid)
                if pod.metadata.uid not in self._told:
                    self._tell(pod)
        self._told = seen
        return len(seen)

    def _tell(self, pod: WaitingPod) -> None:
        meta = pod.metadata
        self._log.warn("{pod} was created without asking the webhook: it cannot be offloaded", pod=str(meta.key))
        regarding = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        self._recorder.emit(regarding, "Warning", REASON, MESSAGE)
