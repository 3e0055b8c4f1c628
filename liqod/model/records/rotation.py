"""How a new key of the cluster is asked for and kept: what the command line and the daemon agree on. Pure.

Everything lies in the Secret that holds the cluster's key, so that every step is one write: the order is an annotation
of it, the next key stands beside the present one, and the write that makes the next key the present one takes the order
away.
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
"""The annotation that says until when peers that are away are waited for, RFC 3339."""
PROGRESS: Final = "discovery.liqo.io/rotate-key-progress"
"""The annotation in which the daemon says, in a sentence, how far it is."""
MAX_WITHIN: Final = 365 * 86400.0


@attrs.frozen
class Order:
    """``within``: seconds that peers that are away have to come and hear of the key; None: as the settings say."""

    within: float | None = None

    def render(self) -> str:
        """Return the order as the annotation holds it."""
        return msgspec.json.encode(_Written(self.within)).decode()


class _Written(View, frozen=True):
    within: float | None = None


def order_of(annotations: Mapping[str, str]) -> Order | None:
    """Return the order that the Secret carries, None when there is none; one that cannot be read is an ordinary one."""
    text = annotations.get(ORDER)
    if text is None:
        return None
    try:
        within = msgspec.json.decode(text, type=_Written).within
    except msgspec.MsgspecError:
        return Order()
    return Order(within if within is not None and 0 <= within <= MAX_WITHIN else None)
