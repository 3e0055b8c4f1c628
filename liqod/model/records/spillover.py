"""Spillover: own nodes first, then peers by weight, and perhaps a return when there is room again. Pure.

kube-scheduler ranks nodes by the sum of weighted scores of 0 to 100 (kubernetes/pkg/scheduler/apis/config/v1,
``getDefaultPlugins``): NodeAffinity and PodTopologySpread count twice, NodeResourcesFit and
NodeResourcesBalancedAllocation once. An empty virtual node wins both of the latter, so own nodes must stay ahead by
more than these are worth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from liqod.model.names import REMOTE_CLUSTER_LABEL, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import View

NONE: Final = "None"
HOME_FIRST: Final = "HomeFirst"
RETURN: Final = "Return"
MODES: Final = (NONE, HOME_FIRST, RETURN)

HOME_WEIGHT: Final = 100
"""The highest weight of a preferred term; the API allows 1 to 100 (core/v1, PreferredSchedulingTerm)."""
PEER_POINTS: Final = 25
"""The most that the terms of one virtual node may weigh together, apart from rounding up to 1. The scheduler shows the
largest sum as 100 and counts it twice: a peer stays 150 points behind own nodes, which is what an empty node gains on a
nearly full one by resources."""
MIN_WEIGHT, MAX_WEIGHT = 1, 99
MAX_PEERS: Final = 16

NO_SPREAD: Final[Mapping[str, Any]] = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
}
"""A topology spread constraint that ranks all nodes alike: without a selector it counts no pods."""


class SpilloverPeer(View, frozen=True):
    """The virtual nodes of one cluster, by its ID, or those with all of the labels, and their weight."""

    cluster: str = ""
    match_labels: dict[str, str] = {}
    weight: int = 0

    @property
    def valid(self) -> bool:
        """Whether it names nodes in one way, with a weight from 1 to 99; the definition refuses anything else."""
        return bool(self.cluster) != bool(self.match_labels) and MIN_WEIGHT <= self.weight <= MAX_WEIGHT

    def matches(self, cluster_id: str, labels: Mapping[str, str] | None) -> bool:
        """Return whether a virtual node is meant; ``labels`` None: they are not known, so it may be."""
        if self.cluster:
            return self.cluster == cluster_id
        return labels is None or all(labels.get(key) == value for key, value in self.match_labels.items())

    def __str__(self) -> str:
        return self.cluster or ",".join(f"{key}={value}" for key, value in sorted(self.match_labels.items()))


class Spillover(View, frozen=True):
    """The field ``spillover`` of a NamespaceOffloading."""

    mode: str = HOME_FIRST
    peers: list[SpilloverPeer] = []


NO_SPILLOVER: Final = Spillover(mode=NONE)
"""Nothing is preferred."""


def preferences(peers: tuple[SpilloverPeer, ...]) -> list[dict[str, Any]]:
    """Return the preferred scheduling terms of a pod: own nodes first, then peers by their weights."""
    terms = [_term(HOME_WEIGHT, [_requirement(TYPE_LABEL, "NotIn", VIRTUAL_NODE_TYPE)])]
    usable = [peer for peer in peers[:MAX_PEERS] if peer.valid]
    share = -(-_heaviest(usable) // PEER_POINTS)
    for peer in usable:
        wanted = {REMOTE_CLUSTER_LABEL: peer.cluster} if peer.cluster else dict(sorted(peer.match_labels.items()))
        # Own nodes may have the same labels, of a region for instance, and must not count twice.
        selected = {TYPE_LABEL: VIRTUAL_NODE_TYPE, **wanted}
        requirements = [_requirement(key, "In", value) for key, value in selected.items()]
        terms.append(_term(max(1, peer.weight // share), requirements))
    return terms


def _heaviest(peers: list[SpilloverPeer]) -> int:
    """Return what one virtual node may weigh at most, at least 100: a node of one cluster may match all the labels."""
    clusters = Counter[str]()
    for peer in peers:
        clusters[peer.cluster] += peer.weight
    by_labels = clusters.pop("", 0)
    return max(HOME_WEIGHT, by_labels + max(clusters.values(), default=0))


def is_no_spread(constraint: Mapping[str, Any]) -> bool:
    """Return whether a constraint is the one that keeps the scheduler's default ones away; it is for home alone."""
    return dict(constraint) == NO_SPREAD


def effective(own: Spillover | None, default: str) -> Spillover:
    """Return what holds for a namespace; an unknown mode is None, as with a definition of a later release."""
    found = own if own is not None else Spillover(mode=default)
    return found if found.mode in MODES else msgspec.structs.replace(found, mode=NONE)


def _term(weight: int, requirements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"weight": weight, "preference": {"matchExpressions": requirements}}


def _requirement(key: str, operator: str, value: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": [value]}
