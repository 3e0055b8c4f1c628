"""Whether this cluster's network plugin enforces NetworkPolicies, by what is known of it. Pure.

Source: the plugins' own documentation. The controller that a k3s server runs beside flannel counts as a plugin of its
own (``facts.software``), where it is seen to run.
"""

from __future__ import annotations

from typing import Final

import attrs

from liqod.model.records.facts import PLUGIN, ClusterFacts, values_of

_ENFORCING: Final = frozenset({"calico", "canal", "cilium", "kube-router", "ovn-kubernetes", "weave"})


@attrs.frozen
class Enforcement:
    """Whether policies are ``enforced``, as far as is known, and a sentence that says by what."""

    enforced: bool
    message: str


def enforcement(record: ClusterFacts | None) -> Enforcement:
    """Return whether policies are enforced by what is known of a cluster; what is not known is not relied on."""
    plugins = values_of(record, PLUGIN)
    if found := next((one for one in plugins if one in _ENFORCING), ""):
        return Enforcement(True, f"the network plugin {found} enforces NetworkPolicies")
    if plugins:
        return Enforcement(False, f"the network plugin {plugins[0]} is not known to enforce NetworkPolicies")
    return Enforcement(False, "it is not known which network plugin this cluster has, or whether it enforces them")


def without_effect(egress: str, record: ClusterFacts | None) -> str:
    """Return why the bounds of what tenants' pods reach are without effect, as far as is known; empty: they are not.

    ``egress`` is the level of ``[hosting]``: "all" has no bounds.
    """
    found = enforcement(record)
    if egress == "all" or found.enforced:
        return ""
    return f'egress = "{egress}" under [hosting] may be without effect: {found.message}'
