"""How much a tenant may write here in a time, and until when it is held where it wrote more. Pure.

etcd keeps each version of an object until it is compacted, so that what is written again and again takes room however
small the bound of what is there at a time. Kubernetes bounds requests at a time, and no bytes. So the daemon counts the
versions that its watches show, and has an admission policy refuse more until a date.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from liqod.flow.share import Share
from liqod.hosting.tenants.contract import Contract
from liqod.model.names import HELD_WRITES_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object
from liqod.model.timestamps import parse_rfc3339, rfc3339

AT_ONCE: Final = 4
"""Minutes' worth that may be written at once."""
SHORTEST: Final = 60.0
"""Seconds that a tenant is held at least: the labels of up to a thousand namespaces are writes, too."""
LONGEST: Final = 600.0
"""Seconds that it is held at most, then it is looked at again: a date in a label may be any."""


def share_of(contract: Contract) -> Share | None:
    """Return what a tenant may write, in bytes; None: without a bound."""
    if not contract.granted.tenant_writes:
        return None
    per_minute = float(quantity.parse(contract.granted.tenant_writes))
    return Share(per_minute / 60, AT_ONCE * per_minute)


def held(share: Share, now: float, before: float | None) -> float | None:
    """Return until when a tenant is held, None if it is not; ``before`` is the same as it was decided last.

    It is held until half of what may be written at once is free again, so that it is not held again by little.
    """
    if before is not None and before > now:
        return min(before, now + LONGEST)
    if share.wait(now) <= 0:
        return None
    seconds = (share.taken(now) - share.burst / 2) / share.rate
    return now + min(max(seconds, SHORTEST), LONGEST)


def date_label(until: datetime) -> str:
    """Return a date as the value of a label, which has no colons."""
    return rfc3339(until).replace(":", ".")


def held_until(namespace: Object) -> datetime | None:
    """Return the date in the label of a namespace; None without the label, or for what is no date."""
    return parse_rfc3339(namespace.metadata.labels.get(HELD_WRITES_LABEL, "").replace(".", ":"))
