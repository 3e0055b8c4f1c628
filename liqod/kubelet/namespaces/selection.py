"""Decides whether a namespace is offloaded through a virtual node, by its label, NamespaceOffloading and node labels.

Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import frozen

from liqod.model.records.offloading import LOCAL, NamespaceOffloading, policy_of

NOT_ENABLED: Final = (
    "namespace {namespace} is not offloaded to this cluster: label it liqo.io/enabled=true, or keep the pod off "
    "virtual nodes with a node affinity that excludes liqo.io/type=virtual-node"
)
KEPT_HOME: Final = (
    "namespace {namespace} keeps its pods in this cluster: podOffloadingStrategy is Local in its NamespaceOffloading; "
    "delete the pod, so that its owner makes one that is scheduled here"
)
NOT_SELECTED: Final = (
    "namespace {namespace} is not offloaded to this cluster: the clusterSelector of its NamespaceOffloading does not "
    "select the node {node}; delete the pod, so that its owner makes one that is scheduled elsewhere"
)


EGRESS: Final = (
    "namespace {namespace} is not offloaded to this cluster: {why}; delete the pod, so that its owner makes one that "
    "is scheduled elsewhere"
)


@frozen
class Included:
    """Pods of the namespace may run on the node; ``remote_name``: the requested remote name, empty: the default."""

    remote_name: str = ""


@frozen
class Excluded:
    """Pods of the namespace may not run on the node; ``message`` is written to pods that were scheduled there."""

    message: str


@frozen
class UnknownNode:
    """The node does not exist, so its labels are unknown: nothing is changed."""


Selection = Included | Excluded | UnknownNode


def select(
    namespace: str,
    *,
    enabled: bool,
    offloading: NamespaceOffloading | None,
    node: str,
    labels: Mapping[str, str] | None,
    stays: str = "",
) -> Selection:
    """Return whether a namespace is offloaded through a node; ``labels`` None: the node does not exist.

    ``stays`` is why nothing of it may leave home for the node's lender; empty: something may.
    """
    if not enabled:
        return Excluded(NOT_ENABLED.format(namespace=namespace))
    if stays:
        return Excluded(EGRESS.format(namespace=namespace, why=stays))
    policy = policy_of(namespace, offloading)
    if policy.placement == LOCAL:
        return Excluded(KEPT_HOME.format(namespace=namespace))
    if policy.terms is not None and labels is None:
        return UnknownNode()
    if policy.includes(node, labels or {}):
        return Included(policy.remote_name)
    return Excluded(NOT_SELECTED.format(namespace=namespace, node=node))
