"""Forges Secrets: unchanged, all types except service account tokens.

Those never expire and are valid for this cluster; pods at a lender get short-lived tokens that are bound to them.
"""

from __future__ import annotations

from typing import Any, Final

from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, wanted
from liqod.kubelet.reflection.views import Secret

TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 (a type, not a secret)
STAYS: Final = (
    "it holds a token of a service account that never expires; mount the pod's own token, which is renewed, or keep "
    "this one in a secret of type Opaque"
)


def forge(home: Secret, inputs: ForgeInputs) -> DesiredObject | Withheld:
    """Return the Secret for the lender."""
    why = inputs.objection(home.metadata.annotations)
    if home.type == TOKEN_TYPE:
        return Withheld(why or STAYS, recorded=not why)
    return Withheld(why) if why else wanted(home.metadata, home.content(), inputs.context)


def observe(there: Secret, desired: DesiredObject) -> dict[str, Any]:
    """Return the content of the object at the lender."""
    return there.content()


def is_fixed(observed: dict[str, Any], desired: DesiredObject) -> bool:
    """Return whether the object must be re-created: its type changed (immutable), or it is marked immutable."""
    if observed.get("type") != desired.content.get("type"):
        return True
    return bool(observed.get("immutable")) and observed != desired.content
