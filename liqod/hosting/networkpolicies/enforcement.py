"""Whether this cluster's network plugin enforces NetworkPolicies, by what is known of it. Pure.

Sources: the plugins' own documentation; for k3s and RKE2 the network policy controller of kube-router that a k3s
server runs unless it is started with ``disable-network-policy``.
"""

from __future__ import annotations

from typing import Final

import attrs

from liqod.model.records.facts import DISTRIBUTION, PLUGIN, ClusterFacts, values_of

_ENFORCING: Final = frozenset({"calico", "canal", "cilium", "kube-router", "ovn-kubernetes", "weave"})
_WITH_CONTROLLER: Final = frozenset({"k3s"})
"""Distributions that bring a controller for them beside flannel."""


@attrs.frozen
class Enforcement:
    """Whether policies are ``enforced``, as far as is known, and a sentence that says by what."""

    enforced: bool
    message: str


def enforcement(record: ClusterFacts | None) -> Enforcement:
    """Return whether policies are enforced by what is known of a cluster; what is not known is not relied on."""
    plugins, distributions = values_of(record, PLUGIN), values_of(record, DISTRIBUTION)
    if found := next((one for one in plugins if one in _ENFORCING), ""):
        return Enforcement(True, f"the network plugin {found} enforces NetworkPolicies")
    if "flannel" in plugins and (found := next((one for one in distributions if one in _WITH_CONTROLLER), "")):
        return Enforcement(True, f"{found} enforces NetworkPolicies beside flannel, unless it was started without")
    if plugins:
        return Enforcement(False, f"the network plugin {plugins[0]} is not known to enforce NetworkPolicies")
    return Enforcement(False, "it is not known which network plugin this cluster has, or whether it enforces them")
