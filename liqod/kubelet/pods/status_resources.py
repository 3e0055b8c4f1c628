"""What a remote pod's status says that its containers, and the pod as a whole, were given. Pure.

Where a status has more than the spec, the quotas of home count the status (Kubernetes, KEP-1287 and component-helpers
``resource.PodRequests``, UseStatusResources): a lender could use up those of the pod's namespace. So no amount is
larger than that in the spec, or than home shows already: a pod that is made smaller has the larger one for a while.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from liqod.model.objects import quantity

_ALLOCATED: Final = "allocatedResources"
_IN_FORCE: Final = "resources"
_KINDS: Final = ("requests", "limits")


def within(said: Mapping[str, Any], own: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a container or pod with those resources only that its spec at home names, ``own``.

    ``shown`` is the status at home. A lender may hold what names none within defaults of its own; home knows of none.
    """
    found = dict(said)
    if _ALLOCATED in found:
        allocated = _within(found.pop(_ALLOCATED), own.get("requests"), shown.get(_ALLOCATED))
        found |= {_ALLOCATED: allocated} if allocated else {}
    if isinstance(found.get(_IN_FORCE), Mapping):
        before = _mapping(shown.get(_IN_FORCE))
        parts = {
            key: _within(value, own.get(key), before.get(key)) if key in _KINDS else value
            for key, value in found[_IN_FORCE].items()
        }
        found[_IN_FORCE] = {key: value for key, value in parts.items() if value}
    return found


def _within(said: Any, own: Any, shown: Any) -> dict[str, Any]:
    """Return the amounts of a list that ``own`` names, none larger than there or in ``shown``."""
    named, before = _mapping(own), _mapping(shown)
    return {
        name: _at_most(amount, str(named[name]), str(before.get(name, "0")))
        for name, amount in _mapping(said).items()
        if name in named
    }


def _at_most(said: Any, own: str, shown: str) -> Any:
    most, amount = max((own, shown), key=_amount), _amount(str(said))
    # The API server refuses a status with an amount that is none.
    return said if 0 <= amount <= _amount(most) else most


def _amount(text: str) -> Fraction:
    try:
        return quantity.parse(text)
    except ValueError:
        return Fraction(-1)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
