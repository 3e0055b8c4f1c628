"""Which directions of a peering are wanted: by the settings, and by the record of the peer. Pure."""

from __future__ import annotations

import attrs

from liqod.model.records.unpeering import is_trust_withdrawn
from liqod.model.records.views import ForeignCluster, Switch


@attrs.frozen
class Directions:
    """Whether this cluster lends to a peer, and whether it borrows from it."""

    lends: bool
    borrows: bool


NEITHER = Directions(lends=False, borrows=False)


@attrs.frozen
class DirectionPolicy:
    """The switches of the settings, which a record may override: ``incoming`` to lend, ``outgoing`` to borrow."""

    incoming: Switch
    outgoing: Switch

    def of(self, record: ForeignCluster | None) -> Directions:
        """Return the wanted directions of a peer; neither when the peering ends or its key is no longer trusted."""
        if record is None:
            return Directions(is_on("Auto", self.incoming), is_on("Auto", self.outgoing))
        if record.metadata.deleting or is_trust_withdrawn(record):
            return NEITHER
        spec = record.spec
        return Directions(
            is_on(spec.incoming_peering, self.incoming),
            is_on(spec.outgoing_peering, self.outgoing),
        )


def is_on(switch: Switch, default: Switch) -> bool:
    """Return whether a direction is wanted: ``Auto`` follows the settings, where Auto means yes."""
    return (default if switch == "Auto" else switch) != "No"
