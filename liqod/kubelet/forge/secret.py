"""Secrets: verbatim, all types but tokens of service accounts, which are this cluster's own."""

from __future__ import annotations

from typing import Any, Final

from liqod.kubelet.forge.reflected import Context, Wanted, Withheld, wanted
from liqod.kubelet.reflect.views import Secret

TOKEN_TYPE: Final = "kubernetes.io/service-account-token"  # noqa: S105 (a type, not a secret)


def forge(home: Secret, context: Context) -> Wanted | Withheld:
    """Return the secret for the lender."""
    if home.type == TOKEN_TYPE:
        return Withheld("secrets that hold tokens of service accounts are not reflected")
    why = context.objection(home.metadata.annotations)
    return Withheld(why) if why else wanted(home.metadata, home.content(), context.place)


def observe(there: Secret, goal: Wanted) -> dict[str, Any]:
    """Return what the lender has."""
    return there.content()


def is_fixed(observed: dict[str, Any], goal: Wanted) -> bool:
    """Tell whether what differs cannot be changed in place: the type never can."""
    if observed.get("type") != goal.content.get("type"):
        return True
    return bool(observed.get("immutable")) and observed != goal.content
