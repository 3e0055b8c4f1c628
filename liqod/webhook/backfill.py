"""Gives pods that were created while the webhook could not be asked the toleration that it would have given them.

The API server goes on without the webhook when that is down, by our own wish: a stopped daemon never blocks the
creation of pods. Tolerations may be added to a pod that exists (Kubernetes: "Pod update and replacement"), so nobody
has to create such a pod anew. A node affinity may not; a pod that lacks one, or runs already where it should not, is
told, once, by an event.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from twisted.logger import Logger

from liqod.kube.client import Client
from liqod.kube.errors import ApiError, Conflict, Invalid, NotFound
from liqod.kube.events import Recorder
from liqod.kube.resources import NAMESPACES, PODS
from liqod.model.names import ENABLED_LABEL
from liqod.model.objects.meta import Object, View, reference_to, to_dict
from liqod.webhook.placement import TooManyTerms, mutations
from liqod.webhook.review import Policies

REASON: Final = "OffloadingNotAdmitted"
MESSAGE: Final = (
    "the pod was created while liqod's admission webhook could not be asked, or before its namespace was offloaded as "
    "it is now, and what lets it onto virtual nodes could not be added afterwards ({why}); delete it (its owner "
    "creates it anew), or create it again"
)
AT_HOME: Final = (
    "the pod runs in this cluster although its namespace is to run in others only (podOffloadingStrategy Remote): it "
    "was created while liqod's admission webhook could not be asked, or before that was wanted; delete it, and its "
    "owner makes one that is offloaded"
)
MAX_TOLD: Final = 10_000
"""Pods that are remembered; beyond that some are told once more."""


class Placement(View, frozen=True):
    """The part of a pod's spec that matters here."""

    tolerations: list[dict[str, Any]] = []
    affinity: dict[str, Any] | None = None
    node_name: str = ""


class PlacedPod(Object, frozen=True):
    """A pod, by what decides on which node it runs."""

    spec: Placement = Placement()


class Slipped:
    """Looks for such pods; what was told is remembered as long as the pod is there."""

    _log = Logger()

    def __init__(self, client: Client, recorder: Recorder, policies: Policies) -> None:
        self._client = client
        self._recorder = recorder
        self._policies = policies
        self._told: set[str] = set()
        self._told_at_home: set[str] = set()

    async def look(self) -> int:
        """Mend the pods that slipped through since the last time; returns how many there were."""
        waiting = await self._client.list(PODS, view=PlacedPod, fields="spec.nodeName=,status.phase=Pending")
        slipped = [pod for pod in waiting.items if not pod.metadata.deleting and self._patch(pod)]
        if not slipped:
            self._told.clear()
            return 0
        namespaces = await self._client.list(NAMESPACES, view=Object, labels=f"{ENABLED_LABEL}=true")
        enabled = {namespace.metadata.name for namespace in namespaces.items}
        slipped = [pod for pod in slipped if pod.metadata.namespace in enabled]
        for pod in slipped:
            if pod.metadata.uid not in self._told:
                await self._mend(pod)
        self._told &= {pod.metadata.uid for pod in slipped}
        return len(slipped)

    async def look_at_home(self, namespaces: list[str]) -> int:
        """Tell the pods that run on real nodes though their namespaces want none here; returns how many there are."""
        found = 0
        for namespace in namespaces:
            listing = await self._client.list(
                PODS, namespace, view=PlacedPod, fields="status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
            )
            for pod in listing.items:
                anywhere = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
                # One that has the affinity, or tolerates virtual nodes by our doing, is where the scheduler put it.
                if pod.metadata.deleting or not _names_affinity(self._patch(anywhere)):
                    continue
                found += 1
                if pod.metadata.uid not in self._told_at_home:
                    self._tell_at_home(pod)
        return found

    def _patch(self, pod: PlacedPod) -> list[dict[str, Any]]:
        spec = to_dict(pod.spec)
        try:
            return mutations({"spec": spec}, self._policies(pod.metadata.namespace))
        except TooManyTerms:
            return []

    async def _mend(self, pod: PlacedPod) -> None:
        meta = pod.metadata
        # Another pod of that name is looked at anew the next time.
        guard = {"op": "test", "path": "/metadata/uid", "value": meta.uid}
        patch = [guard, *self._patch(pod)]
        try:
            await self._client.patch(PODS, meta.name, patch, meta.namespace, kind="json", view=None)
        except (Conflict, NotFound):
            return
        except Invalid as error:
            # A guard that does not hold, and a path that is no longer there, are answered in the same words as what
            # may not be: it is meant for good only if the pod is still the one that was judged.
            if await self._is_unchanged(pod):
                self._tell(pod, error)
            return
        except ApiError as error:
            self._tell(pod, error)
            return
        self._log.info("{pod} was created without asking the webhook; it has its toleration now", pod=str(meta.key))

    async def _is_unchanged(self, pod: PlacedPod) -> bool:
        try:
            now: Object = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, view=Object)
        except ApiError:
            return False
        return now.metadata.resource_version == pod.metadata.resource_version

    def _tell(self, pod: PlacedPod, error: ApiError) -> None:
        self._told.add(pod.metadata.uid)
        self._log.warn(
            "{pod} slipped by the webhook and cannot be mended: {error}", pod=str(pod.metadata.key), error=str(error)
        )
        self._emit(pod, MESSAGE.format(why=error.message[:500]))

    def _tell_at_home(self, pod: PlacedPod) -> None:
        if len(self._told_at_home) >= MAX_TOLD:
            self._told_at_home.clear()
        self._told_at_home.add(pod.metadata.uid)
        self._log.warn("{pod} slipped by the webhook and runs in this cluster", pod=str(pod.metadata.key))
        self._emit(pod, AT_HOME)

    def _emit(self, pod: PlacedPod, message: str) -> None:
        self._recorder.emit(reference_to("v1", "Pod", pod.metadata), "Warning", REASON, message)


def _names_affinity(patch: list[dict[str, Any]]) -> bool:
    return any(str(operation["path"]).startswith("/spec/affinity") for operation in patch)
