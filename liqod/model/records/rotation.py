"""Key rotation records: how a new cluster key is requested and stored, shared by command line and daemon. Pure.

All state is in the Secret with the cluster's key, so that every step is one atomic write: the order is an annotation,
the next key is stored beside the current one, and the write that promotes the next key removes the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import msgspec

from liqod.model.objects.meta import View

IDENTITY_SECRET: Final = "liqod-identity"  # noqa: S105  # a name, not a secret
"""The Secret, in liqod's namespace, that all daemons of a cluster share."""
KEY: Final = "tls.key"
CERTIFICATE: Final = "tls.crt"
NEXT_KEY: Final = "next.key"
NEXT_CERTIFICATE: Final = "next.crt"

ORDER: Final = "discovery.liqo.io/rotate-key"
"""The annotation that asks for a new key."""
UNTIL: Final = "discovery.liqo.io/rotate-key-until"
"""Annotation with the deadline for disconnected peers (RFC 3339)."""
PROGRESS: Final = "discovery.liqo.io/rotate-key-progress"
"""Annotation in which the daemon reports its progress, as one sentence."""
MAX_WITHIN: Final = 365 * 86400.0


@attrs.frozen
class RotationOrder:
    """``within``: seconds in which disconnected peers must connect and receive the key; None: as configured."""

    within: float | None = None

    def render(self) -> str:
        """Return the order as the annotation holds it."""
        return msgspec.json.encode(_Written(self.within)).decode()


class _Written(View, frozen=True):
    within: float | None = None


def order_of(annotations: Mapping[str, str]) -> RotationOrder | None:
    """Return the order that the Secret carries, None when there is none; one that cannot be read is an ordinary one."""
    text = annotations.get(ORDER)
    if text is None:
        return None
    try:
        within = msgspec.json.decode(text, type=_Written).within
    except msgspec.MsgspecError:
        return RotationOrder()
    return RotationOrder(within if within is not None and 0 <= within <= MAX_WITHIN else None)
