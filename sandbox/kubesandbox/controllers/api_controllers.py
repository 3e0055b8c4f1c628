"""Controllers of the API itself: namespaces, default accounts, custom resource definitions, deleted owners."""

from __future__ import annotations

from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime

from kubesandbox.controllers.reconcile import Reconciler
from kubesandbox.kinds.kinds import CONFIGMAPS, CRDS, NAMESPACES, SERVICEACCOUNTS, GroupResource, Json, Key, Kind
from kubesandbox.server.api import Api
from kubesandbox.server.requests import DeleteOptions
from kubesandbox.store.state import Change, Stored

ROOT_CA: Final = "kube-root-ca.crt"
_CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"


class Namespaces(Reconciler):
    """Creates the default account and CA bundle of namespaces; empties and then finalizes terminating namespaces."""

    def __init__(self, api: Api, clock: IReactorTime, ca_pem: str) -> None:
        super().__init__("namespace-controller", api, clock)
        self._ca_pem = ca_pem

    def startService(self) -> None:
        super().startService()
        self.watch(NAMESPACES, self._provided)
        for resource in (SERVICEACCOUNTS, CONFIGMAPS):
            self._ends.append(self.store.subscribe(resource, self._missed))

    def _provided(self, change: Change) -> list[Key]:
        if not change.gone and not change.new.object["metadata"].get("deletionTimestamp"):
            # At once: a pod may be created in the new namespace in the same turn, and needs its service account.
            self._provide(change.key.name)
        return [change.key]

    def _missed(self, change: Change) -> None:
        if change.gone and change.key.name in ("default", ROOT_CA):
            self.touch(Key("", change.key.namespace))

    def _provide(self, namespace: str) -> None:
        wanted: dict[GroupResource, Json] = {
            SERVICEACCOUNTS: {"metadata": {"name": "default"}},
            CONFIGMAPS: {"metadata": {"name": ROOT_CA}, "data": {"ca.crt": self._ca_pem}},
        }
        for resource, body in wanted.items():
            key = Key(namespace, body["metadata"]["name"])
            if self.store.get(resource, key) is None:
                self.api.put_system(self.kind(resource), key, body)

    async def reconcile(self, key: Key) -> float | None:
        found = self.store.get(NAMESPACES, key)
        if found is None:
            return None
        if not found.object["metadata"].get("deletionTimestamp"):
            self._provide(key.name)
            return None
        left = await self._emptied(key.name)
        if left:
            return 1.0
        spec = found.object.get("spec") or {}
        finalizers = [each for each in spec.get("finalizers") or () if each != "kubernetes"]
        body = {"metadata": {"name": key.name}, "spec": {"finalizers": finalizers}}
        await self.api.update(self.caller, self.kind(NAMESPACES), key, body, "finalize")
        return None

    async def _emptied(self, namespace: str) -> int:
        left = 0
        for resource in self.store.resources():
            kind = self.api.catalog.stored(resource)
            if kind is None or not kind.namespaced:
                continue
            for stored in self.store.items(resource, namespace):
                key = Key(namespace, stored.object["metadata"]["name"])
                _, gone = await self.api.delete(self.caller, kind, key, DeleteOptions())
                left += not gone
        return left


class Definitions(Reconciler):
    """Serves the kinds of CRDs, and deletes the objects of deleted CRDs."""

    def __init__(self, api: Api, clock: IReactorTime) -> None:
        super().__init__("crd-controller", api, clock)

    def startService(self) -> None:
        super().startService()
        self.watch(CRDS)

    async def reconcile(self, key: Key) -> float | None:
        found = self.store.get(CRDS, key)
        if found is None:
            return None
        body = found.object
        resource = GroupResource(body["spec"]["group"], body["spec"]["names"]["plural"])
        if body["metadata"].get("deletionTimestamp"):
            return await self._removed(key, resource, body)
        self.api.catalog.define(body)
        if _CLEANUP not in (body["metadata"].get("finalizers") or ()):
            await self.api.change(self.caller, self.kind(CRDS), key, _with_finalizer)
        status = _accepted(body, self.api.now())
        if status != body.get("status"):
            await self.api.change(
                self.caller, self.kind(CRDS), key, lambda current: current | {"status": status}, "status"
            )
        return None

    async def _removed(self, key: Key, resource: GroupResource, body: Json) -> float | None:
        kind = self.api.catalog.stored(resource)
        if kind is not None:
            for stored in self.store.items(resource):
                metadata = stored.object["metadata"]
                instance = Key(metadata.get("namespace", ""), metadata["name"])
                await self.api.delete(self.caller, kind, instance, DeleteOptions())
            if self.store.count(resource):
                return 0.5
        self.api.catalog.forget(body)
        await self.api.change(self.caller, self.kind(CRDS), key, _without_finalizer)
        return None


def _with_finalizer(body: Json) -> Json:
    finalizers = [*(body["metadata"].get("finalizers") or ()), _CLEANUP]
    return body | {"metadata": body["metadata"] | {"finalizers": finalizers}}


def _without_finalizer(body: Json) -> Json:
    finalizers = [each for each in body["metadata"].get("finalizers") or () if each != _CLEANUP]
    return body | {"metadata": body["metadata"] | {"finalizers": finalizers}}


def _accepted(body: Json, now: str) -> Json:
    spec = body["spec"]
    old = body.get("status") or {}
    conditions = old.get("conditions") or [
        {
            "type": "NamesAccepted",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "NoConflicts",
            "message": "no conflicts found",
            "observedGeneration": body["metadata"].get("generation", 1),
        },
        {
            "type": "Established",
            "status": "True",
            "lastTransitionTime": now,
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
            "observedGeneration": body["metadata"].get("generation", 1),
        },
    ]
    stored = [each["name"] for each in spec["versions"] if each.get("storage")]
    kept = [each for each in old.get("storedVersions") or () if each not in stored]
    return {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": [*kept, *stored]}


@attrs.frozen
class Reference:
    """A reference to an owner, which is in the dependent's namespace, or in none."""

    uid: str
    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, body: Json) -> Reference:
        """Read an entry of ``ownerReferences``."""
        return cls(body["uid"], body["apiVersion"].rpartition("/")[0], body["kind"], body["name"])


class GarbageCollector(Reconciler):
    """Deletes objects without remaining owners; handles foreground and orphan deletion of owners.

    Keys are UIDs of owners (``Key("", uid)``).
    """

    def __init__(self, api: Api, clock: IReactorTime) -> None:
        super().__init__("generic-garbage-collector", api, clock)
        self._dependents: dict[str, set[tuple[GroupResource, Key]]] = {}
        self._owners: dict[tuple[GroupResource, Key], tuple[Reference, ...]] = {}
        self._doubted: set[str] = set()
        self._alive: dict[str, tuple[GroupResource, Key]] = {}
        self._watched: set[GroupResource] = set()

    def startService(self) -> None:
        super().startService()
        self._follow_all()
        self._ends.append(self.store.subscribe(CRDS, lambda _: self._follow_all()))

    def _follow_all(self) -> None:
        for kind in self.api.catalog.kinds():
            resource = kind.resource
            if resource in self._watched or "list" not in kind.verbs or kind.plural == "events":
                continue
            self._watched.add(resource)

            def changed(change: Change, resource: GroupResource = resource) -> None:
                self._changed(resource, change)

            self._ends.append(self.store.subscribe(resource, changed))
            for stored in self.store.items(resource):
                metadata = stored.object["metadata"]
                key = Key(metadata.get("namespace", ""), metadata["name"])
                self._changed(resource, Change(stored.version, key, None, stored))

    def _changed(self, resource: GroupResource, change: Change) -> None:
        at = (resource, change.key)
        metadata = change.new.object["metadata"]
        uid = metadata["uid"]
        if change.gone:
            self._alive.pop(uid, None)
            self._note(at, ())
            if self._dependents.get(uid):
                self.touch(Key("", uid))
            return
        if change.old is None:
            self._alive[uid] = at
        references = metadata.get("ownerReferences")
        owners = tuple(Reference.of(each) for each in references or ())
        if owners != self._owners.get(at, ()):
            self._note(at, owners)
            for owner in owners:
                if not self._is_present(owner, change.key):
                    # The owner may be created a moment later: check again, like the absent-owner check of
                    # kube-controller-manager.
                    self._doubted.add(owner.uid)
                    self.touch_after(Key("", owner.uid), 0.5)
        if metadata.get("deletionTimestamp") and metadata.get("finalizers"):
            self.touch(Key("", uid))

    def _is_present(self, owner: Reference, dependent: Key) -> bool:
        """Return whether a dependent's owner exists under this UID, kind and name, where the dependent can have it.

        Source: Kubernetes, pkg/controller/garbagecollector: graph_builder.go, isDangling in garbagecollector.go.
        """
        if owner.uid not in self._alive:
            return False
        resource, key = self._alive[owner.uid]
        kind = self.api.catalog.stored(resource)
        known = (resource.group, kind.kind if kind is not None else owner.kind, key.name)
        return known == (owner.group, owner.kind, owner.name) and (
            not dependent.namespace or key.namespace in ("", dependent.namespace)
        )

    def _note(self, at: tuple[GroupResource, Key], owners: tuple[Reference, ...]) -> None:
        uids = {each.uid for each in owners}
        for owner in self._owners.pop(at, ()):
            group = self._dependents.get(owner.uid, set())
            group.discard(at)
            if not group:
                self._dependents.pop(owner.uid, None)
            if owner.uid in self._alive and owner.uid not in uids:
                self.touch(Key("", owner.uid))
        if owners:
            self._owners[at] = owners
        for uid in uids:
            self._dependents.setdefault(uid, set()).add(at)

    async def reconcile(self, key: Key) -> float | None:
        uid = key.name
        at = self._alive.get(uid)
        owner = self.store.get(*at) if at is not None else None
        if owner is None or uid in self._doubted:
            await self._collect(uid)
            self._doubted.discard(uid)
        return await self._deleting(at, owner) if at is not None and owner is not None else None

    async def _collect(self, uid: str) -> None:
        """Delete the dependents of an owner that is none, or take the reference from those that have another one."""
        for resource, dependent in sorted(self._dependents.get(uid, ())):
            stored = self.store.get(resource, dependent)
            kind = self.api.catalog.stored(resource)
            if stored is None or kind is None:
                continue
            present = {
                each.uid for each in self._owners.get((resource, dependent), ()) if self._is_present(each, dependent)
            }
            if uid in present:
                continue
            if present:
                await self.api.change(self.caller, kind, dependent, lambda body: _disowned(body, uid))
            elif not (metadata := stored.object["metadata"]).get("deletionTimestamp"):
                # A terminating object is skipped: a second DELETE could shorten its grace period.
                # Source: Kubernetes, pkg/controller/garbagecollector, attemptToDeleteItem.
                await self.api.delete(self.caller, kind, dependent, DeleteOptions(uid=metadata["uid"]))

    async def _deleting(self, at: tuple[GroupResource, Key], owner: Stored) -> float | None:
        metadata = owner.object["metadata"]
        finalizers = metadata.get("finalizers") or ()
        kind = self.api.catalog.stored(at[0])
        if kind is None or not metadata.get("deletionTimestamp"):
            return None
        dependents = sorted(self._dependents.get(metadata["uid"], ()))
        if "orphan" in finalizers:
            for resource, dependent in dependents:
                dependent_kind = self.api.catalog.stored(resource)
                if dependent_kind is not None:
                    await self.api.change(
                        self.caller, dependent_kind, dependent, lambda body: _disowned(body, metadata["uid"])
                    )
            await self._release(kind, at[1], "orphan")
        elif "foregroundDeletion" in finalizers:
            blocking = False
            for resource, dependent in dependents:
                dependent_kind = self.api.catalog.stored(resource)
                if dependent_kind is not None:
                    blocking = True
                    options = DeleteOptions(propagation="Foreground")
                    await self.api.delete(self.caller, dependent_kind, dependent, options)
            if not blocking:
                await self._release(kind, at[1], "foregroundDeletion")
            elif self._dependents.get(metadata["uid"]):
                return 1.0
        return None

    async def _release(self, kind: Kind, key: Key, finalizer: str) -> None:
        def released(body: Json) -> Json:
            left = [each for each in body["metadata"].get("finalizers") or () if each != finalizer]
            return body | {"metadata": body["metadata"] | {"finalizers": left}}

        await self.api.change(self.caller, kind, key, released)


def _disowned(body: Json, uid: str) -> Json:
    left: list[Any] = [each for each in body["metadata"].get("ownerReferences") or () if each["uid"] != uid]
    return body | {"metadata": body["metadata"] | {"ownerReferences": left}}
