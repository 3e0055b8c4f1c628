"""Gives pods that were created while the webhook could not be asked the toleration that it would have given them.

The API server goes on without the webhook when that is down, by our own wish: a stopped daemon never blocks the
creation of pods. Tolerations may be added to a pod that exists (Kubernetes: "Pod update and replacement"), so nobody
has to create such a pod anew; only when even that is refused it is told, once, by an event.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from twisted.logger import Logger

from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Conflict, Invalid, NotFound
from liqod.kube.resources import NAMESPACES, PODS
from liqod.model.meta import Object, View
from liqod.model.names import ENABLED_LABEL
from liqod.webhook.placement import mutations, tolerates

REASON: Final = "OffloadingNotAdmitted"
MESSAGE: Final = (
    "the pod was created while liqod's admission webhook could not be asked, and the toleration for virtual nodes "
    "could not be added afterwards ({why}); delete it (its owner creates it anew), or create it again"
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
        """Mend the pods that slipped through since the last time; returns how many there were."""
        waiting = await self._client.list(PODS, view=WaitingPod, fields="spec.nodeName=,status.phase=Pending")
        slipped = [pod for pod in waiting.items if not pod.metadata.deleting and not tolerates(pod.spec.tolerations)]
        if not slipped:
            self._told.clear()
            return 0
        namespaces = await self._client.list(NAMESPACES, view=Object, labels=f"{ENABLED_LABEL}=true")
        enabled = {namespace.metadata.name for namespace in namespaces.items}
        slipped = [pod for pod in slipped if pod.metadata.namespace in enabled]
        for pod in slipped:
            await self._mend(pod)
        self._told &= {pod.metadata.uid for pod in slipped}
        return len(slipped)

    async def _mend(self, pod: WaitingPod) -> None:
        meta = pod.metadata
        # Another pod of that name, or one changed meanwhile, is looked at anew the next time.
        guard = {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version}
        spec = {"tolerations": pod.spec.tolerations} if pod.spec.tolerations else {}
        patch = [guard, *mutations({"spec": spec})]
        try:
            await self._client.patch(PODS, meta.name, patch, meta.namespace, kind="json", view=None)
        except (Conflict, NotFound):
            return
        except Invalid as error:
            # The guard of a JSON patch that does not hold is answered as Invalid, too.
            if "testing" not in error.message:
                self._tell(pod, error)
            return
        except ApiError as error:
            self._tell(pod, error)
            return
        self._log.info("{pod} was created without asking the webhook; it has its toleration now", pod=str(meta.key))

    def _tell(self, pod: WaitingPod, error: ApiError) -> None:
        meta = pod.metadata
        if meta.uid in self._told:
            return
        self._told.add(meta.uid)
        self._log.warn(
            "{pod} slipped by the webhook and cannot be mended: {error}", pod=str(meta.key), error=str(error)
        )
        regarding = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        self._recorder.emit(regarding, "Warning", REASON, MESSAGE.format(why=error.message))
