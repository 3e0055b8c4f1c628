"""What a tenant's pod asks for names: the tenant's name service, with the search list of its home. Pure.

A pod that asks the cluster's DNS at home asks the name service here; one that asks others (dnsPolicy Default, None)
asks those. Source: Kubernetes, "DNS for Services and Pods"; kubelet, pkg/kubelet/network/dns/dns.go, whose merging of
``dnsConfig`` with what the policy gives is done here, because a pod whose servers are named has the policy None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from liqod.hosting.shadowpods.validation import items_in, mapping_in

OPTIONS: Final = {"ndots": "5", "timeout": "2", "attempts": "2"}
"""ndots is what kubelets set; the others have a pod ask its second name server soon (resolv.conf(5))."""
_OF_CLUSTER: Final = ("ClusterFirst", "ClusterFirstWithHostNet")
_MAX_SERVERS: Final = 3
_MAX_SEARCHES: Final = 32
_MAX_SEARCH_LENGTH: Final = 2048
"""What the API server takes (Kubernetes, pkg/apis/core/validation: MaxDNSNameservers and so on)."""


def asks_cluster(spec: Mapping[str, Any]) -> bool:
    """Return whether a pod asks the cluster's DNS."""
    return (spec.get("dnsPolicy") or "ClusterFirst") in _OF_CLUSTER


def with_name_servers(spec: Mapping[str, Any], servers: Sequence[str], namespace: str, domain: str) -> dict[str, Any]:
    """Return a pod spec that asks these servers, as a pod of the namespace of a home cluster with a domain.

    Raises ValueError for a ``dnsConfig`` of the wrong type.
    """
    made = dict(spec)
    if not servers or not asks_cluster(spec):
        return made
    own = mapping_in(spec.get("dnsConfig"), "spec.dnsConfig")
    searches = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain]
    options: dict[str, Any] = {name: {"name": name, "value": value} for name, value in OPTIONS.items()}
    for option in items_in(own.get("options"), "spec.dnsConfig.options"):
        options[str(option.get("name"))] = option
    made["dnsPolicy"] = "None"
    made["dnsConfig"] = {
        "nameservers": _each_once([*servers, *_texts(own.get("nameservers"), "nameservers")])[:_MAX_SERVERS],
        "searches": _within([*searches, *_texts(own.get("searches"), "searches")]),
        "options": list(options.values()),
    }
    return made


def _texts(value: Any, name: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"spec.dnsConfig.{name} is not a list of texts")
    return value


def _each_once(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def _within(searches: Iterable[str]) -> list[str]:
    """Return the first ones, as many as a pod may have; kubelets leave out further ones too."""
    kept: list[str] = []
    for one in _each_once(searches)[:_MAX_SEARCHES]:
        if len(" ".join([*kept, one])) > _MAX_SEARCH_LENGTH:
            break
        kept.append(one)
    return kept
