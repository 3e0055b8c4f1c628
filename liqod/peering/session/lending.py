"""The lending direction with one peer as one frozen value: what is on offer, and how its end goes. Pure.

It belongs to the ForeignCluster of the peer, and is dropped with it as a whole. ``Lent`` is its part on record, the
rest is valid in this process only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import msgspec

from liqod.model.records.views import Lent, LentSlice
from liqod.peering.session.protocol import PeerConnection


@attrs.frozen
class Withdrawal:
    """Our withdrawal of what we lend: the session it was sent ``through``, and whether the peer acknowledged it."""

    through: PeerConnection
    reason: str
    acknowledged: bool = False


@attrs.frozen(kw_only=True)
class Lending:
    """What this cluster lends to one peer.

    ``lent``: the offer on record with the peer's verdict and namespace, None without one. ``trouble``: why a peer that
    accepted gets no access. ``admitting``: its rights are being granted. ``draining_since``: since when it has time to
    drain its pods, in seconds of the reactor's clock.
    """

    lent: Lent | None = None
    trouble: str = ""
    admitting: bool = False
    withdrawal: Withdrawal | None = None
    draining_since: float | None = None

    @property
    def acknowledged(self) -> bool:
        """Whether the peer acknowledged our withdrawal: it uses nothing that we lent."""
        return self.withdrawal is not None and self.withdrawal.acknowledged

    @property
    def verdict(self) -> str:
        """The peer's verdict on our offer, empty without one."""
        return self.lent.verdict if self.lent is not None else ""

    @property
    def namespace(self) -> str:
        """The peer's tenant namespace, empty while it has no rights."""
        return self.lent.tenant_namespace if self.lent is not None else ""

    @property
    def slices(self) -> Sequence[LentSlice]:
        """The slices on record, the oldest first."""
        return self.lent.slices if self.lent is not None else ()

    def offered(self, resources: Mapping[str, str], epoch: int, seq: int) -> Lending:
        """Return the state with an offer on record; an earlier verdict holds, unless the offer was withdrawn since."""
        lent = Lent(
            resources=dict(resources),
            epoch=epoch,
            seq=seq,
            tenant_namespace=self.namespace,
            slices=list(self.slices),
        )
        if self.lent is not None and self.lent.verdict != "Withdrawn":
            lent = msgspec.structs.replace(lent, verdict=self.lent.verdict, reason=self.lent.reason)
        return attrs.evolve(self, lent=lent)

    def answered(self, verdict: str, reason: str) -> Lending:
        """Return the state after the peer's verdict; without an offer there is nothing to answer.

        Who refuses an offer gives its slices back.
        """
        given_back: dict[str, object] = {"slices": []} if verdict == "Refused" else {}
        return self._with(verdict=verdict, reason=reason, **given_back)

    def retracted(self, reason: str) -> Lending:
        """Return the state without an offer and slices; granted rights remain until they are revoked."""
        return self._with(resources={}, verdict="Withdrawn", reason=reason, slices=[])

    def sliced(self, slices: Sequence[LentSlice]) -> Lending:
        """Return the state with other slices."""
        return self._with(slices=list(slices))

    def granted(self, namespace: str) -> Lending:
        """Return the state with rights in a tenant namespace."""
        return self._with(tenant_namespace=namespace)

    def revoked(self) -> Lending:
        """Return the state without rights."""
        return self._with(tenant_namespace="")

    def withdrawal_sent(self, through: PeerConnection, reason: str) -> Lending:
        """Return the state after Withdraw was sent in a session."""
        return attrs.evolve(self, withdrawal=Withdrawal(through, reason))

    def withdrawal_acknowledged(self, through: PeerConnection) -> Lending:
        """Return the state after Withdrawn was received: it counts only in the session of the withdrawal."""
        if self.withdrawal is None or self.withdrawal.through is not through:
            return self
        return attrs.evolve(self, withdrawal=attrs.evolve(self.withdrawal, acknowledged=True))

    def is_withdrawn(self, through: PeerConnection, reason: str) -> bool:
        """Return whether no further Withdraw is due: the peer acknowledged it, or got it in this session."""
        sent = self.withdrawal
        return sent is not None and sent.reason == reason and (sent.acknowledged or sent.through is through)

    def _with(self, **changes: object) -> Lending:
        if self.lent is None:
            return self
        return attrs.evolve(self, lent=msgspec.structs.replace(self.lent, **changes))
