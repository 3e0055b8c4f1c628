"""NamespaceOffloading: refines the label ``liqo.io/enabled=true`` of a namespace. Pure.

The label enables offloading. The optional object, always named ``offloading``, sets the namespace's name in other
clusters, selects these clusters, and sets where pods may run. Without the object: the default name, all clusters, pods
local and remote. Without the label the object has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from liqod.model.objects.meta import Condition, Object, View
from liqod.model.objects.node_selector import NodeSelector, Term, selects
from liqod.model.records.spillover import NO_SPILLOVER, NONE, Spillover, effective

NAME: Final = "offloading"
DEFAULT_NAME: Final = "DefaultName"
SAME_NAME: Final = "EnforceSameName"
SELECTED_NAME: Final = "SelectedName"
LOCAL: Final = "Local"
REMOTE: Final = "Remote"
BOTH: Final = "LocalAndRemote"


class NamespaceOffloadingSpec(View, frozen=True):
    """What the namespace's users want; the values are checked by the definition's schema.

    ``ingress_classes``, ``load_balancer_classes``: those of other clusters that its objects may have; empty: any.
    """

    namespace_mapping_strategy: str = DEFAULT_NAME
    remote_namespace_name: str = ""
    pod_offloading_strategy: str = BOTH
    cluster_selector: NodeSelector | None = None
    spillover: Spillover | None = None
    ingress_classes: list[str] = []
    load_balancer_classes: list[str] = []


class NamespaceOffloadingStatus(View, frozen=True):
    """Daemon-owned; conditions by the ID of the other cluster: OffloadingRequired, Ready.

    Of the namespace as a whole: Spillover, while its spec has that field.
    """

    observed_generation: int = 0
    offloading_phase: str = ""
    remote_namespace_name: str = ""
    message: str = ""
    conditions: list[Condition] = []
    remote_namespaces_conditions: dict[str, list[Condition]] = {}


class NamespaceOffloading(Object, frozen=True):
    """At most one per namespace counts, the one named ``offloading``."""

    spec: NamespaceOffloadingSpec = NamespaceOffloadingSpec()
    status: NamespaceOffloadingStatus = NamespaceOffloadingStatus()


@attrs.frozen
class OffloadingPolicy:
    """What holds for a namespace that is enabled; ``terms`` None: all clusters.

    ``remote_name`` is what the namespace is called elsewhere, empty for the default name.
    """

    placement: str = BOTH
    terms: tuple[Term, ...] | None = None
    remote_name: str = ""
    spillover: Spillover = NO_SPILLOVER

    def includes(self, node: str, labels: Mapping[str, str]) -> bool:
        """Return whether pods may run on a virtual node."""
        if self.placement == LOCAL:
            return False
        return self.terms is None or selects(self.terms, node, labels)


def policy_of(namespace: str, offloading: NamespaceOffloading | None, spillover: str = NONE) -> OffloadingPolicy:
    """Return what holds for an enabled namespace; None is one without such an object.

    An unknown placement keeps pods local, the safer choice. ``spillover`` is the mode of namespaces that name none; it
    has a meaning only where pods may run here and elsewhere.
    """
    if offloading is None or offloading.metadata.deleting:
        return OffloadingPolicy(spillover=effective(None, spillover))
    spec = offloading.spec
    placement = spec.pod_offloading_strategy
    if placement not in (LOCAL, REMOTE, BOTH):
        placement = LOCAL
    terms = None if spec.cluster_selector is None else spec.cluster_selector.node_selector_terms
    wanted = effective(spec.spillover, spillover) if placement == BOTH else NO_SPILLOVER
    return OffloadingPolicy(placement, tuple(terms) if terms else None, remote_name_of(namespace, spec), wanted)


def remote_name_of(namespace: str, spec: NamespaceOffloadingSpec) -> str:
    """Return the name that the strategy wants elsewhere, empty for the default one."""
    match spec.namespace_mapping_strategy:
        case "EnforceSameName":
            return namespace
        case "SelectedName":
            return spec.remote_namespace_name
    return ""
