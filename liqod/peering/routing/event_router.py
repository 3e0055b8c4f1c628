"""Routes events of peer sessions to the controllers that handle them."""

from __future__ import annotations

from liqod.identity.fingerprint_words import words
from liqod.kube.events import Recorder
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.records.views import ForeignCluster
from liqod.peering.borrowing.acceptance_loop import is_seated
from liqod.peering.changes import Change, Changes
from liqod.peering.exchange.names import NameResponses
from liqod.peering.lending.advertiser import UNPEERED
from liqod.peering.records.events import reference
from liqod.peering.relay.splice.service import Streams
from liqod.peering.routing.controllers import Controllers
from liqod.peering.session.lifecycle import (
    Action,
    LifecycleEvent,
    SessionClosed,
    SessionOpened,
    Unpeered,
    UnpeeredByPeer,
    WithdrawReceived,
    ever_connected,
)
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.wire.events import (
    Advertise,
    AskSlice,
    Credential,
    DirectAgree,
    DirectAsk,
    DirectEnd,
    DirectOffer,
    Event,
    KeepStreams,
    KeyNoted,
    MapNamespace,
    NameAnswer,
    NameQuery,
    NamespaceMapped,
    Network,
    NetworkAck,
    NewKey,
    ReleaseNamespace,
    RemoveSlice,
    SliceDecided,
    StreamsKept,
    Verdict,
    Withdraw,
    Withdrawn,
)


class EventRouter:
    """Implements ``sessions.SessionSubscriber``: routes opened and closed sessions, and each protocol event."""

    def __init__(
        self,
        controllers: Controllers,
        changes: Changes,
        recorder: Recorder,
        *,
        own: ClusterID,
        streams: Streams,
        responses: NameResponses,
    ) -> None:
        self._own = own
        self._controllers = controllers
        self._changes = changes
        self._recorder = recorder
        self._streams = streams
        self._responses = responses

    def session_opened(self, peer: Peer) -> None:
        self._advance(peer, SessionOpened())
        self._changes.notify(Change.SESSION_OPENED, peer.id)
        self._streams.session_opened(peer)

    def session_closed(self, peer: Peer, connection: PeerConnection, *, unresponsive: bool) -> None:
        self._advance(peer, SessionClosed(unresponsive))
        self._streams.session_closed(peer.id)
        self._controllers.borrowing.namespace_requests.session_closed(connection)
        self._controllers.lending.name_queries.session_closed(connection)

    def session_replaced(self, peer: Peer, connection: PeerConnection) -> None:
        self._controllers.borrowing.namespace_requests.session_closed(connection)
        self._controllers.lending.name_queries.session_closed(connection)

    def event_received(self, peer: Peer, connection: PeerConnection, event: Event) -> None:
        match event:
            case NewKey():
                self._controllers.trust.next_keys.announcement_received(peer, connection, event)
            case KeyNoted():
                self._controllers.trust.rotation.noted(peer, event)
            case AskSlice() | RemoveSlice():
                self._controllers.lending.slice_grants.request_received(peer, connection, event)
            case SliceDecided():
                self._controllers.borrowing.slice_requests.decision_received(peer, event)
            case MapNamespace() | ReleaseNamespace():
                self._controllers.lending.namespace_responses.request_received(peer, connection, event)
            case Network() | NetworkAck():
                self._controllers.networks.event_received(peer, event)
            case DirectOffer() | DirectAsk() | DirectAgree() | DirectEnd():
                self._route_direct(peer, connection, event)
            case KeepStreams() | StreamsKept():
                self._streams.event_received(peer, connection, event)
            case NameQuery():
                self._responses.query_received(peer, connection, event)
            case NameAnswer():
                self._controllers.lending.name_queries.answer_received(connection, event)
            case NamespaceMapped():
                self._controllers.borrowing.namespace_requests.response_received(connection, event)
            case _:
                self._route_offer_event(peer, connection, event)

    def _route_direct(
        self, peer: Peer, connection: PeerConnection, event: DirectOffer | DirectAsk | DirectAgree | DirectEnd
    ) -> None:
        """Route by what the sender is: a lender of ours, a home that borrows here, or the other lender of a home."""
        if (direct := self._controllers.direct) is None:
            return
        is_ours = event.home == self._own
        match event:
            case DirectOffer():
                if is_ours:
                    direct.borrowing.offer_received(peer, event)
            case DirectAsk():
                direct.lending.ask_received(peer, connection, event)
            case DirectAgree() if is_ours:
                direct.borrowing.answer_received(peer, event)
            case DirectEnd() if is_ours:
                direct.borrowing.end_received(peer, event)
            case DirectEnd() if event.home == peer.id:
                direct.lending.home_ended(peer, event)
            case _ if event.peer == self._own:
                direct.lending.lender_said(peer, connection, event)
            case _:
                pass

    def _route_offer_event(self, peer: Peer, connection: PeerConnection, event: Event) -> None:
        match event:
            case Advertise():
                self._controllers.borrowing.advertisements.offer_received(peer, event)
            case Verdict():
                before = peer.lending.verdict
                if self._controllers.lending.advertiser.verdict_received(peer, event):
                    if event.decision == "Accepted" and before != "Accepted":
                        self._controllers.lending.credential_issuer.resend(peer.id)
                    self._changes.notify(Change.VERDICT_RECEIVED, peer.id)
            case Credential():
                offer = self._controllers.records.offer_of(peer.id)
                self._controllers.borrowing.credential_store.received(
                    peer, event, accepted=offer is not None and is_seated(offer)
                )
            case Withdraw() | Withdrawn():
                self._withdrawal(peer, connection, event)
            case _:
                pass

    def _withdrawal(self, peer: Peer, connection: PeerConnection, event: Withdraw | Withdrawn) -> None:
        match event:
            case Withdraw(role="lender"):
                self._advance(peer, WithdrawReceived(event.epoch, unpeering=event.reason == UNPEERED))
                self._controllers.borrowing.advertisements.offer_withdrawn(peer, event.reason)
                if self._controllers.records.offer_of(peer.id) is None:
                    self._controllers.unpeering.acknowledge(peer)
            case Withdraw():
                self._borrower_left(peer)
                connection.send(Withdrawn(event.epoch, "borrower"))
            case Withdrawn(role="lender"):
                before = peer.lending
                peer.lending = before.withdrawal_acknowledged(connection)
                if peer.lending is not before:
                    self._changes.notify(Change.HANDED_BACK, peer.id)
            case _:
                pass

    def _borrower_left(self, peer: Peer) -> None:
        """Record that the borrower no longer uses what we lend."""
        if peer.lent is not None:
            peer.lending = peer.lending.answered("Refused", "WithdrawnByBorrower")
            self._changes.notify(Change.BORROWER_LEFT, peer.id)

    def has_peering(self, peer: Peer) -> bool:
        record, offer = self._controllers.records.get(peer.id), self._controllers.records.offer_of(peer.id)
        if record is None or record.metadata.deleting:
            return True
        return (
            ever_connected(peer.state)
            or peer.lent is not None
            or offer is not None
            or bool(self._controllers.leftovers.of(peer.id))
        )

    def peer_unpeered(self, peer: Peer) -> None:
        self._advance(peer, UnpeeredByPeer())
        self._changes.notify(Change.PEER_FINISHED, peer.id)

    def _advance(self, peer: Peer, event: LifecycleEvent) -> None:
        before = peer.state
        if Action.FOLLOW not in peer.advance(event):
            return
        self._changes.notify(Change.PEER_UNPEERED, peer.id)
        record = self._controllers.records.get(peer.id)
        if record is not None and not isinstance(before, Unpeered):
            message = f"{peer.name or peer.id} ended the peering; it is removed here"
            self._record_event(record, "Normal", "UnpeeredByPeer", message)

    def key_mismatch(self, peer: ClusterID, seen: Fingerprint) -> None:
        record = self._controllers.records.get(peer)
        if record is None:
            return
        message = f"another key ({seen}) claims to be {peer}; it was refused, the pinned one stays"
        self._record_event(record, "Warning", "ClusterIDRepetition", message)

    def key_rotated(self, peer: ClusterID, new: Fingerprint) -> None:
        """Record a Kubernetes Event: the peer uses the key that it announced."""
        record = self._controllers.records.get(peer)
        if record is not None:
            message = f"{peer} has a new key, which it had announced: {words(new)}; the previous one is no longer valid"
            self._record_event(record, "Normal", "KeyRotated", message)

    def _record_event(self, record: ForeignCluster, type: str, reason: str, message: str) -> None:
        self._recorder.record_event(reference(record), type, reason, message)
