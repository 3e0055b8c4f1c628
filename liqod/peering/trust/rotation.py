"""Rotates this cluster's own key: observes the Secret and the peers, decides, takes one step.

The Secret is authoritative: the leading daemon uses the key that it holds. Each step is one write conditional on the
resourceVersion, so that a daemon may stop between any two steps and another continues.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

from twisted.logger import Logger

from liqod.audit.events import AuditEvent
from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After, Controller, Source, watch
from liqod.flow.observe import Latest
from liqod.identity.certs import IdentityError, KeyPair, generate
from liqod.identity.fingerprint_words import words
from liqod.identity.rotation import (
    Drop,
    Kept,
    Make,
    Promote,
    Rest,
    TrustingPeer,
    Wait,
    announce,
    decide,
)
from liqod.identity.rotation import fingerprint_of as fingerprint_of_raw
from liqod.identity.store import from_secret, to_secret
from liqod.identity.tls import NEW_KEY
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.errors import Conflict, NotFound
from liqod.kube.resources import SECRETS
from liqod.model.ids import ClusterID, Key
from liqod.model.records import rotation as recorded
from liqod.model.timestamps import from_epoch, parse_rfc3339, rfc3339
from liqod.peering.changes import Queue, mapped
from liqod.peering.controller import PeeringContext
from liqod.peering.ports import OwnCluster
from liqod.peering.records.foreignclusters import ForeignClusters
from liqod.peering.records.status import was_authenticated
from liqod.peering.session.lifecycle import ever_connected
from liqod.peering.session.peer import Peer
from liqod.peering.session.protocol import PeerConnection
from liqod.peering.trust.pairing import Secret
from liqod.wire.events import KeyNoted, NewKey

SINCE_MINOR: Final = 1
"""The minor version of liqod/1 that added NewKey."""
NAMED: Final = 8
"""Peers that a message names at most."""
OWN: Final = "own"


class KeyRotation(Controller[str]):
    """Rotates the key on request. ``within``: seconds to wait for unreachable peers, unless the request sets another;
    ``in_files``: the key is in files, managed by an administrator.
    """

    name = "key rotation"

    _log = Logger()

    def __init__(
        self,
        context: PeeringContext,
        *,
        informers: Informers,
        namespace: str,
        cluster: OwnCluster,
        records: ForeignClusters,
        within: float,
        in_files: bool,
    ) -> None:
        super().__init__(context.clock, metrics=context.metrics)
        self.own_key = Latest(cluster.tls.keypair.fingerprint)
        """The fingerprint of the key in use."""
        self.informer = informers.of(
            SECRETS, Secret, namespace=namespace, fields=f"metadata.name={recorded.IDENTITY_SECRET}"
        )
        self._client = context.client
        self._clock = context.clock
        self._changes = context.changes
        self._key = Key(namespace, recorded.IDENTITY_SECRET)
        self._audit = context.audit
        self._me = cluster.id
        self._tls = cluster.tls
        self._peers = context.peers
        self._records = records
        self._within = within
        self._in_files = in_files
        self._next_key: KeyPair | None = None
        self._announced: dict[ClusterID, tuple[PeerConnection, str]] = {}

    def sources(self) -> Iterable[Source[str]]:
        """Return the Secret with the key, and the peers that connect while a next key is to be announced."""
        yield watch(self.informer, lambda key, old, new: (OWN,))
        yield mapped(self._changes.of(Queue.KEY_ROTATION), lambda peer: (OWN,) if self._next_key is not None else ())

    async def load(self) -> None:
        """Use the key of the Secret; to be awaited before the first connection is made with it."""
        await self.informer.when_synced()
        self._use_key(self.informer.get(self._key))

    def noted(self, peer: Peer, event: KeyNoted) -> None:
        """Record a peer's answer to an announcement."""
        following = self._next_key
        if following is None or not event.public_key or fingerprint_of_raw(event.public_key) != following.fingerprint:
            return
        if event.reason:
            self._log.warn(
                "{peer} does not take our next key: {error}", peer=peer.id, error=event.message or event.reason
            )
            return
        peer.knows_key = following.fingerprint
        self._records.enqueue(peer.id)
        self.enqueue(OWN)

    async def reconcile(self, _: str) -> After | None:
        """Take the next step; returns when to reconcile again, None for the next event."""
        secret = self.informer.get(self._key)
        if secret is None:
            return None
        order = recorded.order_of(secret.metadata.annotations)
        if self._in_files:
            if order is not None:
                sentence = (
                    "the key is in files named under [identity]: replace these; every peer must trust the new one"
                )
                await self._write(secret, {}, {recorded.ORDER: None, recorded.PROGRESS: sentence})
            return None
        if not self._use_key(secret):
            return None
        self._next_key = following = _next_of(secret)
        until = parse_rfc3339(secret.metadata.annotations.get(recorded.UNTIL))
        # Wall-clock time: the request and its deadline are in the Secret, and another daemon may take the next step.
        now = wall_clock(self._clock)().timestamp()
        kept = Kept(
            following.fingerprint if following is not None else "",
            order,
            until.timestamp() if until is not None else None,
        )
        step = decide(kept, self._audience(following), now)
        match step:
            case Rest():
                return None
            case Make():
                return await self._make(secret, order or recorded.RotationOrder(), now)
            case Drop():
                return await self._drop(secret)
            case Wait(missing, wake):
                self._announce()
                progress = f"waiting until {rfc3339(from_epoch(wake))} for {_named(missing)} to note the next key"
                if secret.metadata.annotations.get(recorded.PROGRESS) != progress:
                    return await self._write(secret, {}, {recorded.PROGRESS: progress}) or After(max(0.1, wake - now))
                return After(max(0.1, wake - now))
            case Promote(left_behind):
                return await self._promote(secret, left_behind)

    def _use_key(self, secret: Secret | None) -> bool:
        """Use the key in the Secret; returns False, and changes nothing, when it holds no usable key."""
        if self._in_files or secret is None:
            return False
        try:
            kept = from_secret(secret.data)
        except IdentityError as error:
            self._log.error("the cluster's key is not used as it is now: {error}", error=str(error))
            return False
        former = self._tls.keypair
        if kept != former:
            self._tls.use(kept)
        if kept.fingerprint != former.fingerprint:
            self._announced.clear()
            self._log.info("this cluster's key is now {words}", words=words(kept.fingerprint))
            self._audit.record(AuditEvent("KeyChanged", "OwnKey", peer=self._me, fingerprint=kept.fingerprint))
            self.own_key.set(kept.fingerprint)
        return True

    def _audience(self, following: KeyPair | None) -> list[TrustingPeer]:
        found = []
        wanted = following.fingerprint if following is not None else ""
        for record in self._records.clusters.items():
            peer = self._peers.get(ClusterID(record.metadata.name))
            if peer is None or not record.spec.fingerprint or record.metadata.deleting:
                continue
            if not ever_connected(peer.state) and not was_authenticated(record):
                continue  # it has never trusted us, so it has no key of ours on record
            session = peer.session
            knows = peer.knows_key or record.status.knows_key
            found.append(
                TrustingPeer(
                    peer.name or peer.id,
                    connected=session is not None,
                    able=session is not None and session.minor >= SINCE_MINOR,
                    knows=bool(wanted) and knows == wanted,
                )
            )
        return sorted(found, key=lambda one: one.name)

    def _announce(self) -> None:
        following = self._next_key
        if following is None:
            return
        for peer in self._peers.values():
            session = peer.session
            if session is None or session.minor < SINCE_MINOR or peer.knows_key == following.fingerprint:
                continue
            if self._announced.get(peer.id) == (session, following.fingerprint):
                continue
            present = self._tls.keypair.fingerprint
            public_key, proof = announce(following, self._me, present, session.binding(NEW_KEY))
            if session.send(NewKey(public_key, proof)):
                self._announced[peer.id] = (session, following.fingerprint)

    async def _make(self, secret: Secret, order: recorded.RotationOrder, now: float) -> After | None:
        made = generate(self._me, from_epoch(now))
        data = to_secret(made)
        within = order.within if order.within is not None else self._within
        self._log.info("made the cluster's next key {words}", words=words(made.fingerprint))
        return await self._write(
            secret,
            {recorded.NEXT_KEY: data[recorded.KEY], recorded.NEXT_CERTIFICATE: data[recorded.CERTIFICATE]},
            {recorded.UNTIL: rfc3339(from_epoch(now + within)), recorded.PROGRESS: "the next key is made"},
        )

    async def _drop(self, secret: Secret) -> After | None:
        self._next_key = None
        for peer in self._peers.values():
            if peer.id in self._announced and peer.session is not None and peer.session.minor >= SINCE_MINOR:
                peer.session.send(NewKey(""))
            peer.knows_key = ""
        self._announced.clear()
        self._log.info("the rotation of the cluster's key was taken back")
        return await self._write(
            secret,
            {recorded.NEXT_KEY: None, recorded.NEXT_CERTIFICATE: None},
            {recorded.UNTIL: None, recorded.PROGRESS: "taken back: the key stays"},
        )

    async def _promote(self, secret: Secret, left_behind: tuple[str, ...]) -> After | None:
        following = self._next_key
        if following is None:
            return After(0.1)
        progress = f"done: the key's words are {words(following.fingerprint)}"
        if left_behind:
            progress += f"; {_named(left_behind)} did not learn of it and must trust this cluster again"
        data = to_secret(following)
        return await self._write(
            secret,
            {**data, recorded.NEXT_KEY: None, recorded.NEXT_CERTIFICATE: None},
            {recorded.ORDER: None, recorded.UNTIL: None, recorded.PROGRESS: progress},
        )

    async def _write(
        self, secret: Secret, data: Mapping[str, str | None], annotations: Mapping[str, str | None]
    ) -> After | None:
        """Write the Secret with its resourceVersion as precondition; a conflict (409) is retried."""
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": secret.metadata.resource_version, "annotations": dict(annotations)}
        }
        if data:
            patch["data"] = dict(data)
        try:
            await self._client.patch(SECRETS, self._key.name, patch, self._key.namespace, view=None)
        except (Conflict, NotFound):
            return After(0.1)
        return None


def _next_of(secret: Secret) -> KeyPair | None:
    data = secret.data
    if recorded.NEXT_KEY not in data:
        return None
    pair = {
        recorded.KEY: data[recorded.NEXT_KEY],
        recorded.CERTIFICATE: data.get(recorded.NEXT_CERTIFICATE, base64.b64encode(b"").decode()),
    }
    try:
        return from_secret(pair)
    except IdentityError:
        return None  # unusable: another one is generated


def _named(peers: tuple[str, ...]) -> str:
    rest = len(peers) - NAMED
    return ", ".join(peers[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
