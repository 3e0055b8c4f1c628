"""Removes invitations that nobody can use any more.

An invitation goes with its session, or when the issuer refuses it; one whose issuer is never reached would stay. A
pairing token does not say when it expires, so each is kept for the longest life that a token can have.
"""

from __future__ import annotations

from collections.abc import Iterable

from twisted.logger import Logger

from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After, Controller, Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.resources import SECRETS
from liqod.model.ids import Key
from liqod.model.records.invitations import MAX_LIFE
from liqod.model.timestamps import parse_rfc3339
from liqod.peering.controller import PeeringContext
from liqod.peering.trust.pairing import Secret


class InvitationExpiry(Controller[Key]):
    """Deletes each invitation when the token in it has expired in any case."""

    name = "invitations"
    workers = 1
    _log = Logger()

    def __init__(self, context: PeeringContext, invitations: Informer[Secret]) -> None:
        super().__init__(context.clock, metrics=context.metrics)
        self._client = context.client
        self._invitations = invitations

    def sources(self) -> Iterable[Source[Key]]:
        """Return the invitations there are."""
        yield watch(self._invitations)

    async def reconcile(self, key: Key) -> After | None:
        """Delete an invitation that is old enough; returns when it will be."""
        found = self._invitations.get(key)
        made = parse_rfc3339(found.metadata.creation_timestamp or "") if found is not None else None
        if found is None or made is None:
            return None
        left = (made + MAX_LIFE - wall_clock(self.clock)()).total_seconds()
        if left > 0:
            return After(left)
        await self._client.delete(SECRETS, key.name, key.namespace, uid=found.metadata.uid)
        self._log.info("the invitation {name} was never used, and its token has expired: it is gone", name=key.name)
        return None
