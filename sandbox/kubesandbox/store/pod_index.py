"""Indexes pods by node and by controller, updated by each change. Pure."""

from __future__ import annotations

from collections.abc import Callable

from kubesandbox.kinds.kinds import PODS, Json, Key
from kubesandbox.store.state import Change, Store


class PodIndex:
    """Pods by node name and by the UID of their controller."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_node: dict[str, dict[Key, None]] = {}
        self._by_owner: dict[str, dict[Key, None]] = {}
        self._unsubscribe: Callable[[], None] = store.subscribe(PODS, self._changed)

    def on_node(self, name: str) -> list[Json]:
        return self._bodies(self._by_node.get(name, {}))

    def owned_by(self, uid: str) -> list[Json]:
        return self._bodies(self._by_owner.get(uid, {}))

    def nodes(self) -> list[str]:
        """Return the nodes that pods are bound to."""
        return [name for name, pods in self._by_node.items() if pods]

    def _bodies(self, keys: dict[Key, None]) -> list[Json]:
        found = (self._store.get(PODS, key) for key in keys)
        return [stored.object for stored in found if stored is not None]

    def _changed(self, change: Change) -> None:
        if change.old is not None:
            self._note(change.key, change.old.object, present=False)
        if not change.gone:
            self._note(change.key, change.new.object, present=True)

    def _note(self, key: Key, body: Json, *, present: bool) -> None:
        node = (body.get("spec") or {}).get("nodeName")
        for table, at in ((self._by_node, node), (self._by_owner, controller_of(body))):
            if not at:
                continue
            if present:
                table.setdefault(at, {})[key] = None
            else:
                table.get(at, {}).pop(key, None)


def controller_of(body: Json) -> str:
    """Return the UID of the owner that controls an object, or an empty text."""
    for each in body["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            return str(each["uid"])
    return ""


def is_ready(pod: Json) -> bool:
    """Return whether a pod's Ready condition holds."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def is_active(pod: Json) -> bool:
    """Return whether a pod is active: neither finished nor being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp")
