"""Adds the missing toleration to pods that were created without the webhook.

The webhook's failurePolicy is Ignore: a stopped daemon never blocks the creation of pods. Tolerations can be added to
an existing pod (Kubernetes: "Pod update and replacement"), a node affinity cannot; for a pod that lacks one, or already
runs on the wrong node, an event is recorded once.
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
    "replaces it), or create it again"
)
RUNS_LOCALLY: Final = (
    "the pod runs in this cluster although its namespace is to run in others only (podOffloadingStrategy Remote): it "
    "was created while liqod's admission webhook could not be asked, or before that was wanted; delete it, and its "
    "owner makes one that is offloaded"
)
SEARCH_EVERY: Final = 30.0
MAX_REPORTED: Final = 10_000
"""Pods on real nodes that are remembered; beyond that an event may be recorded a second time."""


def until_search(left: float) -> float:
    """Return the seconds until the next search; ``left``: those until everything that was missed is stored."""
    return left if left > 0 else SEARCH_EVERY


class Placement(View, frozen=True):
    """The fields of a pod's spec that decide where it may run."""

    tolerations: list[dict[str, Any]] = []
    affinity: dict[str, Any] | None = None
    node_name: str = ""
    runtime_class_name: str | None = None


class PlacedPod(Object, frozen=True):
    """A pod, by what decides on which node it runs."""

    spec: Placement = Placement()


class Backfill:
    """Searches for such pods; remembers recorded events as long as the pod exists."""

    _log = Logger()

    def __init__(self, client: Client, recorder: Recorder, policies: Policies) -> None:
        self._client = client
        self._recorder = recorder
        self._policies = policies
        self._reported: set[str] = set()
        self._reported_local: set[str] = set()

    async def search(self) -> int:
        """Patch the pending pods that were created without the webhook; returns how many there are."""
        pending = await self._client.list(PODS, view=PlacedPod, fields="spec.nodeName=,status.phase=Pending")
        missed = [pod for pod in pending.items if not pod.metadata.deleting and self._patch(pod)]
        if not missed:
            self._reported.clear()
            return 0
        namespaces = await self._client.list(NAMESPACES, view=Object, labels=f"{ENABLED_LABEL}=true")
        enabled = {namespace.metadata.name for namespace in namespaces.items}
        missed = [pod for pod in missed if pod.metadata.namespace in enabled]
        for pod in missed:
            if pod.metadata.uid not in self._reported:
                await self._add_toleration(pod)
        self._reported &= {pod.metadata.uid for pod in missed}
        return len(missed)

    async def search_local(self, namespaces: list[str]) -> int:
        """Record events for pods on real nodes though their namespaces want none here; returns their number."""
        found: set[str] = set()
        for namespace in namespaces:
            listing = await self._client.list(
                PODS, namespace, view=PlacedPod, fields="status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
            )
            for pod in listing.items:
                anywhere = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=""))
                # The scheduler placed a pod that has the affinity: it is where it may be.
                if pod.metadata.deleting or not _adds_affinity(self._patch(anywhere)):
                    continue
                found.add(pod.metadata.uid)
                if pod.metadata.uid not in self._reported_local:
                    self._report_local(pod)
        self._reported_local &= found
        return len(found)

    def _patch(self, pod: PlacedPod) -> list[dict[str, Any]]:
        spec = to_dict(pod.spec)
        try:
            return mutations({"spec": spec}, self._policies(pod.metadata.namespace))
        except TooManyTerms:
            return []

    async def _add_toleration(self, pod: PlacedPod) -> None:
        meta = pod.metadata
        # Another pod of that name is found by the next search.
        guard = {"op": "test", "path": "/metadata/uid", "value": meta.uid}
        patch = [guard, *self._patch(pod)]
        try:
            await self._client.patch(PODS, meta.name, patch, meta.namespace, kind="json", view=None)
        except (Conflict, NotFound):
            return
        except Invalid as error:
            # A test operation that fails, a path that no longer exists and a forbidden change are all 422: the change
            # is forbidden only if the pod is still the one that was read.
            if await self._is_unchanged(pod):
                self._report(pod, error)
            return
        except ApiError as error:
            self._report(pod, error)
            return
        self._log.info("{pod} was created without the webhook; its toleration was added", pod=str(meta.key))

    async def _is_unchanged(self, pod: PlacedPod) -> bool:
        try:
            now: Object = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, view=Object)
        except ApiError:
            return False
        return now.metadata.resource_version == pod.metadata.resource_version

    def _report(self, pod: PlacedPod, error: ApiError) -> None:
        self._reported.add(pod.metadata.uid)
        self._log.warn(
            "{pod} was created without the webhook and its toleration cannot be added: {error}",
            pod=str(pod.metadata.key),
            error=str(error),
        )
        self._record_event(pod, MESSAGE.format(why=error.message[:500]))

    def _report_local(self, pod: PlacedPod) -> None:
        if len(self._reported_local) >= MAX_REPORTED:
            self._reported_local.clear()
        self._reported_local.add(pod.metadata.uid)
        self._log.warn("{pod} was created without the webhook and runs in this cluster", pod=str(pod.metadata.key))
        self._record_event(pod, RUNS_LOCALLY)

    def _record_event(self, pod: PlacedPod, message: str) -> None:
        self._recorder.record_event(reference_to("v1", "Pod", pod.metadata), "Warning", REASON, message)


def _adds_affinity(patch: list[dict[str, Any]]) -> bool:
    return any(str(operation["path"]).startswith("/spec/affinity") for operation in patch)
