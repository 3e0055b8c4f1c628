"""The records of trust besides the pins: ended peerings, pairing tokens, and invitations from others."""

from __future__ import annotations

import attrs

from liqod.peering.records.tombstones import Tombstones
from liqod.peering.trust.pairing import Invitations, PairingTokens


@attrs.frozen
class TrustRecords:
    """What decides, besides the ForeignClusters, whether a key is trusted."""

    tombstones: Tombstones
    tokens: PairingTokens
    invitations: Invitations
