"""Forges ConfigMaps: unchanged, but ``kube-root-ca.crt``, which every namespace has, is renamed."""

from __future__ import annotations

from typing import Any

from liqod.kubelet.common.context import ROOT_CA, Context, remote_root_ca
from liqod.kubelet.reflection.forge import policy
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, wanted
from liqod.kubelet.reflection.views import ConfigMap


def forge(home: ConfigMap, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the ConfigMap for the lender; the CA of this cluster is reflected in any mode, unless annotated."""
    annotations = home.metadata.annotations
    why = inputs.objection(annotations)
    # Kubernetes publishes one in every namespace, also at the lender (kube-controller-manager, root-ca-cert-publisher).
    if home.metadata.name == ROOT_CA:
        why = policy.explicit(annotations) or ""
    return Withheld(why) if why else wanted(home.metadata, home.content(), inputs.context)


def observe(there: ConfigMap, desired: DesiredObject) -> dict[str, Any]:
    """Return the content of the object at the lender."""
    return there.content()


def is_fixed(observed: dict[str, Any], desired: DesiredObject) -> bool:
    """Return whether the object must be re-created: data of an immutable ConfigMap cannot change."""
    return bool(observed.get("immutable")) and observed != desired.content


def name_there(name: str, context: Context) -> str:
    """Return the name at the lender."""
    return remote_root_ca(context) if name == ROOT_CA else name


def name_at_home(name: str, context: Context) -> str:
    """Return the name at home."""
    return ROOT_CA if name == remote_root_ca(context) else name
