"""The end of a peering: nothing is left on either side, whether the peer is there, slow, or gone for good."""

from __future__ import annotations

from typing import Any

from liqod.kube.errors import ApiError, NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    CONFIGMAPS,
    FOREIGNCLUSTERS,
    NAMESPACES,
    NODES,
    SECRETS,
    VIRTUALNODES,
)
from liqod.model.names import tenant_namespace
from liqod.model.objects.meta import Object
from liqod.model.records.unpeering import ORDER, TOMBSTONES
from liqod.wire.events import Credential
from tests.peering.clusters import PairCase, PeerCluster, settings

KINDS = (FOREIGNCLUSTERS, ADVERTISEMENTS, VIRTUALNODES, NODES, NAMESPACES, SECRETS, CONFIGMAPS)


class UnpeerCase(PairCase):
    """Two clusters that trust each other and lend both ways."""

    async def dump(self, side: PeerCluster) -> dict[str, dict[str, Any]]:
        """Return everything there is, without what every write changes."""
        found = {}
        for resource in KINDS:
            for body in (await side.admin.list(resource)).items:
                meta = body["metadata"]
                name = f"{resource} {meta.get('namespace', '')}/{meta['name']}"
                kept = {key: meta[key] for key in ("name", "namespace", "labels", "annotations") if key in meta}
                found[name] = {**{k: v for k, v in body.items() if k not in ("metadata", "status")}, "metadata": kept}
        return found

    async def peers(self) -> tuple[PeerCluster, PeerCluster]:
        alpha, beta = await self.pair()
        self.before = [await self.dump(side) for side in (alpha, beta)]
        await self.agree(alpha, beta)
        return alpha, beta

    async def agree(self, alpha: PeerCluster, beta: PeerCluster) -> None:
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)

    async def unpeer(self, side: PeerCluster, other: PeerCluster, order: str = "") -> None:
        """Do what ``liqodctl unpeer`` does."""
        if order:
            patch = {"metadata": {"annotations": {ORDER: order}}}
            await side.admin.patch(FOREIGNCLUSTERS, other.id, patch)
        await side.admin.delete(FOREIGNCLUSTERS, other.id)

    async def forgotten(self, side: PeerCluster, other: PeerCluster) -> None:
        async def gone() -> bool:
            try:
                record = await side.admin.get(FOREIGNCLUSTERS, other.id, view=Object)
            except NotFound:
                return True
            return not record.metadata.deleting and not record.metadata.finalizers

        await self.becomes(gone, f"{side.name} has no peering with {other.name} any more")


class UnpeerTests(UnpeerCase):
    """What is left, and when."""

    async def test_both_sides_are_as_they_were_before(self) -> None:
        """One side ends the peering: both API servers hold exactly what they held before."""
        alpha, beta = await self.peers()
        alpha.peering.update_candidates([])
        await self.unpeer(alpha, beta)
        await self.forgotten(alpha, beta)
        await self.forgotten(beta, alpha)
        self.assertEqual([await self.dump(side) for side in (alpha, beta)], self.before)
        self.assertEqual((alpha.room.dismissed, beta.room.dismissed), ([beta.id], [alpha.id]))
        self.assertEqual(alpha.peering.sessions() + beta.peering.sessions(), ())
        await self.is_reported(beta, "UnpeeredByPeer")
        await self.agree(alpha, beta)

    async def test_the_lender_waits_until_the_borrower_has_left(self) -> None:
        """Access ends only after the borrower's node is gone: its kubelet needs it while it empties the node."""
        alpha, beta = await self.peers()
        alpha.peering.update_candidates([])
        finalizer = {"metadata": {"finalizers": ["example.com/still-draining"]}}
        await beta.admin.patch(VIRTUALNODES, alpha.id, finalizer, tenant_namespace(alpha.id))
        await self.unpeer(alpha, beta)
        await self.phase(alpha, beta, "Withdrawing")
        await self.pause(1.5)
        self.assertEqual(alpha.room.dismissed, [])
        await beta.credential(alpha)
        done: dict[str, Any] = {"metadata": {"finalizers": None}}
        await beta.admin.patch(VIRTUALNODES, alpha.id, done, tenant_namespace(alpha.id))
        await self.forgotten(alpha, beta)
        await self.forgotten(beta, alpha)
        self.assertEqual([await self.dump(side) for side in (alpha, beta)], self.before)

    async def test_a_slow_borrower_is_not_waited_for_beyond_the_deadline(self) -> None:
        """After the seconds that the order gives, its rights and its pods go, and our side is clean all the same."""
        alpha, beta = await self.peers()
        # Who is still in sight would be found again, as a stranger.
        alpha.peering.update_candidates([])
        finalizer = {"metadata": {"finalizers": ["example.com/hangs"]}}
        await beta.admin.patch(VIRTUALNODES, alpha.id, finalizer, tenant_namespace(alpha.id))
        begun = alpha.reactor.seconds()
        await self.unpeer(alpha, beta, "2")
        await self.forgotten(alpha, beta)
        self.assertGreater(alpha.reactor.seconds() - begun, 1.9)
        self.assertEqual(alpha.room.dismissed, [beta.id])
        after = await self.dump(alpha)
        self.assertEqual({name for name in after if TOMBSTONES not in name}, set(self.before[0]))

    async def test_a_peer_that_is_dead_for_good(self) -> None:
        """Said to be dead, it is not waited for; nothing is left but the note to tell it, should it ever return."""
        alpha, beta = await self.peers()
        await beta.stop()
        await self.unpeer(alpha, beta, "dead")
        await self.forgotten(alpha, beta)
        after = await self.dump(alpha)
        extra = set(after) - set(self.before[0])
        self.assertEqual(extra, {f"{CONFIGMAPS} liqo-system/{TOMBSTONES}"})
        self.assertEqual({name: after[name] for name in self.before[0]}, self.before[0])

    async def test_a_peer_that_was_away_learns_it_when_it_returns(self) -> None:
        """It believes us by the key it has pinned, and cleans up by itself."""
        alpha, beta = await self.peers()
        await beta.stop()
        await self.unpeer(alpha, beta, "dead")
        await self.forgotten(alpha, beta)
        await beta.start()
        beta.sees(alpha)
        await self.forgotten(beta, alpha)
        beta.peering.update_candidates([])
        left = set(await self.dump(beta)) - set(self.before[1])
        self.assertLessEqual(left, {f"{FOREIGNCLUSTERS} /{alpha.id}"})  # shown again, as a stranger in sight

    async def test_what_settings_would_trust_is_not_trusted_after_unpeering(self) -> None:
        """With autojoin on both sides the peering does not come back by itself; a person's trust brings it back."""
        joining = settings(autojoin_untrusted=True)
        alpha, beta = await self.pair(joining, joining)
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        await self.unpeer(alpha, beta)
        await self.phase(alpha, beta, "TrustPending")
        await self.phase(beta, alpha, "TrustPending")
        await self.pause(1.0)
        for side, other in ((alpha, beta), (beta, alpha)):
            self.assertEqual((await side.cluster_record(other)).spec.fingerprint, "")
        await self.agree(alpha, beta)

        async def forgotten() -> bool:
            return not (await alpha.admin.get(CONFIGMAPS, TOMBSTONES, "liqo-system")).get("data")

        await self.becomes(forgotten, "trusting again takes the note away")

    async def test_a_restart_in_the_middle_goes_on(self) -> None:
        """A daemon that is stopped while it ends a peering ends it after its next start."""
        alpha, beta = await self.peers()
        finalizer = {"metadata": {"finalizers": ["example.com/still-draining"]}}
        await beta.admin.patch(VIRTUALNODES, alpha.id, finalizer, tenant_namespace(alpha.id))
        await self.unpeer(alpha, beta)
        await self.phase(alpha, beta, "Withdrawing")
        await alpha.stop()
        done: dict[str, Any] = {"metadata": {"finalizers": None}}
        await beta.admin.patch(VIRTUALNODES, alpha.id, done, tenant_namespace(alpha.id))
        await alpha.start()
        alpha.sees(beta)
        alpha.peering.update_candidates([])
        await self.forgotten(alpha, beta)
        await self.forgotten(beta, alpha)
        self.assertEqual(alpha.room.dismissed, [beta.id])

    async def test_rights_are_taken_back_however_long_that_takes(self) -> None:
        """What the lender owes is done when it can be, after any time and any restart: a record waits for it."""
        alpha, beta = await self.peers()
        alpha.peering.update_candidates([])
        alpha.room.fail = ApiError(503, "ServiceUnavailable", "busy")
        await self.unpeer(alpha, beta, "0")
        await self.pause(2.0)
        self.assertEqual((alpha.room.dismissed, set(alpha.room.tenants)), ([], {beta.id}))
        await alpha.stop()
        await alpha.start()
        await self.pause(1.0)
        alpha.room.fail = None
        await self.forgotten(alpha, beta)
        self.assertEqual((alpha.room.dismissed, set(alpha.room.tenants)), ([beta.id], set()))

    async def test_what_the_peer_ended_ends_here_although_the_first_attempts_fail(self) -> None:
        """The order to end it is given until the API server takes it."""
        alpha, beta = await self.peers()
        alpha.peering.update_candidates([])
        delete, failures = beta.daemon.delete, iter(range(3))

        async def failing(resource: Any, *args: Any, **more: Any) -> Any:
            if resource is FOREIGNCLUSTERS and next(failures, None) is not None:
                raise ApiError(503, "ServiceUnavailable", "busy")
            return await delete(resource, *args, **more)

        self.patch(beta.daemon, "delete", failing)
        await self.unpeer(alpha, beta)
        await self.forgotten(beta, alpha)
        self.assertIsNone(next(failures, None), "it did fail")

    async def test_distrust_ends_access_at_once(self) -> None:
        """The borrower is not asked: its rights go although its node is still there."""
        alpha, beta = await self.peers()
        finalizer = {"metadata": {"finalizers": ["example.com/still-draining"]}}
        await beta.admin.patch(VIRTUALNODES, alpha.id, finalizer, tenant_namespace(alpha.id))
        spec = {"fingerprint": "", "outgoingPeering": "No", "incomingPeering": "No"}
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": spec})

        async def dismissed() -> bool:
            return alpha.room.dismissed == [beta.id]

        await self.becomes(dismissed, "access has ended")
        await beta.virtual_node(alpha)

    async def test_a_credential_does_not_outlast_the_trust_in_its_key(self) -> None:
        """What a key said before its offer was accepted is not kept for the one that is trusted after it."""
        alpha, beta = await self.peers()
        credential_store, peer = alpha.peering._controllers.borrowing.credential_store, alpha.peering._peers[beta.id]
        credential_store.received(peer, Credential("https://192.0.2.1", "", "stolen", 3600, "tenant"), accepted=False)
        spec = {"fingerprint": "", "outgoingPeering": "No", "incomingPeering": "No"}
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": spec})

        async def unpinned() -> bool:
            return beta.id not in alpha.peering._records.pins

        await self.becomes(unpinned, "the key is not trusted any more")
        kept: list[str] = []
        self.patch(credential_store, "enqueue", kept.append)
        credential_store.offer_accepted(peer)
        self.assertEqual(kept, [])
