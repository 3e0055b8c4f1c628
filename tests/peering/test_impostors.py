"""Strangers that claim the ID of a peer while it is away: what they cause to be written, and what is kept of it."""

from __future__ import annotations

from typing import Any, cast

from liqod.identity.tls import PeerTLS
from liqod.kube.resources import CONFIGMAPS, FOREIGNCLUSTERS
from liqod.model.ids import Fingerprint
from liqod.model.objects.meta import find_condition
from liqod.model.records.unpeering import ORDER, TOMBSTONES
from liqod.peering.records.foreignclusters import STRANGER_WRITE_INTERVAL
from tests.peering.clusters import PeerCluster, keypair
from tests.peering.session.test_hostile import HostileCase, Speaker
from tests.peering.trust.test_authenticator import KEY, AuthenticatorCase, World
from tests.peering.trust.test_rotation import OWN, RotationCase


class FloodTests(AuthenticatorCase):
    """Keys that claim the ID of a peer, under a clock of our own."""

    def test_a_flood_of_keys_for_an_id(self) -> None:
        """Any number of keys that claim the ID of a peer lead to one problem and one Event in ten seconds."""
        self.begin(World(pinned="another"))
        for number in range(100):
            bye = self.answer(Fingerprint(f"sha256:{number:064x}"))
            self.assertEqual(bye and bye.reason, "ClusterIDRepetition")
            self.clock.advance(0.05)
        self.assertEqual((len(self.doubts), self.around.trace), (1, ["repeated"]))
        self.clock.advance(STRANGER_WRITE_INTERVAL)
        self.answer()
        self.assertEqual((len(self.doubts), self.around.trace), (2, ["repeated"] * 2))
        self.assertIn(KEY, self.doubts[-1].message)

    def test_an_impostor_is_shown_once_the_session_ended(self) -> None:
        """Also when another claimed the ID a moment earlier, while there was a session and thus no problem."""
        self.begin(World(pinned="another"))
        self.peer.session = cast(Any, object())
        self.answer()
        self.assertEqual((self.doubts, self.around.trace), ([], ["repeated"]))
        self.peer.session = None
        self.answer()
        self.assertEqual((len(self.doubts), self.around.trace), (1, ["repeated"]))


class ImpostorTests(RotationCase, HostileCase):
    """Any key but the pinned one, under the ID of a peer."""

    async def claim(self, side: PeerCluster, other: PeerCluster) -> str:
        """Claim the ID of another with a fresh key; returns its fingerprint."""
        key, speaker = keypair("impostor"), Speaker(other.id)
        await self.connect(side, speaker, PeerTLS(key).client_creator())
        speaker.hello()
        await speaker.lost
        return key.fingerprint

    async def test_claims_while_a_peer_is_away(self) -> None:
        """They are shown once in a while, and after a restart the peer still counts as one that relies on us."""
        alpha, beta = await self.trusting_pair()
        await beta.stop()
        first = await self.claim(alpha, beta)
        await self.phase(alpha, beta, "Refused")
        for _ in range(20):
            await self.claim(alpha, beta)
        await self.pause(0.5)
        status = (await alpha.cluster_record(beta)).status
        self.assertIn(first, status.message)
        # One names the key, one the change of the phase.
        self.assertEqual(alpha.events.reasons.count("ClusterIDRepetition"), 2)
        shown = find_condition(status.conditions, "Authenticated")
        self.assertEqual((shown and shown.status, shown and shown.reason), ("False", "ClusterIDRepetition"))
        await alpha.stop()
        await self.start(alpha)
        await self.order(alpha)
        await self.says(alpha, "for beta to note")
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"metadata": {"annotations": {ORDER: "dead"}}})
        await alpha.admin.delete(FOREIGNCLUSTERS, beta.id)

        async def noted() -> bool:
            return beta.id in (await alpha.admin.get(CONFIGMAPS, TOMBSTONES, OWN)).get("data", {})

        await self.becomes(noted, "there is a tombstone of beta")
