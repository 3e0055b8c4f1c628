"""Endpoint slices of services that select pods: one slice per service."""

from __future__ import annotations

from twisted.internet.interfaces import IReactorTime

from kubesandbox.controllers.reconcile import Reconciler
from kubesandbox.controllers.workloads import controlled_by
from kubesandbox.kinds.kinds import ENDPOINTSLICES, PODS, SERVICES, Json, Key
from kubesandbox.server.api import Api
from kubesandbox.server.requests import DeleteOptions
from kubesandbox.store.pod_index import is_active, is_ready
from kubesandbox.store.state import Change

_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_OURS = "endpointslice-controller.k8s.io"
_SERVICE = "kubernetes.io/service-name"


class EndpointSlices(Reconciler):
    """Maintains EndpointSlices with the addresses of the pods that a service selects; keys are services."""

    def __init__(self, api: Api, clock: IReactorTime) -> None:
        super().__init__("endpointslice-controller", api, clock)
        # Looking through the namespace for the slice of one service made many services quadratic.
        self._names: dict[Key, set[str]] = {}

    def startService(self) -> None:
        super().startService()
        self._names = {}
        self.watch(SERVICES)
        self.watch(PODS, self._selected)
        self.watch(ENDPOINTSLICES, self._slice_changed)

    def _slice_changed(self, change: Change) -> list[Key]:
        before = _service_of(change.old.object) if change.old is not None else None
        after = None if change.gone else _service_of(change.new.object)
        if before is not None and before != after:
            self._names.get(before, set()).discard(change.key.name)
            if not self._names.get(before):
                self._names.pop(before, None)
        if after is not None:
            self._names.setdefault(after, set()).add(change.key.name)
        return list(dict.fromkeys(key for key in (before, after) if key is not None))

    def _selected(self, change: Change) -> list[Key]:
        labels = dict(change.new.object["metadata"].get("labels") or {})
        before = (change.old.object["metadata"].get("labels") or {}) if change.old is not None else {}
        return [
            Key(change.key.namespace, stored.object["metadata"]["name"])
            for stored in self.store.items(SERVICES, change.key.namespace)
            if (selector := stored.object["spec"].get("selector"))
            and (selector.items() <= labels.items() or selector.items() <= before.items())
        ]

    async def reconcile(self, key: Key) -> float | None:
        service = self.store.get(SERVICES, key)
        present = self._slice(key)
        if service is None or not service.object["spec"].get("selector"):
            if present is not None:
                slice_key = Key(key.namespace, present["metadata"]["name"])
                await self.api.delete(self.caller, self.kind(ENDPOINTSLICES), slice_key, DeleteOptions())
            return None
        wanted = self._wanted(service.object)
        if present is None:
            metadata = {
                "generateName": f"{key.name}-",
                "labels": {
                    **(service.object["metadata"].get("labels") or {}),
                    _MANAGED_BY: _OURS,
                    _SERVICE: key.name,
                },
                "ownerReferences": [controlled_by(service.object, "v1")],
            }
            body = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, **wanted}
            await self.api.create(self.caller, self.kind(ENDPOINTSLICES), key.namespace, body)
        elif any(present.get(name) != value for name, value in wanted.items()):
            slice_key = Key(key.namespace, present["metadata"]["name"])
            await self.api.change(self.caller, self.kind(ENDPOINTSLICES), slice_key, lambda body: body | wanted)
        return None

    def _slice(self, key: Key) -> Json | None:
        names = self._names.get(key)
        found = self.store.get(ENDPOINTSLICES, Key(key.namespace, min(names))) if names else None
        return found.object if found is not None else None

    def _wanted(self, service: Json) -> Json:
        selector = service["spec"]["selector"]
        chosen = [
            stored.object
            for stored in self.store.items(PODS, service["metadata"]["namespace"])
            if selector.items() <= (stored.object["metadata"].get("labels") or {}).items()
            and (stored.object.get("status") or {}).get("podIP")
            and (stored.object.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]
        ports: list[Json] = []
        for each in service["spec"].get("ports") or ():
            target = each.get("targetPort", each["port"])
            number = target if isinstance(target, int) else _named_port(chosen, target)
            if number is not None:
                ports.append({"name": each.get("name", ""), "port": number, "protocol": each.get("protocol", "TCP")})
        return {"addressType": "IPv4", "endpoints": [_endpoint(pod) for pod in chosen], "ports": ports}


def _service_of(endpoint_slice: Json) -> Key | None:
    """Return the service whose slice it is, or None for a slice that somebody else maintains."""
    metadata = endpoint_slice["metadata"]
    labels = metadata.get("labels") or {}
    return Key(metadata["namespace"], labels.get(_SERVICE, "")) if labels.get(_MANAGED_BY) == _OURS else None


def _named_port(pods: list[Json], name: str) -> int | None:
    for pod in pods:
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                if port.get("name") == name:
                    return int(port["containerPort"])
    return None


def _endpoint(pod: Json) -> Json:
    metadata = pod["metadata"]
    ready, active = is_ready(pod), is_active(pod)
    return {
        "addresses": [pod["status"]["podIP"]],
        "conditions": {"ready": ready and active, "serving": ready, "terminating": not active},
        "nodeName": pod["spec"].get("nodeName"),
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
    }
