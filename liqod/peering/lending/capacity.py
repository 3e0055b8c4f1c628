"""The free capacity of this cluster, from the watches of nodes and pods.

Totals are kept per node and updated incrementally, so that an event costs the same in a cluster of ten pods and of ten
thousand. Pods that are finished, not bound, or on nodes that are not lent do not count; nor do nodes that tenants
cannot use.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.observe import Latest
from liqod.flow.tasks import together
from liqod.flow.timer import Timer
from liqod.kube.cache.informer import Informer
from liqod.model.ids import Key
from liqod.model.objects import quantity
from liqod.model.objects.node import Node
from liqod.model.objects.pod import Pod, is_finished, pod_requests
from liqod.model.objects.quantity import Resources
from liqod.model.objects.tenant_nodes import TenantNodes, is_control_plane
from liqod.peering.lending import advert

FIRST: Final = 0.05
"""Seconds for which changes are collected before subscribers are notified."""
SPACING: Final = 1.0
"""Minimum seconds between two notifications: offers are not sent more often either."""


class FreeCapacity:
    """The free resources of the nodes that tenants can use; ``revision`` changes, coalesced, when they may have."""

    _log = Logger()

    def __init__(
        self, nodes: Informer[Node], pods: Informer[Pod], clock: IReactorTime, tenant_nodes: TenantNodes
    ) -> None:
        self._nodes = nodes
        self._pods = pods
        self._clock = clock
        self._tenant_nodes = tenant_nodes
        self.revision = Latest(0)
        """Increases whenever the result may have changed."""
        self._requests: dict[Key, tuple[str, Resources]] = {}
        self._totals: dict[str, dict[str, Fraction]] = {}
        self._timer = Timer(clock)
        self._notified_at = -1e9
        self._ends: list[Callable[[], None]] = []
        self._unreadable: set[Key] = set()
        self._following = False

    @property
    def known(self) -> bool:
        """Whether nodes and pods were listed; until then nothing is offered."""
        return self._nodes.synced and self._pods.synced

    def start(self) -> None:
        """Subscribe to the informers."""
        self._following = True
        self._ends = [self._nodes.subscribe(self._node_changed), self._pods.subscribe(self._pod_changed)]
        both = Deferred.fromCoroutine(together([self._nodes.when_synced(), self._pods.when_synced()]))
        both.addCallbacks(lambda _: self._schedule(), lambda _: None)

    def stop(self) -> None:
        """Unsubscribe."""
        self._following = False
        for end in self._ends:
            end()
        self._ends = []
        self._timer.cancel()

    def free(self) -> dict[str, Fraction]:
        """Return the free resources of all nodes that tenants can use."""
        parts = []
        for node in self._tenant_nodes.usable(self._nodes.items()):
            try:
                allocatable = quantity.parse_all(node.status.allocatable)
            except ValueError as error:
                self._warn_once(node.key, "node", error)
                continue
            parts.append((allocatable, self._totals.get(node.metadata.name, {})))
        return advert.free(parts)

    def _node_changed(self, key: Key, old: Node | None, new: Node | None) -> None:
        if _lent_by(old) == _lent_by(new):
            return
        self._unreadable.discard(key)
        self._schedule()

    def _pod_changed(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        before = self._requests.get(key)
        after = self._occupied(key, old, new, before)
        if after == before:
            return
        if before is not None:
            self._add(before, -1)
            del self._requests[key]
        if after is not None:
            self._add(after, 1)
            self._requests[key] = after
        self._schedule()

    def _occupied(
        self, key: Key, old: Pod | None, pod: Pod | None, before: tuple[str, Resources] | None
    ) -> tuple[str, Resources] | None:
        if pod is None or not pod.spec.node_name or is_finished(pod.status):
            self._unreadable.discard(key)
            return None
        if before is not None and old is not None and old.spec == pod.spec:
            # Most pod updates change the status only, which does not affect the requests.
            return before
        try:
            return pod.spec.node_name, quantity.shared(pod_requests(pod.spec))
        except ValueError as error:
            self._warn_once(key, "pod", error)
            return before

    def _add(self, occupied: tuple[str, Resources], sign: int) -> None:
        node, requests = occupied
        totals = self._totals.setdefault(node, {})
        for name, value in requests.items():
            total = totals.get(name, Fraction(0)) + sign * value
            if total:
                totals[name] = total
            else:
                totals.pop(name, None)
        if not totals:
            del self._totals[node]

    def _warn_once(self, key: Key, what: str, error: ValueError) -> None:
        if key not in self._unreadable and len(self._unreadable) < 1024:
            self._unreadable.add(key)
            self._log.warn("cannot count {kind} {name}: {error}", kind=what, name=key, error=error)

    def _schedule(self) -> None:
        if self._following and self.known:
            delay = max(FIRST, self._notified_at + SPACING - self._clock.seconds())
            self._timer.start_unless_running(delay, self._notify)

    def _notify(self) -> None:
        self._notified_at = self._clock.seconds()
        self.revision.set(self.revision.value + 1)


def _lent_by(node: Node | None) -> tuple[object, ...] | None:
    """Return what decides of a node what is lent; None for a virtual node, which does not count."""
    if node is None or node.virtual:
        return None
    allocatable = node.status.allocatable if node.lendable else None
    return allocatable, node.spec, node.metadata.deleting, is_control_plane(node)
