"""Credentials: issued to borrowers that accepted our offer, and stored for lenders whose offers we accepted.

The lender renews a credential at two thirds of its lifetime. In a new session the same one is sent again, so that a
flapping session requests no tokens. The borrower stores the newest one in a Secret. While the lender's offer is not
accepted, its credential stays in memory only: a lender that knows of an earlier acceptance sends it as soon as there
is a session, which may be before the offer is accepted again.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import attrs
import msgspec

from liqod.audit.events import AuditEvent
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import NAMESPACES, SECRETS
from liqod.model.api_url import OwnAddresses, api_url_problem
from liqod.model.ids import ClusterID
from liqod.model.names import CREDENTIAL_SECRET, REMOTE_CLUSTER_LABEL, TENANT_NAMESPACE_LABEL, tenant_namespace
from liqod.model.objects.granted_namespace import is_tenant_namespace
from liqod.model.objects.meta import Object
from liqod.model.records.offer import AccessGrant, Refusal, tenant_namespace_taken
from liqod.model.records.unpeering import is_trust_withdrawn, order_of
from liqod.model.timestamps import rfc3339
from liqod.peering.changes import Change, Queue
from liqod.peering.controller import PeerController, PeeringContext
from liqod.peering.ports import Tenants
from liqod.peering.records.directions import DirectionPolicy
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.session.lifecycle import Admitted, Dismissed, Withdrawing, has_finished
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import RELAY, PeerConnection
from liqod.wire.events import Credential

RETRY: Final = int(Backoff().longest)
"""Seconds after which a lender that refused is asked again at the latest: the back-off of the queue."""
MIN_LIFETIME: Final = 60
MAX_LIFETIME: Final = 86400 * 7
_UNKNOWN: Final = OwnAddresses()


@attrs.define
class _Issued:
    """An issued credential; ``sent_through`` is the session it was sent in."""

    grant: AccessGrant = attrs.field(repr=False)
    minted: float
    sent_through: PeerConnection | None = None

    @property
    def renewal(self) -> float:
        # A third is left for a peer that is away; kubelets renew projected tokens at 80 % of their life.
        return self.minted + self.grant.lifetime * 2 / 3


@attrs.define
class _Rights:
    """The credential of one peer; ``settled``: this very daemon granted or revoked its rights."""

    issued: _Issued | None = None
    settled: bool = False


class CredentialIssuer(PeerController):
    """The lender's side: admits borrowers that accepted an offer, dismisses those that no longer accept it."""

    name = "grants"
    queue = Queue.GRANT

    def __init__(
        self,
        context: PeeringContext,
        records: ForeignClusters,
        tenants: Tenants,
        directions: DirectionPolicy,
    ) -> None:
        super().__init__(context)
        self._records = records
        self._tenants = tenants
        self._directions = directions
        self._rights: dict[ClusterID, _Rights] = {}

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Grant or revoke the rights of one peer; returns when its credential must be renewed."""
        peer = self._peers.get(peer_id)
        if peer is None or peer.lent is None:
            return None
        rights = self._rights.setdefault(peer_id, _Rights())
        lends = self._directions.of(self._records.get(peer_id)).lends
        if lends and peer.lent.verdict == "Accepted":
            return await self._admit(peer, rights)
        if lends and peer.lent.verdict != "Refused":
            peer.lending = attrs.evolve(peer.lending, draining_since=None)
        owed = isinstance(peer.state, Withdrawing) and peer.state.dismissal_owed
        # The grant is recorded after the rights were created, and a daemon may have stopped between the two.
        granted = bool(peer.lent.tenant_namespace) or not rights.settled
        if owed or (granted and (not lends or peer.lent.verdict in ("Refused", "Withdrawn"))):
            left = self._time_left(peer)
            if left > 0:
                return After(left)
            rights.issued = None
            if await self._tenants.dismiss(peer_id):
                self._audit.record(AuditEvent("AccessRevoked", "Dismissed", peer=peer_id))
            rights.settled = True
            peer.advance(Dismissed())
            peer.lending = peer.lending.revoked()
            self._records.enqueue(peer_id)
        self._close(peer, rights)
        return None

    def _close(self, peer: Peer, rights: _Rights) -> None:
        """Record that nothing is lent: an untrusted peer has no session in which the offer could be withdrawn."""
        record = self._records.get(peer.id)
        if record is None or peer.lent is None or not is_trust_withdrawn(record) or peer.lent.verdict == "Withdrawn":
            return
        rights.issued = None
        peer.lending = peer.lending.retracted("TrustWithdrawn")
        self._records.enqueue(peer.id)

    def _time_left(self, peer: Peer) -> float:
        """Return the seconds left for a borrower to drain its pods: 0 without trust, or once it has finished."""
        record = self._records.get(peer.id)
        if record is None or not record.spec.fingerprint or peer.lending.acknowledged or has_finished(peer.state):
            return 0.0
        if peer.lending.verdict == "Refused":
            return 0.0  # the borrower acknowledges the withdrawal once it has drained its pods
        now = self._clock.seconds()
        if (since := peer.lending.draining_since) is None:
            since = peer.state.since if isinstance(peer.state, Withdrawing) else now
            peer.lending = attrs.evolve(peer.lending, draining_since=since)
        wait = order_of(record.metadata.annotations).wait(connected=peer.session is not None)
        return since + wait - now

    async def _admit(self, peer: Peer, rights: _Rights) -> After | None:
        connection, lent = peer.session, peer.lent
        if connection is None or lent is None:
            return None  # enqueued again when there is a session
        now = self._clock.seconds()
        issued = rights.issued
        # A borrower may change its verdict at any rate: each time its rights are revoked at once, and granted later.
        if issued is None and (wait := self.begin_write(peer.id)) is not None:
            return wait
        if issued is None or now >= issued.renewal:
            peer.lending = attrs.evolve(peer.lending, admitting=True)
            rights.settled = False
            try:
                grant = await self._tenants.admit(peer.id, lent.resources)
            except Exception as error:
                self.nothing_written(peer.id)  # what fails has the back-off of the queue
                if isinstance(error, Refusal):
                    self._trouble(peer, f"cannot make room for the peer: {error.message}; tried again within {RETRY} s")
                raise
            finally:
                peer.lending = attrs.evolve(peer.lending, admitting=False)
            if peer.lent is None:
                # The record was deleted during the request: what was granted since belongs to no peering.
                await self._tenants.dismiss(peer.id)
                return None
            rights.settled = True
            peer.advance(Admitted())
            self._trouble(peer, "")
            now = self._clock.seconds()
            issued = rights.issued = _Issued(grant, now)
            # The record may have changed during the request; this controller writes only this field.
            if peer.lent.tenant_namespace != grant.namespace:
                self._audit.record(
                    AuditEvent("AccessGranted", "Admitted", peer=peer.id, object=f"namespace/{grant.namespace}")
                )
                peer.lending = peer.lending.granted(grant.namespace)
                self._records.enqueue(peer.id)
        if peer.session is not None and issued.sent_through is not peer.session:
            if not self._understands(peer.session, issued.grant):
                self._trouble(
                    peer, "the peer does not know the API relay, and [peering] api = relay offers nothing else"
                )
            elif peer.session.send(self._event(issued, now)):
                issued.sent_through = peer.session
        return After(max(1.0, issued.renewal - now))

    def left_over(self, peer: ClusterID) -> None:
        """Revoke the rights of a peer once more: a namespace was granted while they ended."""
        if (rights := self._rights.get(peer)) is not None:
            rights.settled = False
        self.enqueue(peer)

    def resend(self, peer: ClusterID) -> None:
        """Send the credential again: a peer that accepted again may have dropped the one it had."""
        rights = self._rights.get(peer)
        if rights is not None and rights.issued is not None:
            rights.issued.sent_through = None

    def _trouble(self, peer: Peer, text: str) -> None:
        if peer.lending.trouble != text:
            peer.lending = attrs.evolve(peer.lending, trouble=text)
            self._records.enqueue(peer.id)

    def _understands(self, session: PeerConnection, grant: AccessGrant) -> bool:
        """Return whether a peer can use a grant: a release without the relay needs a URL."""
        hello = session.peer_hello if not grant.api_url else None
        return hello is None or RELAY in hello.features

    def _event(self, issued: _Issued, now: float) -> Credential:
        left = max(1, int(issued.minted + issued.grant.lifetime - now))
        grant = issued.grant
        return Credential(grant.api_url, grant.ca, grant.token, left, grant.namespace, grant.relay)

    def forget(self, peer: ClusterID) -> None:
        """Drop the state of a peer whose record is gone."""
        super().forget(peer)
        self._rights.pop(peer, None)


class CredentialStore(PeerController):
    """The borrower's side: stores the newest credential of each lender."""

    name = "credentials"

    def __init__(self, context: PeeringContext, own: OwnAddresses = _UNKNOWN) -> None:
        super().__init__(context)
        self._own = own
        self._newest: dict[ClusterID, tuple[Credential, float]] = {}
        self._unaccepted: dict[ClusterID, tuple[Credential, float]] = {}

    def received(self, peer: Peer, credential: Credential, *, accepted: bool) -> None:
        """Take in a credential; an invalid one is dropped.

        One from a peer whose offer is not accepted waits in memory until it is.
        """
        problem = ""
        if not MIN_LIFETIME <= credential.lifetime <= MAX_LIFETIME:
            problem = f"a lifetime of {credential.lifetime} seconds"
        if credential.api_url or not credential.relay:
            problem = api_url_problem(credential.api_url) or problem
        if credential.api_url and not problem and (mine := self._own.problem(credential.api_url)):
            if credential.relay:
                # Clusters of the same private addresses reach each other over the relay alone.
                credential = msgspec.structs.replace(credential, api_url="", token="")
            else:
                problem = mine
        if problem:
            self._refusals.record("BadCredential", peer.id, f"a credential was dropped: {problem}")
            return
        if not accepted:
            self._unaccepted[peer.id] = (credential, self._clock.seconds())
            return
        self._unaccepted.pop(peer.id, None)
        self._newest[peer.id] = (credential, self._clock.seconds())
        if peer.id not in self.failing:  # else the next attempt takes it: a peer does not set their pace
            self.enqueue(peer.id)

    def offer_accepted(self, peer: Peer) -> None:
        """Store the credential that waits for the acceptance of the peer's offer, unless it is about to expire."""
        waiting = self._unaccepted.pop(peer.id, None)
        if waiting is not None and waiting[1] + waiting[0].lifetime - self._clock.seconds() >= MIN_LIFETIME:
            self._newest[peer.id] = waiting
            self.enqueue(peer.id)

    def forget(self, peer: ClusterID) -> None:
        """Drop the credential that waits in memory: the record is gone, or the key is no longer trusted."""
        super().forget(peer)
        self._unaccepted.pop(peer, None)
        self._newest.pop(peer, None)

    async def reconcile(self, peer_id: ClusterID) -> After | None:
        """Write the newest credential of one peer to its Secret; returns when, if one was written just before."""
        newest = self._newest.get(peer_id)
        peer = self._peers.get(peer_id)
        if newest is None or peer is None:
            return None
        if (wait := self.begin_write(peer_id)) is not None:
            return wait
        try:
            await self._write(peer, *newest)
        except Exception:
            self.nothing_written(peer_id)  # what fails has the back-off of the queue
            raise
        later = self._newest.get(peer_id)
        if later is None:
            # ``forget`` was called during the write: delete what was written.
            await self.delete(peer)
            return None
        if later is newest:
            del self._newest[peer_id]
        peer.credential = True
        self._changes.notify(Change.CREDENTIAL_STORED, peer_id)
        return None

    async def _write(self, peer: Peer, credential: Credential, at: float) -> None:
        """Write a credential that came ``at`` a time of the reactor's clock."""
        namespace = tenant_namespace(peer.id)
        came = wall_clock(self._clock)() - timedelta(seconds=self._clock.seconds() - at)
        data = secret_data(credential, came)
        if peer.credential and await self._renew(namespace, data):
            return
        await ensure_namespace(self._client, peer.id)
        body = {
            "metadata": {
                "name": CREDENTIAL_SECRET,
                "namespace": namespace,
                "labels": {REMOTE_CLUSTER_LABEL: peer.id},
            },
            "type": "Opaque",
            "data": data,
        }
        try:
            await self._client.create(SECRETS, body, view=None)
        except AlreadyExists:  # 409 of a create: it exists by now
            # ``data`` of a merge patch is merged by key (RFC 7396): keys of other writers stay as well.
            await self._renew(namespace, data)

    async def _renew(self, namespace: str, data: Mapping[str, str]) -> bool:
        try:
            # A patch of the data alone: labels and annotations of other writers are preserved.
            await self._client.patch(SECRETS, CREDENTIAL_SECRET, {"data": data}, namespace, view=None)
        except NotFound:
            return False
        return True

    async def exists(self, peer: Peer) -> bool:
        """Return whether the peer's Secret exists; it is read from the API server once, then remembered.

        Raises Refusal (NamespaceTaken) where it lies in a namespace that somebody else made: it may be theirs.
        """
        if peer.credential is None:
            try:
                await self._client.get(SECRETS, CREDENTIAL_SECRET, tenant_namespace(peer.id), view=None)
            except NotFound:
                peer.credential = False
            else:
                await _check_namespace(self._client, peer.id)
                peer.credential = True
        return peer.credential

    async def delete(self, peer: Peer) -> None:
        """Delete the stored credential of a peer."""
        self._newest.pop(peer.id, None)
        await self._client.delete(SECRETS, CREDENTIAL_SECRET, tenant_namespace(peer.id))
        peer.credential = False


def secret_data(credential: Credential, at: datetime) -> dict[str, str]:
    """Return the data of the Secret for a credential received ``at`` a date of our clock.

    Keys: api-url, ca.crt, token, namespace, relay, expires-at (RFC 3339).
    """
    texts = {
        "api-url": credential.api_url,
        "ca.crt": credential.ca,
        "token": credential.token,
        "namespace": credential.namespace,
        "relay": "true" if credential.relay else "",
        "expires-at": rfc3339(at + timedelta(seconds=credential.lifetime)),
    }
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


async def ensure_namespace(client: Client, peer: ClusterID) -> None:
    """Create the tenant namespace of a peer unless it exists.

    Raises Refusal (NamespaceTaken) where somebody else made it, who might read or replace what lies in it.
    """
    name = tenant_namespace(peer)
    body = {"metadata": {"name": name, "labels": {REMOTE_CLUSTER_LABEL: peer, TENANT_NAMESPACE_LABEL: "true"}}}
    try:
        await client.create(NAMESPACES, body, view=None)
    except AlreadyExists:
        await _check_namespace(client, peer)


async def _check_namespace(client: Client, peer: ClusterID) -> None:
    if not is_tenant_namespace(await client.get(NAMESPACES, tenant_namespace(peer), view=Object), peer):
        raise tenant_namespace_taken(peer)
