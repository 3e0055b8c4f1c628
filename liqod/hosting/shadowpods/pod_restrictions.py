"""Restricts fields of a borrower's pod that reach beyond its namespaces: affinity, projected tokens, volume claims.

Pod Security levels do not cover these: anti-affinity keeps pods of others from being scheduled wherever the pod runs, a
projected token is one of this cluster's own accounts, and the claim of an ephemeral volume is created by the controller
manager, so that the admission policies for borrowers' claims do not apply to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from liqod.hosting.shadowpods.validation import items_in, mapping_in
from liqod.hosting.tenants.admission.pod_shape import TOKENS
from liqod.model.names import REMOTE_CLUSTER_LABEL

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""The label with its name that the API server sets on every namespace (Kubernetes: "Well-Known Labels")."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SCOPES: Final = ("namespaces", "namespaceSelector")


def pod_affinity(affinity: Mapping[str, Any], tenant: str) -> dict[str, Any]:
    """Return an affinity whose terms about other pods match those of the tenant's namespaces only.

    A required anti-affinity to all pods would keep those of other tenants from being scheduled (Kubernetes:
    "Cross-namespace Pod Affinity Scope" of quotas). Terms that name namespaces select them by label, since a name does
    not determine the tenant; a name beside a selector is left out. Raises ValueError for a field of the wrong type.
    """
    forged = dict(affinity)
    for kind in ("podAffinity", "podAntiAffinity"):
        if kind not in affinity:
            continue
        where = f"spec.affinity.{kind}"
        rules = dict(mapping_in(affinity[kind], where))
        if _REQUIRED in rules:
            at = f"{where}.{_REQUIRED}"
            rules[_REQUIRED] = [_own_only(term, tenant, at) for term in items_in(rules[_REQUIRED], at)]
        if _PREFERRED in rules:
            at = f"{where}.{_PREFERRED}"
            rules[_PREFERRED] = [
                {**one, "podAffinityTerm": _own_only(mapping_in(one.get("podAffinityTerm"), at), tenant, at)}
                for one in items_in(rules[_PREFERRED], at)
            ]
        forged[kind] = rules
    return forged


def _own_only(term: Mapping[str, Any], tenant: str, where: str) -> dict[str, Any]:
    names, selector = term.get("namespaces"), term.get("namespaceSelector")
    forged = {key: value for key, value in term.items() if key not in _SCOPES}
    if not names and selector is None:
        # Without either, a term is about the pod's own namespace (Kubernetes API: PodAffinityTerm).
        return forged
    selected = dict(mapping_in(selector, f"{where}.namespaceSelector"))
    if selector is None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{where}.namespaces is not a list of names")
        selected["matchExpressions"] = [{"key": _NAME_LABEL, "operator": "In", "values": names}]
    labels = mapping_in(selected.get("matchLabels"), f"{where}.namespaceSelector.matchLabels")
    selected["matchLabels"] = {**labels, REMOTE_CLUSTER_LABEL: tenant}
    return {**forged, "namespaceSelector": selected}


def only_nodes(affinity: Mapping[str, Any], expressions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a node affinity of which every term has these expressions; raises ValueError for a wrong type."""
    where = f"spec.affinity.nodeAffinity.{_REQUIRED}"
    required = mapping_in(affinity.get(_REQUIRED), where)
    terms = []
    for term in items_in(required.get("nodeSelectorTerms"), f"{where}.nodeSelectorTerms"):
        present = list(items_in(mapping_in(term, where).get("matchExpressions"), f"{where}.matchExpressions"))
        # An empty term matches no node (Kubernetes API: NodeSelectorTerm); an expression added to it would match some.
        if (present or term.get("matchFields")) and (added := [one for one in expressions if one not in present]):
            term = {**term, "matchExpressions": [*present, *added]}
        terms.append(term)
    return {
        **affinity,
        _REQUIRED: {**required, "nodeSelectorTerms": terms or [{"matchExpressions": list(expressions)}]},
    }


def check_volumes(volumes: Iterable[Mapping[str, Any]], *, tokens: bool = False) -> None:
    """Raise ValueError, with a sentence for the borrower, for a volume with tokens or data of others.

    ``tokens``: the pod runs as an account that is granted, so that it may have tokens of it.
    """
    refused = [kind for kind in TOKENS if not (tokens and kind == TOKENS[0])]
    for volume in volumes:
        where = f"spec.volumes[{str(volume.get('name', ''))[:63]}]"
        projected = mapping_in(volume.get("projected"), f"{where}.projected")
        for source in items_in(projected.get("sources"), f"{where}.projected.sources"):
            if found := next((kind for kind in refused if source.get(kind) is not None), ""):
                raise ValueError(
                    f"{where} asks for a {found}: tokens and certificates of this cluster's service accounts are not "
                    "for borrowers; what the pod needs at home comes in a secret"
                )
        ephemeral = mapping_in(volume.get("ephemeral"), f"{where}.ephemeral")
        template = mapping_in(ephemeral.get("volumeClaimTemplate"), f"{where}.ephemeral.volumeClaimTemplate")
        _check_claim(mapping_in(template.get("spec"), f"{where}.ephemeral.volumeClaimTemplate.spec"), where)


def _check_claim(claim: Mapping[str, Any], where: str) -> None:
    """Check the claim of an ephemeral volume by the rules for borrowers' own claims (``tenants.policies``)."""
    if claim.get("volumeName"):
        raise ValueError(
            f"{where} chooses the volume of its claim: it may hold the data of others; leave out volumeName"
        )
    if claim.get("storageClassName") == "":
        raise ValueError(
            f"{where} is of no storage class: volumes without one may hold the data of others; name a class, or none"
        )
    source = mapping_in(claim.get("dataSourceRef"), f"{where}.dataSourceRef")
    if source.get("namespace"):
        raise ValueError(f"{where} would be filled from another namespace; leave out dataSourceRef.namespace")
