"""What admission adds to a pod: the toleration of virtual nodes, and the node affinity that selects them (pure).

    Local            no toleration; a pod that tolerates virtual nodes anyway is kept off them; one that asks for them
                     by its RuntimeClass is not, and learns there that its namespace stays home
    Remote           toleration; virtual nodes only, of the selected clusters
    LocalAndRemote   toleration; with a selector real nodes or virtual nodes of the selected clusters

A user's own affinity stays: terms are ORed (Kubernetes API: NodeSelector), so each of its terms is joined with each of
ours for both to hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from liqod.model.names import RUNTIME_CLASS, TAINT_EFFECT, TAINT_KEY, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.model.objects.meta import to_dict
from liqod.model.objects.tolerations import HELD, lengthened, limit_of
from liqod.model.records.offloading import LOCAL, REMOTE, OffloadingPolicy

TOLERATION: Final = {"key": TAINT_KEY, "operator": "Exists", "effect": TAINT_EFFECT}
VIRTUAL: Final = {"key": TYPE_LABEL, "operator": "In", "values": [VIRTUAL_NODE_TYPE]}
REAL: Final = {"key": TYPE_LABEL, "operator": "NotIn", "values": [VIRTUAL_NODE_TYPE]}
MAX_TERMS: Final = 512
"""Terms of the longest affinity that is written: each term of the user's times each of the selector's."""

MAX_EXPRESSIONS: Final = 4096
"""Requirements of an affinity that we write: those of each term of the user's, with those of each of the selector's."""
MAX_TOLERATIONS: Final = 512
MAX_VALUES: Final = 16384
"""Values that the requirements of a pod's own node affinity may name together."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PARTS: Final = ("matchExpressions", "matchFields")
Term = Mapping[str, Any]


class TooManyTerms(Exception):
    """The user's affinity and the selector have too many terms together; the message is for the user."""


def tolerates(tolerations: list[Any]) -> bool:
    """Return whether a toleration already lets the scheduler place a pod on virtual nodes.

    Source: k8s.io/api ``Toleration.ToleratesTaint``; an absent operator is Equal, an empty effect is every effect.
    """
    return any(isinstance(toleration, Mapping) and _matches(toleration) for toleration in tolerations)


def _matches(toleration: Mapping[str, Any]) -> bool:
    if toleration.get("tolerationSeconds") is not None:
        # It only delays the eviction; the user chose it for another purpose, and the pod still needs ours.
        return False
    if toleration.get("effect") not in (None, "", TAINT_EFFECT):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return toleration.get("key") in (None, "", TAINT_KEY)
    return operator == "Equal" and toleration.get("key") == TAINT_KEY and toleration.get("value") == "true"


def mutations(pod: Mapping[str, Any], policy: OffloadingPolicy | None = None) -> list[dict[str, Any]]:
    """Return the JSON patch (RFC 6902) for a pod of an enabled namespace; empty when it needs nothing.

    What the user wrote still holds. The patch is idempotent. Raises TooManyTerms.
    """
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return []
    policy = policy or OffloadingPolicy()
    if policy.placement == LOCAL and spec.get("runtimeClassName") == RUNTIME_CLASS:
        # Real nodes alone and virtual nodes alone are no node at all, and the scheduler would not say why.
        return []
    return [*_toleration(spec, policy), *_affinity(spec, policy)]


def hold_tolerations(pod: Mapping[str, Any], policy: OffloadingPolicy, evict_after: float) -> list[dict[str, Any]]:
    """Return the JSON patch that keeps a pod that can only run on virtual nodes while they are unreachable.

    The daemon does the same for every pod when its lender is unreachable; this holds also while no daemon runs.
    ``evict_after`` is in seconds, 0: never; a pod's annotation overrides it. To be applied after ``mutations``.
    """
    spec, metadata = pod.get("spec"), pod.get("metadata")
    if not isinstance(spec, Mapping) or not (policy.placement == REMOTE or _selects_virtual(spec)):
        return []
    tolerations, annotations = _listed(spec.get("tolerations")), None
    if isinstance(metadata, Mapping):
        annotations = metadata.get("annotations")
    known = annotations if isinstance(annotations, Mapping) else {}
    if HELD in known or not all(isinstance(one, Mapping) for one in tolerations):
        return []
    changed, held = lengthened(tolerations, limit_of(known, evict_after))
    if not held:
        return []
    note = msgspec.json.encode(held).decode()
    ops = [{"op": "replace", "path": f"/spec/tolerations/{one}", "value": changed[int(one)]} for one in held]
    if not isinstance(metadata, Mapping):
        return [*ops, {"op": "add", "path": "/metadata", "value": {"annotations": {HELD: note}}}]
    if not isinstance(annotations, Mapping):
        return [*ops, {"op": "add", "path": "/metadata/annotations", "value": {HELD: note}}]
    return [*ops, {"op": "add", "path": f"/metadata/annotations/{HELD.replace('/', '~1')}", "value": note}]


def _selects_virtual(spec: Mapping[str, Any]) -> bool:
    selector = spec.get("nodeSelector")
    return isinstance(selector, Mapping) and selector.get(TYPE_LABEL) == VIRTUAL_NODE_TYPE


def check_size(pod: Mapping[str, Any]) -> None:
    """Raise TooManyTerms for a pod that is costly to evaluate: terms are counted before they are compared."""
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        return
    found = len(_listed(spec.get("tolerations")))
    if found > MAX_TOLERATIONS:
        raise TooManyTerms(f"the pod has {found} tolerations: more than {MAX_TOLERATIONS} are not read; use fewer")
    inner: Any = spec
    for name in ("affinity", "nodeAffinity", _REQUIRED):
        inner = inner.get(name)
        if not isinstance(inner, Mapping):
            return
    terms = [term for term in _listed(inner.get("nodeSelectorTerms")) if isinstance(term, Mapping)]
    requirements = [one for term in terms for part in _PARTS for one in _listed(term.get(part))]
    values = sum(len(_listed(one.get("values"))) for one in requirements if isinstance(one, Mapping))
    if len(requirements) > MAX_EXPRESSIONS or values > MAX_VALUES:
        raise TooManyTerms(
            f"the pod's node affinity has {len(requirements)} requirements with {values} values: more than "
            f"{MAX_EXPRESSIONS} and {MAX_VALUES} are not read; use fewer"
        )


def _count(term: Term) -> int:
    return sum(len(found) for found in _parts(term).values())


def _toleration(spec: Mapping[str, Any], policy: OffloadingPolicy) -> list[dict[str, Any]]:
    tolerations = spec.get("tolerations")
    if policy.placement == LOCAL:
        return []
    if tolerations is None:
        return [{"op": "add", "path": "/spec/tolerations", "value": [dict(TOLERATION)]}]
    if not isinstance(tolerations, list) or tolerates(tolerations):
        return []
    return [{"op": "add", "path": "/spec/tolerations/-", "value": dict(TOLERATION)}]


def _affinity(spec: Mapping[str, Any], policy: OffloadingPolicy) -> list[dict[str, Any]]:
    if spec.get("nodeName"):
        # The scheduler skips such a pod, and a kubelet rejects one whose affinity does not match (NodeAffinity).
        return []
    terms = wanted_terms(policy, tolerates(_listed(spec.get("tolerations"))))
    if terms is None:
        return []
    path, value = "/spec/affinity", spec
    for name in ("affinity", "nodeAffinity", _REQUIRED):
        inner = value.get(name)
        if inner is not None and not isinstance(inner, Mapping):
            return []
        if inner is None:
            return [{"op": "add", "path": path, "value": _nested(name, [dict(term) for term in terms])}]
        value, path = inner, f"{path}/{_next(name)}"
    theirs = [term for term in _listed(value.get("nodeSelectorTerms")) if isinstance(term, Mapping) and _parts(term)]
    if not theirs or all(any(_implies(term, ours) for ours in terms) for term in theirs):
        # A term without requirements matches no node (Kubernetes API: NodeSelectorTerm); joined with ours it would.
        return []
    if len(theirs) * len(terms) > MAX_TERMS:
        raise TooManyTerms(
            f"the pod's node affinity has {len(theirs)} terms and the clusterSelector of its namespace asks for "
            f"{len(terms)} with each of them: more than {MAX_TERMS} terms are not written; use fewer"
        )
    written = sum(_count(term) for term in theirs) * len(terms) + sum(_count(term) for term in terms) * len(theirs)
    if written > MAX_EXPRESSIONS:
        raise TooManyTerms(
            f"the pod's node affinity joined with the clusterSelector of its namespace would have {written} "
            f"requirements: more than {MAX_EXPRESSIONS} are not written; use fewer"
        )
    joined = [_joined(term, ours) for term in theirs for ours in terms]
    path = f"/spec/affinity/nodeAffinity/{_REQUIRED}"
    return [{"op": "add", "path": path, "value": {**value, "nodeSelectorTerms": joined}}]


def wanted_terms(policy: OffloadingPolicy, tolerant: bool) -> list[Term] | None:
    """Return the terms of which a node must match one; None when every node is allowed.

    ``tolerant``: the pod has a toleration of its own for virtual nodes.
    """
    if policy.placement == LOCAL:
        return [_term(REAL)] if tolerant else None
    if policy.terms is None:
        return [_term(VIRTUAL)] if policy.placement == REMOTE else None
    selected: list[Term] = [to_dict(term) for term in policy.terms if not term.empty]
    if policy.placement == REMOTE:
        # A selector whose terms are all empty selects no cluster: then there is no node for the pod.
        return [_joined(term, _term(VIRTUAL)) for term in selected] or [_joined(_term(VIRTUAL), _term(REAL))]
    return [*selected, _term(REAL)]


def _term(requirement: Mapping[str, Any]) -> Term:
    return {"matchExpressions": [dict(requirement)]}


def _next(name: str) -> str:
    return "nodeAffinity" if name == "affinity" else _REQUIRED


def _nested(missing: str, terms: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the value for the first level of a pod's affinity that is missing."""
    required = {"nodeSelectorTerms": terms}
    if missing == _REQUIRED:
        return required
    return {_REQUIRED: required} if missing == "nodeAffinity" else {"nodeAffinity": {_REQUIRED: required}}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _parts(term: Term) -> dict[str, list[Any]]:
    """Return the requirements of a term by field; empty when it has none."""
    return {part: found for part in _PARTS if (found := _listed(term.get(part)))}


def _joined(left: Term, right: Term) -> Term:
    """Return the term that matches where both do; a requirement of both is in it once."""
    result: dict[str, list[Any]] = {}
    for part in _PARTS:
        ours = _listed(left.get(part))
        both = [*ours, *(one for one in _listed(right.get(part)) if not _among(one, ours))]
        if both:
            result[part] = both
    return result


def _implies(term: Term, other: Term) -> bool:
    """Return whether a term has all requirements of another one."""
    return all(_among(one, _listed(term.get(part))) for part, wanted in _parts(other).items() for one in wanted)


def _among(requirement: Any, others: Sequence[Any]) -> bool:
    return any(_plain(requirement) == _plain(other) for other in others)


def _plain(requirement: Any) -> Any:
    if not isinstance(requirement, Mapping):
        return requirement
    values = _listed(requirement.get("values"))
    return requirement.get("key"), requirement.get("operator"), sorted(str(value) for value in values)
