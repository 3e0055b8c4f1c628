"""What a borrower may set in the metadata of its objects at a lender, as rules of admission policies (CEL). Pure.

Nearly all that borrowers write breaks none of them, which one expression tells (``ordinary``): an API server evaluates
the rules of what is not ordinary only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from liqod.hosting.tenants.contract import Contract
from liqod.model.objects.portable_metadata import ACTED_ON, MAX_ANNOTATIONS_SIZE, MAX_KEYS

NO_FINALIZERS: Final = (
    # Storage object in use protection adds its finalizer as a mutating admission plugin, so that it is there when
    # policies are evaluated.
    "!has(object.metadata.finalizers) || object.metadata.finalizers.all(f, "
    "f == 'kubernetes.io/pvc-protection' || (oldObject != null && "
    "has(oldObject.metadata.finalizers) && f in oldObject.metadata.finalizers))",
    "a borrower may not add finalizers: they would keep its namespace after the end of the peering",
)
NO_OWNERS: Final = (
    "!has(object.metadata.ownerReferences) || object.metadata.ownerReferences.all(o, oldObject != null && "
    "has(oldObject.metadata.ownerReferences) && o in oldObject.metadata.ownerReferences)",
    "a borrower may not set owner references: what depends on what here is this cluster's to say",
)
NEITHER: Final = "!has(object.metadata.finalizers) && !has(object.metadata.ownerReferences)"
"""That there are neither finalizers nor owners, new or old."""
_TOTAL: Final = "{0}.metadata.annotations.map(k, {0}.metadata.annotations[k].size()).sum()"
# Not summed where there are too many, which is refused for that: an expression may cost so much only.
_SHORT_ANNOTATIONS: Final = (
    f"!has(object.metadata.annotations) || object.metadata.annotations.size() > {MAX_KEYS} || "
    f"{_TOTAL.format('object')} <= {MAX_ANNOTATIONS_SIZE} || (oldObject != null && "
    f"has(oldObject.metadata.annotations) && {_TOTAL.format('object')} <= {_TOTAL.format('oldObject')})",
    f"its annotations have more than {MAX_ANNOTATIONS_SIZE} characters together; leave some out at home ([reflection] "
    "skip-annotations)",
)


def rules(contract: Contract) -> list[tuple[str, str]]:
    """Return the rules about all that other controllers read: expressions, with the messages of refusals."""
    return [
        _only_keys("annotations", contract.annotations),
        _only_keys("labels", contract.labels),
        _few("annotations"),
        _few("labels"),
        _SHORT_ANNOTATIONS,
        NO_FINALIZERS,
        NO_OWNERS,
    ]


def ordinary(contract: Contract) -> str:
    """Return an expression that holds of what breaks none of these rules, old objects aside.

    It costs little whatever the object is: what has many keys is not looked at any more.
    """
    kinds = ("object.metadata.annotations", "object.metadata.labels")
    few = [f"(!has({one}) || {one}.size() <= {MAX_KEYS})" for one in kinds]
    short = f"(!has(object.metadata.annotations) || {_TOTAL.format('object')} <= {MAX_ANNOTATIONS_SIZE})"
    allowed = [_keys("annotations", contract.annotations), _keys("labels", contract.labels)]
    return " && ".join([NEITHER, *few, short, *(f"({one})" for one in allowed)])


def _only_keys(field: str, allowed: Sequence[str]) -> tuple[str, str]:
    """Return the rule that a borrower sets allowed labels or annotations only; those of controllers may stay.

    The same as ``portable_metadata.is_allowed``.
    """
    new, old = f"object.metadata.{field}", f"oldObject.metadata.{field}"
    return (
        _keys(field, allowed, f"(oldObject != null && has({old}) && k in {old} && {old}[k] == {new}[k])"),
        f"it has {field} of a domain that is not granted to borrowers here; leave them out at home ([reflection] "
        f"skip-{field}), or have the lender's administrator grant them ([hosting] {field})",
    )


def _keys(field: str, allowed: Sequence[str], *more: str) -> str:
    """Return the expression that each key ``k`` of labels or annotations is an allowed one, or something ``more``."""
    prefixes = [one for one in allowed if one.endswith(("/", "."))]
    names = [one for one in allowed if one not in prefixes]
    each = " || ".join(
        [
            f"!(k.contains('/') || k.contains('.') || k in {cel_list(ACTED_ON)})",
            f"{cel_list(prefixes)}.exists(p, k.startsWith(p))",
            f"k in {cel_list(names)}",
            *more,
        ]
    )
    return f"!has(object.metadata.{field}) || object.metadata.{field}.all(k, {each})"


def _few(field: str) -> tuple[str, str]:
    """Return the rule that there are not too many labels or annotations; where there are, they may not get more.

    The controller manager copies the labels of a service to each of its EndpointSlices.
    """
    new, old = f"object.metadata.{field}", f"oldObject.metadata.{field}"
    return (
        f"!has({new}) || {new}.size() <= {MAX_KEYS} || (oldObject != null && has({old}) && "
        f"{new}.size() <= {old}.size())",
        f"it has more than {MAX_KEYS} {field}; leave some out at home ([reflection] skip-{field})",
    )


def cel_list(values: Iterable[str]) -> str:
    """Return a CEL list of strings; escapes of JSON are those of CEL (cel-spec, "String and Bytes Values")."""
    return json.dumps(list(values))
