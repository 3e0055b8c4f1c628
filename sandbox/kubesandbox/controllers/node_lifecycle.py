"""Node lifecycle: marks nodes with a stale lease unreachable, sets taints from conditions, evicts pods by taints."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall

from kubesandbox.controllers.placement import tolerates
from kubesandbox.controllers.reconcile import Reconciler
from kubesandbox.controllers.recorder import Recorder
from kubesandbox.kinds.kinds import LEASE_NAMESPACE, LEASES, NODES, PODS, Json, Key
from kubesandbox.server.api import Api
from kubesandbox.server.requests import DeleteOptions
from kubesandbox.store.pod_index import PodIndex, is_ready
from kubesandbox.store.state import Change

GRACE: Final = 50.0
"""Seconds without a renewed lease after which a node counts as unreachable (``--node-monitor-grace-period``)."""
STARTUP_GRACE: Final = 60.0
MONITOR: Final = 5.0
ORPHAN_QUARANTINE: Final = 40.0
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_PRESSURES: Final = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
_OURS: Final = frozenset({NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURES.values()})


def ready_status(node: Json) -> str:
    """Return True, False, Unknown, or an empty text if the node never reported Ready."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((str(each.get("status")) for each in conditions if each.get("type") == "Ready"), "")


def wanted_taints(node: Json, now: str) -> list[Json]:
    """Return the desired taints of a node: its own, and those derived from its conditions."""
    spec, status = node.get("spec") or {}, node.get("status") or {}
    present: list[Json] = spec.get("taints") or []
    ready = ready_status(node)
    due: list[tuple[str, str]] = []
    if ready == "False":
        due += [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
    elif ready == "Unknown":
        due += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
    due += [
        (taint, "NoSchedule")
        for kind, taint in _PRESSURES.items()
        if any(each.get("type") == kind and each.get("status") == "True" for each in status.get("conditions") or ())
    ]
    if spec.get("unschedulable"):
        due.append((UNSCHEDULABLE, "NoSchedule"))
    kept = [each for each in present if each.get("key") not in _OURS or (each["key"], each.get("effect")) in due]
    known = {(each.get("key"), each.get("effect")) for each in kept}
    added = [{"key": key, "effect": effect, "timeAdded": now} for key, effect in due if (key, effect) not in known]
    return [*kept, *added]


class NodeLifecycle(Reconciler):
    """Watches leases and conditions; keys are nodes, and pods that were just bound to a tainted one."""

    def __init__(self, api: Api, clock: IReactorTime, index: PodIndex) -> None:
        super().__init__("node-controller", api, clock)
        self._index = index
        self._recorder = Recorder(api, "node-controller")
        self._evictions = Recorder(api, "taint-eviction-controller")
        self._monitor = LoopingCall(self._look)
        self._monitor.clock = clock
        self._heartbeats: dict[str, tuple[object, float]] = {}
        self._absent: dict[str, float] = {}

    def startService(self) -> None:
        super().startService()
        self.watch(NODES)
        self.watch(PODS, self._pod_bound)
        self._monitor.start(MONITOR, now=False)

    def stopService(self) -> None:
        super().stopService()
        if self._monitor.running:
            self._monitor.stop()

    def _pod_bound(self, change: Change) -> list[Key]:
        name = (change.new.object.get("spec") or {}).get("nodeName")
        before = ((change.old.object.get("spec") or {}).get("nodeName")) if change.old is not None else None
        if change.gone or not name or name == before:
            return []
        node = self.store.get(NODES, Key("", name))
        tainted = node is not None and any(
            each.get("effect") == "NoExecute" for each in (node.object.get("spec") or {}).get("taints") or ()
        )
        return [change.key] if tainted else []

    def _look(self) -> None:
        for stored in self.store.items(NODES):
            self.touch(Key("", stored.object["metadata"]["name"]))
        for name in self._index.nodes():
            if self.store.get(NODES, Key("", name)) is None:
                self.touch(Key("", name))

    async def reconcile(self, key: Key) -> float | None:
        if key.namespace:
            pod = self.store.get(PODS, key)
            node_of = self.store.get(NODES, Key("", (pod.object["spec"].get("nodeName") or ""))) if pod else None
            if pod is None or node_of is None:
                return None
            return await self._evict([pod.object], node_of.object["spec"].get("taints") or [])
        found = self.store.get(NODES, key)
        if found is None:
            self._heartbeats.pop(key.name, None)
            return await self._gone(key.name)
        self._absent.pop(key.name, None)
        node = found.object
        silent = self._silence(node)
        patience = GRACE if ready_status(node) else STARTUP_GRACE
        if silent > patience and ready_status(node) != "Unknown":
            await self._lost(key, node)
            return None
        taints = wanted_taints(node, self.api.now())
        if taints != ((node.get("spec") or {}).get("taints") or []):
            await self.api.change(self.caller, self.kind(NODES), key, lambda body: _tainted(body, taints))
            return None
        if ready_status(node) in ("False", "Unknown"):
            await self._pods_not_ready(key.name)
        return await self._evict(self._index.on_node(key.name), taints)

    def _silence(self, node: Json) -> float:
        """Return for how long a node sent no heartbeat: neither its lease nor its conditions changed."""
        name = node["metadata"]["name"]
        lease = self.store.get(LEASES, Key(LEASE_NAMESPACE, name))
        heartbeat = [each.get("lastHeartbeatTime") for each in (node.get("status") or {}).get("conditions") or ()]
        mark = (lease.object["spec"].get("renewTime") if lease is not None else None, heartbeat)
        now = self.clock.seconds()
        if name not in self._heartbeats or self._heartbeats[name][0] != mark:
            self._heartbeats[name] = (mark, now)
        return now - self._heartbeats[name][1]

    async def _lost(self, key: Key, node: Json) -> None:
        now = self.api.now()
        old = (node.get("status") or {}).get("conditions") or []
        kinds = [each["type"] for each in old] or ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]
        if "Ready" not in kinds:
            kinds.append("Ready")
        never = not old
        conditions = []
        for kind in kinds:
            before: Json = next((each for each in old if each["type"] == kind), {})
            conditions.append(
                {
                    **before,
                    "type": kind,
                    "status": "Unknown",
                    "reason": "NodeStatusNeverUpdated" if never else "NodeStatusUnknown",
                    "message": "Kubelet never posted node status." if never else "Kubelet stopped posting node status.",
                    "lastTransitionTime": now,
                }
            )

        def unknown(body: Json) -> Json:
            return body | {"status": {**(body.get("status") or {}), "conditions": conditions}}

        await self.api.change(self.caller, self.kind(NODES), key, unknown, "status")
        heartbeat = [each.get("lastHeartbeatTime") for each in conditions]
        mark = self._heartbeats[key.name]
        self._heartbeats[key.name] = ((mark[0][0] if isinstance(mark[0], tuple) else None, heartbeat), mark[1])
        self._recorder.emit(node, "Normal", "NodeNotReady", f"Node {key.name} status is now: NodeNotReady")

    async def _pods_not_ready(self, node: str) -> None:
        for pod in self._index.on_node(node):
            if not is_ready(pod):
                continue
            now = self.api.now()
            conditions = [
                each | {"status": "False", "lastTransitionTime": now} if each["type"] == "Ready" else each
                for each in pod["status"]["conditions"]
            ]
            key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])

            def marked(body: Json, conditions: list[Any] = conditions) -> Json:
                return body | {"status": {**body["status"], "conditions": conditions}}

            await self.api.change(self.caller, self.kind(PODS), key, marked, "status")

    async def _evict(self, pods: Iterable[Json], taints: list[Json]) -> float | None:
        """Delete the pods that do not tolerate these taints any more; return when to look at the others again."""
        executing = [each for each in taints if each.get("effect") == "NoExecute"]
        soonest: float | None = None
        if not executing:
            return None
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp"):
                continue
            left = self._patience(pod, executing)
            if left is None:
                continue
            if left > 0:
                soonest = left if soonest is None else min(soonest, left)
                continue
            key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
            self._evictions.emit(pod, "Normal", "TaintManagerEviction", f"Marking for deletion Pod {key}")
            await self.api.delete(self.caller, self.kind(PODS), key, DeleteOptions(uid=pod["metadata"]["uid"]))
        return soonest

    def _patience(self, pod: Json, taints: list[Json]) -> float | None:
        """Return the remaining seconds for which a pod tolerates these taints; None for unlimited."""
        tolerations = (pod.get("spec") or {}).get("tolerations") or ()
        waits: list[float] = []
        for taint in taints:
            toleration = tolerates(tolerations, taint)
            if toleration is None:
                return 0.0
            if toleration.get("tolerationSeconds") is not None:
                added = taint.get("timeAdded")
                since = datetime.fromisoformat(added).timestamp() if added else self.api.wall()
                waits.append(since + toleration["tolerationSeconds"] - self.api.wall())
        return min(waits, default=None)

    async def _gone(self, name: str) -> float | None:
        """Delete the pods of a missing node after a delay: it may be about to register."""
        pods = self._index.on_node(name)
        if not pods:
            self._absent.pop(name, None)
            return None
        since = self._absent.setdefault(name, self.clock.seconds())
        left = since + ORPHAN_QUARANTINE - self.clock.seconds()
        if left > 0:
            return left
        for pod in pods:
            key = Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
            options = DeleteOptions(grace=0, uid=pod["metadata"]["uid"])
            await self.api.delete(self.caller, self.kind(PODS), key, options)
        return None


def _tainted(body: Json, taints: list[Json]) -> Json:
    spec = {name: value for name, value in (body.get("spec") or {}).items() if name != "taints"}
    return body | {"spec": spec | ({"taints": taints} if taints else {})}
