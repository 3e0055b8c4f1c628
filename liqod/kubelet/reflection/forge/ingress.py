"""Forges Ingresses: of the class that the lender offers first, which is its default one (spec 004, "Ingresses").

Where it offers none the class is left empty, and the API server there sets the default one, if there is any: only on
creation (DefaultIngressClass admission plugin).

A path that is not plain stays at home, as every lender refuses it (``hosting.tenants.policies``); a path of the type
ImplementationSpecific, whose meaning depends on the class, goes as a Prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, wanted, with_class
from liqod.kubelet.reflection.views import WithSpec
from liqod.model.ingress_path import PATH_TYPES, is_plain
from liqod.model.text import clean_text

CLASS: Final = "ingressClassName"
_FIELDS: Final = ("defaultBackend", "rules", "tls")
# The annotation from before ingressClassName (Kubernetes, "Ingress"): it would choose a class by its name at home.
_LEFT_OUT: Final = frozenset({"kubernetes.io/ingress.class"})


def forge(home: WithSpec, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the ingress for the lender."""
    if why := inputs.objection(home.metadata.annotations):
        return Withheld(why)
    spec = forge_spec(home.content().get("spec") or {})
    paths = [path for rule in spec.get("rules", ()) for path in (rule.get("http") or {}).get("paths") or ()]
    if odd := next((path["path"] for path in paths if not is_plain(path.get("path") or "/")), None):
        return Withheld(f"its path {clean_text(odd, 100)!r} has other characters than letters, digits and /_.~-", True)
    if any(path.get("pathType") not in PATH_TYPES for path in paths):
        spec["rules"] = [_with_types(rule) for rule in spec["rules"]]
    desired = wanted(home.metadata, {"spec": spec}, inputs.context, left_out=_LEFT_OUT)
    return with_class(desired, inputs.home.ingress_classes(home.metadata.namespace), CLASS)


def forge_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reflected part of an Ingress spec."""
    return {field: spec[field] for field in _FIELDS if spec.get(field)}


def _with_types(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule without ImplementationSpecific paths: a class, which is the lender's, says what those mean."""
    if not (rule.get("http") or {}).get("paths"):
        return dict(rule)
    paths = [
        path if path.get("pathType") in PATH_TYPES else {**path, "pathType": "Prefix", "path": path.get("path") or "/"}
        for path in rule["http"]["paths"]
    ]
    return {**rule, "http": {**rule["http"], "paths": paths}}


def observe(there: WithSpec, desired: DesiredObject) -> dict[str, Any]:
    """Return the reflected part of the object at the lender; a class that it has there is taken as desired."""
    spec = there.content().get("spec") or {}
    observed, desired_class = forge_spec(spec), desired.content["spec"].get(CLASS)
    return {"spec": {**observed, CLASS: desired_class} if desired_class and spec.get(CLASS) else observed}
