"""The RuntimeClass by which a single pod asks for a virtual node (pure).

The API server's own admission (plugin RuntimeClass) gives a pod that names it the node selector and the toleration; no
webhook is asked for that, and a pod whose own selector says otherwise is refused at once. No node has a runtime of its
name: a virtual node runs the pod at the lender, which never learns of it.
"""

from __future__ import annotations

from typing import Any

from liqod.model.names import FIELD_MANAGER, MANAGED_BY_LABEL, RUNTIME_CLASS, TYPE_LABEL, VIRTUAL_NODE_TYPE
from liqod.webhook.placement import TOLERATION


def runtime_class() -> dict[str, Any]:
    """Return the RuntimeClass (node.k8s.io/v1); it has no overhead, as nothing runs in this cluster."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": RUNTIME_CLASS, "labels": {MANAGED_BY_LABEL: FIELD_MANAGER}},
        "handler": RUNTIME_CLASS,
        "scheduling": {"nodeSelector": {TYPE_LABEL: VIRTUAL_NODE_TYPE}, "tolerations": [dict(TOLERATION)]},
    }
