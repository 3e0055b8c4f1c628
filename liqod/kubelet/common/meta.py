"""Metadata of the objects that liqod creates at the lender, by which it also recognises them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from liqod.kubelet.common.context import Context
from liqod.kubelet.common.naming import label_value
from liqod.model.names import DESTINATION_LABEL, HOME_POD_UID_ANNOTATION, NODE_NAME_LABEL, ORIGIN_LABEL
from liqod.model.objects.meta import ObjectMeta

FORGED_ANNOTATION: Final = "offloading.liqo.io/forged"
"""Digest of the forged fields; comparing digests saves caching and comparing whole specs."""
HOME_CLAIM_UID: Final = "offloading.liqo.io/home-claim-uid"
"""The annotation of a claim at the lender with the UID of the one at home, whose data it holds."""

NOT_REFLECTED: Final = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
_OURS: Final = "liqo.io"


def is_internal(key: str) -> bool:
    """Return whether a label or annotation belongs to Liqo itself, by the domain before its slash."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain == _OURS or domain.endswith("." + _OURS))


def reflected_labels(labels: Mapping[str, str], context: Context) -> dict[str, str]:
    """Return the user's labels to reflect: without liqod's own and without excluded ones."""
    return {
        key: value for key, value in labels.items() if not is_internal(key) and key not in context.labels_not_reflected
    }


def reflected_annotations(annotations: Mapping[str, str], context: Context) -> dict[str, str]:
    """Return the user's annotations to reflect: without liqod's own, kubectl's and excluded ones."""
    return {
        key: value
        for key, value in annotations.items()
        if not is_internal(key) and key not in NOT_REFLECTED and key not in context.annotations_not_reflected
    }


def ownership(context: Context) -> dict[str, str]:
    """Return the two labels that mark an object at the lender as ours."""
    return {ORIGIN_LABEL: str(context.home), DESTINATION_LABEL: str(context.lender)}


def is_ours(meta: ObjectMeta, context: Context) -> bool:
    """Return whether an object at the lender has our labels; other objects are never changed."""
    return all(meta.labels.get(key) == value for key, value in ownership(context).items())


def is_of_node(meta: ObjectMeta, context: Context) -> bool:
    """Return whether an object of ours belongs to this virtual node; a lender can have several.

    What a node left that exists no more belongs to each of those that remain: it was removed while the lender could not
    be reached, and nobody else would ever delete it.
    """
    name, neighbours = meta.labels.get(NODE_NAME_LABEL, ""), context.neighbours.value
    return name == label_value(context.node_name) or bool(name and neighbours is not None and name not in neighbours)


def home_uid(meta: ObjectMeta) -> str:
    """Return the UID of the home pod of an object at the lender; empty without one."""
    return meta.annotations.get(HOME_POD_UID_ANNOTATION, "")


def remote_labels(labels: Mapping[str, str], context: Context) -> dict[str, str]:
    """Return all labels of a ShadowPod."""
    return {
        **reflected_labels(labels, context),
        **ownership(context),
        NODE_NAME_LABEL: label_value(context.node_name),
    }


def remote_annotations(annotations: Mapping[str, str], uid: str, context: Context) -> dict[str, str]:
    """Return all annotations of a ShadowPod except the digest."""
    return {**reflected_annotations(annotations, context), HOME_POD_UID_ANNOTATION: uid}
