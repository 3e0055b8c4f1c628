"""Routes decisions about offers to what follows from them: the verdict, the virtual node, the status, the tokens."""

from __future__ import annotations

from twisted.logger import Logger

from liqod.acceptance.pipeline import Ruling
from liqod.flow.tasks import Tasks
from liqod.model.ids import ClusterID
from liqod.peering.changes import Change
from liqod.peering.controller import PeeringContext
from liqod.peering.routing.controllers import Controllers


class DecisionRouter:
    """Implements ``borrowing.acceptance_loop.DecisionSubscriber``."""

    _log = Logger()

    def __init__(self, context: PeeringContext, controllers: Controllers, tasks: Tasks) -> None:
        self._peers = context.peers
        self._changes = context.changes
        self._controllers = controllers
        self._tasks = tasks
        self._decided: dict[ClusterID, tuple[str, str]] = {}

    def forget(self, peer: ClusterID) -> None:
        """Drop the last decision about a peer: its Advertisement is gone."""
        self._decided.pop(peer, None)

    def offer_decided(self, peer: ClusterID, ruling: Ruling) -> None:
        known = self._peers.get(peer)
        if known is not None:
            self._controllers.borrowing.advertisements.send_verdict(known)
            self._controllers.unpeering.acknowledge(known)
            self._changes.notify(Change.OFFER_DECIDED, peer)
        before, decision = self._decided.get(peer), (ruling.phase, ruling.reason)
        self._decided[peer] = decision
        if before == decision:
            return
        self._changes.notify(Change.DECISION_CHANGED, peer)
        if ruling.phase == "Refused" and (key := self._controllers.records.pins.get(peer)) is not None:
            self._tasks.spawn(
                self._controllers.trust.records.tokens.revoke(key), f"revoking the pairing tokens of {peer}"
            )
        self._log.info("offer of {peer}: {phase} ({reason})", peer=peer, phase=ruling.phase, reason=ruling.reason)
