"""Deployments and replica sets: small controllers that keep the number of pods."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any, Final

import msgspec
from twisted.internet.interfaces import IReactorTime

from kubesandbox.controllers.reconcile import Reconciler
from kubesandbox.controllers.recorder import Recorder
from kubesandbox.kinds.kinds import DEPLOYMENTS, PODS, REPLICASETS, Json, Key
from kubesandbox.kinds.statuses import ApiStatus
from kubesandbox.server.api import Api
from kubesandbox.server.requests import DeleteOptions
from kubesandbox.store.pod_index import PodIndex, controller_of, is_active, is_ready
from kubesandbox.store.state import Change

HASH_LABEL: Final = "pod-template-hash"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
BURST: Final = 20
"""Pods that one replica set creates or deletes per turn."""


def template_hash(template: Json) -> str:
    """Return the text that names a pod template in replica sets' and pods' names."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="sorted")).digest()
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:10])


def controlled_by(body: Json, api_version: str) -> Json:
    """Return the owner reference to a controller."""
    return {
        "apiVersion": api_version,
        "kind": body["kind"],
        "name": body["metadata"]["name"],
        "uid": body["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _owner_key(change: Change, kind: str) -> list[Key]:
    bodies = [change.new.object, *([change.old.object] if change.old is not None else [])]
    return [
        Key(change.key.namespace, owner["name"])
        for body in bodies
        for owner in body["metadata"].get("ownerReferences") or ()
        if owner.get("controller") and owner.get("kind") == kind
    ]


class ReplicaSets(Reconciler):
    """Creates missing pods of ReplicaSets and deletes surplus ones."""

    def __init__(self, api: Api, clock: IReactorTime, index: PodIndex) -> None:
        super().__init__("replicaset-controller", api, clock)
        self._index = index
        self._recorder = Recorder(api, "replicaset-controller")

    def startService(self) -> None:
        super().startService()
        self.watch(REPLICASETS)
        self.watch(PODS, lambda change: _owner_key(change, "ReplicaSet"))

    async def reconcile(self, key: Key) -> float | None:
        found = self.store.get(REPLICASETS, key)
        if found is None:
            return None
        body = found.object
        pods = self._index.owned_by(body["metadata"]["uid"])
        active = [pod for pod in pods if is_active(pod)]
        wanted = int(body["spec"].get("replicas", 1))
        again: float | None = None
        if not body["metadata"].get("deletionTimestamp"):
            missing = wanted - len(active)
            if missing > 0:
                await self._create(key, body, min(missing, BURST))
            elif missing < 0:
                await self._delete(body, active, min(-missing, BURST))
            again = 0.0 if abs(missing) > BURST else None
        await self._report(key)
        return again

    async def _create(self, key: Key, body: Json, count: int) -> None:
        template = body["spec"]["template"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **(template.get("metadata") or {}),
                "generateName": f"{key.name}-",
                "ownerReferences": [controlled_by(body, "apps/v1")],
            },
            "spec": template["spec"],
        }
        for _ in range(count):
            try:
                created = await self.api.create(self.caller, self.kind(PODS), key.namespace, pod)
            except ApiStatus as status:
                self._recorder.emit(body, "Warning", "FailedCreate", f"Error creating: {status.message}")
                raise
            self._recorder.emit(
                body, "Normal", "SuccessfulCreate", f"Created pod: {created.object['metadata']['name']}"
            )

    async def _delete(self, body: Json, active: list[Json], count: int) -> None:
        def worth(pod: Json) -> tuple[bool, bool, str]:
            return bool(pod["spec"].get("nodeName")), is_ready(pod), pod["metadata"]["creationTimestamp"]

        for pod in sorted(active, key=worth)[:count]:
            name = pod["metadata"]["name"]
            pod_key = Key(pod["metadata"]["namespace"], name)
            await self.api.delete(self.caller, self.kind(PODS), pod_key, DeleteOptions(uid=pod["metadata"]["uid"]))
            self._recorder.emit(body, "Normal", "SuccessfulDelete", f"Deleted pod: {name}")

    async def _report(self, key: Key) -> None:
        found = self.store.get(REPLICASETS, key)
        if found is None:
            return
        body = found.object
        active = [pod for pod in self._index.owned_by(body["metadata"]["uid"]) if is_active(pod)]
        ready = sum(is_ready(pod) for pod in active)
        status: Json = {
            "replicas": len(active),
            "fullyLabeledReplicas": len(active),
            "observedGeneration": body["metadata"].get("generation", 1),
        }
        if ready:
            status |= {"readyReplicas": ready, "availableReplicas": ready}
        if status != body.get("status"):
            await self.api.change(
                self.caller, self.kind(REPLICASETS), key, lambda current: current | {"status": status}, "status"
            )


class Deployments(Reconciler):
    """Keeps one replica set per template, moves the replicas to that of the current one, reports."""

    def __init__(self, api: Api, clock: IReactorTime) -> None:
        super().__init__("deployment-controller", api, clock)
        self._recorder = Recorder(api, "deployment-controller")
        self._sets: dict[str, dict[Key, None]] = {}

    def startService(self) -> None:
        super().startService()
        self.watch(REPLICASETS, self._set_changed)
        self.watch(DEPLOYMENTS)

    def _set_changed(self, change: Change) -> list[Key]:
        owner = controller_of(change.new.object)
        if owner and change.gone:
            self._sets.get(owner, {}).pop(change.key, None)
        elif owner:
            self._sets.setdefault(owner, {})[change.key] = None
        return _owner_key(change, "Deployment")

    async def reconcile(self, key: Key) -> float | None:
        found = self.store.get(DEPLOYMENTS, key)
        if found is None:
            return None
        body = found.object
        if body["metadata"].get("deletionTimestamp"):
            return None
        name = f"{key.name}-{template_hash(body['spec']['template'])}"
        sets = self._owned(body)
        current = next((each for each in sets if each["metadata"]["name"] == name), None)
        if current is None:
            await self._create(key, body, name, sets)
        else:
            await self._balance(key, body, current, [each for each in sets if each is not current])
        await self._report(key, name)
        return None

    def _owned(self, body: Json) -> list[Json]:
        keys = self._sets.get(body["metadata"]["uid"], {})
        found = (self.store.get(REPLICASETS, each) for each in keys)
        return [stored.object for stored in found if stored is not None]

    async def _create(self, key: Key, body: Json, name: str, sets: list[Json]) -> None:
        spec = body["spec"]
        if (spec.get("strategy") or {}).get("type") == "Recreate" and await self._scale_all(sets, 0):
            return
        mark = {HASH_LABEL: name.rpartition("-")[2]}
        template = spec["template"]
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **mark}
        selector = {**spec["selector"], "matchLabels": {**(spec["selector"].get("matchLabels") or {}), **mark}}
        revision = 1 + max((_revision(each) for each in sets), default=0)
        replicas = spec.get("replicas", 1)
        if sets and any(each["spec"].get("replicas") for each in sets):
            replicas = min(replicas, max(1, _surge(spec)))
        replica_set = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": str(revision)},
                "ownerReferences": [controlled_by(body, "apps/v1")],
            },
            "spec": {
                "replicas": replicas,
                "selector": selector,
                "template": {**template, "metadata": {**metadata, "labels": labels}},
            },
        }
        await self.api.create(self.caller, self.kind(REPLICASETS), key.namespace, replica_set)
        self._recorder.emit(body, "Normal", "ScalingReplicaSet", f"Scaled up replica set {name} from 0 to {replicas}")

    async def _balance(self, key: Key, body: Json, current: Json, others: list[Json]) -> None:
        wanted = int(body["spec"].get("replicas", 1))
        status = current.get("status") or {}
        available = status.get("availableReplicas", 0)
        old = sum(int(each["spec"].get("replicas", 0)) for each in others)
        size = wanted if not old else min(wanted, available + max(1, _surge(body["spec"])))
        await self._scale(current, size, body)
        if old:
            await self._scale_all(others, max(0, wanted - available), body)

    async def _scale_all(self, sets: list[Json], total: int, about: Json | None = None) -> int:
        left = total
        pods = 0
        for each in sets:
            share = min(left, int(each["spec"].get("replicas", 0)))
            left -= share
            pods += int((each.get("status") or {}).get("replicas", 0))
            await self._scale(each, share, about)
        return pods

    async def _scale(self, replica_set: Json, replicas: int, about: Json | None) -> None:
        before = replica_set["spec"].get("replicas")
        if before == replicas:
            return
        metadata = replica_set["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        await self.api.change(
            self.caller,
            self.kind(REPLICASETS),
            key,
            lambda current: current | {"spec": current["spec"] | {"replicas": replicas}},
        )
        if about is not None:
            direction = "up" if replicas > (before or 0) else "down"
            text = f"Scaled {direction} replica set {key.name} from {before} to {replicas}"
            self._recorder.emit(about, "Normal", "ScalingReplicaSet", text)

    async def _report(self, key: Key, current_name: str) -> None:
        found = self.store.get(DEPLOYMENTS, key)
        if found is None:
            return
        body = found.object
        sets = self._owned(body)
        counts = {field: sum((each.get("status") or {}).get(field, 0) for each in sets) for field in _COUNTS}
        current = next((each for each in sets if each["metadata"]["name"] == current_name), None)
        updated = ((current or {}).get("status") or {}).get("replicas", 0)
        wanted = int(body["spec"].get("replicas", 1))
        status: Json = {name: count for name, count in counts.items() if count}
        if updated:
            status["updatedReplicas"] = updated
        if wanted > counts["availableReplicas"]:
            status["unavailableReplicas"] = wanted - counts["availableReplicas"]
        status["observedGeneration"] = body["metadata"].get("generation", 1)
        complete = updated == wanted == counts["availableReplicas"] == counts["replicas"]
        status["conditions"] = _conditions(
            body, counts["availableReplicas"] >= wanted, complete, current_name, self.api.now()
        )
        if status != body.get("status"):
            revision = str(_revision(current)) if current is not None else ""

            def reported(body: Json) -> Json:
                return body | {"status": status}

            await self.api.change(self.caller, self.kind(DEPLOYMENTS), key, reported, "status")
            await self._annotate(key, revision)

    async def _annotate(self, key: Key, revision: str) -> None:
        name = "deployment.kubernetes.io/revision"

        def annotated(body: Json) -> Json:
            annotations = {**(body["metadata"].get("annotations") or {}), name: revision}
            return body | {"metadata": body["metadata"] | {"annotations": annotations}}

        found = self.store.get(DEPLOYMENTS, key)
        if revision and found is not None and (found.object["metadata"].get("annotations") or {}).get(name) != revision:
            await self.api.change(self.caller, self.kind(DEPLOYMENTS), key, annotated)


_COUNTS: Final = ("replicas", "readyReplicas", "availableReplicas")


def _revision(replica_set: Json) -> int:
    text = (replica_set["metadata"].get("annotations") or {}).get("deployment.kubernetes.io/revision", "0")
    return int(text) if text.isdigit() else 0


def _surge(spec: Json) -> int:
    value: Any = ((spec.get("strategy") or {}).get("rollingUpdate") or {}).get("maxSurge", "25%")
    if isinstance(value, int):
        return value
    share = Fraction(str(value).rstrip("%") or "0") / 100
    return -int(-share * int(spec.get("replicas", 1)) // 1)


def _conditions(body: Json, available: bool, complete: bool, current: str, now: str) -> list[Json]:
    old = {each["type"]: each for each in (body.get("status") or {}).get("conditions") or ()}
    wanted = (
        (
            ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
            if available
            else ("Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        ),
        (
            ("Progressing", "True", "NewReplicaSetAvailable", f'ReplicaSet "{current}" has successfully progressed.')
            if complete
            else ("Progressing", "True", "ReplicaSetUpdated", f'ReplicaSet "{current}" is progressing.')
        ),
    )
    result = []
    for kind, status, reason, message in wanted:
        before = old.get(kind, {})
        same = before.get("status") == status
        unchanged = same and before.get("reason") == reason
        result.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": before["lastTransitionTime"] if same else now,
                "lastUpdateTime": before["lastUpdateTime"] if unchanged else now,
            }
        )
    return result
