"""A small scheduler: binds each pending pod to the best fitting node, and reports why if none fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from twisted.internet.interfaces import IReactorTime

from kubesandbox.controllers.placement import obstacle, requests_of, score, unavailable
from kubesandbox.controllers.reconcile import Reconciler
from kubesandbox.controllers.recorder import Recorder
from kubesandbox.kinds.kinds import NODES, PODS, Json, Key
from kubesandbox.kinds.quantity import Resources, parse_all, subtract
from kubesandbox.server import subresources
from kubesandbox.server.api import Api
from kubesandbox.store.state import Change

NAME: Final = "default-scheduler"


class Scheduler(Reconciler):
    """Tracks the used resources of each node, so that placing a pod iterates over nodes and not over all pods."""

    def __init__(self, api: Api, clock: IReactorTime) -> None:
        super().__init__(NAME, api, clock)
        self._recorder = Recorder(api, NAME)
        self._used: dict[str, dict[str, Fraction]] = {}
        self._allocatable: dict[str, Resources] = {}
        self._waiting: dict[Key, None] = {}
        self._judged: Callable[[Json], Resources] = requests_of

    def startService(self) -> None:
        super().startService()
        self.watch(PODS, self._pod_changed)
        self.watch(NODES, self._node_changed)

    def _pod_changed(self, change: Change) -> list[Key]:
        before = change.old.object if change.old is not None else None
        after = None if change.gone else change.new.object
        was, now = _charged(before), _charged(after)
        is_resized = before is not None and after is not None and before["spec"] is not after["spec"]
        if before is not None and was and (was != now or is_resized):
            self._charge(was, before, -1)
        if after is not None and now and (was != now or is_resized):
            self._charge(now, after, 1)
        if was and (was != now or is_resized):
            # Resources were freed: retry unschedulable pods.
            return list(self._waiting)
        if after is not None and _wants_scheduling(after):
            # The PodScheduled condition that we write must not trigger a retry; a new toleration does.
            is_news = before is None or not _wants_scheduling(before) or before["spec"] != after["spec"]
            return [change.key] if is_news else []
        self._waiting.pop(change.key, None)
        return []

    def _charge(self, node: str, pod: Json, sign: int) -> None:
        used = self._used.setdefault(node, {})
        for name, value in self._judged(pod).items():
            used[name] = used.get(name, Fraction(0)) + sign * value

    def _node_changed(self, change: Change) -> list[Key]:
        name = change.key.name
        if change.gone:
            self._allocatable.pop(name, None)
            return []
        status, old = change.new.object.get("status") or {}, change.old.object if change.old is not None else {}
        try:
            self._allocatable[name] = parse_all(status.get("allocatable") or {})
        except ValueError:
            self._allocatable[name] = {}
        if (
            (old.get("status") or {}).get("allocatable") == status.get("allocatable")
            and old.get("spec") == change.new.object.get("spec")
            and (old.get("metadata") or {}).get("labels") == change.new.object["metadata"].get("labels")
        ):
            return []
        return list(self._waiting)

    async def reconcile(self, key: Key) -> float | None:
        found = self.store.get(PODS, key)
        if found is None or not _wants_scheduling(found.object):
            self._waiting.pop(key, None)
            return None
        pod = found.object
        node, why = self._best(pod)
        if not node:
            self._waiting[key] = None
            await self._unschedulable(key, pod, why)
            return None
        self._waiting.pop(key, None)
        await subresources.bind(self.api, self.caller, key, {"target": {"kind": "Node", "name": node}})
        message = f"Successfully assigned {key.namespace}/{key.name} to {node}"
        self._recorder.emit(pod, "Normal", "Scheduled", message)
        return None

    def _best(self, pod: Json) -> tuple[str, str]:
        wanted = self._judged(pod)
        reasons: Counter[str] = Counter()
        best: tuple[Fraction, str] | None = None
        nodes = self.store.items(NODES)
        for stored in nodes:
            node = stored.object
            name = node["metadata"]["name"]
            total = self._allocatable.get(name, {})
            free = subtract(total, self._used.get(name, {}))
            why = obstacle(pod, wanted, node, free)
            if why:
                reasons[why] += 1
                continue
            points = score(pod, node, free, total)
            if best is None or points > best[0]:
                best = (points, name)
        return (best[1], "") if best is not None else ("", unavailable(reasons, len(nodes)))

    async def _unschedulable(self, key: Key, pod: Json, why: str) -> None:
        conditions = (pod.get("status") or {}).get("conditions") or []
        current = next((each for each in conditions if each["type"] == "PodScheduled"), None)
        if current is not None and current.get("message") == why:
            return
        since = self.api.now() if current is None or current["status"] != "False" else current["lastTransitionTime"]
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": why,
            "lastProbeTime": None,
            "lastTransitionTime": since,
            "observedGeneration": pod["metadata"].get("generation", 1),
        }
        others = [each for each in conditions if each["type"] != "PodScheduled"]
        status = {**(pod.get("status") or {}), "conditions": [*others, condition]}
        await self.api.change(self.caller, self.kind(PODS), key, lambda body: body | {"status": status}, "status")
        self._recorder.emit(pod, "Warning", "FailedScheduling", why)


def _wants_scheduling(pod: Json) -> bool:
    spec = pod.get("spec") or {}
    return (
        not spec.get("nodeName")
        and spec.get("schedulerName", NAME) == NAME
        and not spec.get("schedulingGates")
        and not pod["metadata"].get("deletionTimestamp")
    )


def _charged(pod: Json | None) -> str:
    """Return the node whose resources a pod uses, or an empty text."""
    if pod is None or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return ""
    return str((pod.get("spec") or {}).get("nodeName") or "")
