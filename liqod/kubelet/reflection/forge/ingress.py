"""Forges Ingresses: without the class, so that the lender's default class applies (spec 004, "Ingresses").

The API server sets the default IngressClass only on creation (DefaultIngressClass admission plugin).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liqod.kubelet.reflection.forge.reflected import Desired, ForgeInputs, Withheld, wanted
from liqod.kubelet.reflection.views import WithSpec

_FIELDS: Final = ("defaultBackend", "rules", "tls")
# The annotation from before ingressClassName (Kubernetes, "Ingress"): it would choose a class by its name at home.
_LEFT_OUT: Final = frozenset({"kubernetes.io/ingress.class"})


def forge(home: WithSpec, inputs: ForgeInputs) -> Desired | Withheld:
    """Return the ingress for the lender."""
    if why := inputs.objection(home.metadata.annotations):
        return Withheld(why)
    spec = forge_spec(home.content().get("spec") or {})
    return wanted(home.metadata, {"spec": spec}, inputs.context, left_out=_LEFT_OUT)


def forge_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reflected part of an Ingress spec."""
    return {field: spec[field] for field in _FIELDS if spec.get(field)}


def observe(there: WithSpec, desired: Desired) -> dict[str, Any]:
    """Return the reflected part of the object at the lender."""
    return {"spec": forge_spec(there.content().get("spec") or {})}
