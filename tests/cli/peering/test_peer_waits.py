"""How long `peer` and `trust --wait` wait, and for what."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from liqod.identity.pairing import Token
from liqod.kube import manifests
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACES
from liqod.model.ids import ClusterID, Fingerprint
from tests.cli.cluster_case import REACTOR, ClusterCase

KEY = Fingerprint("sha256:" + "a" * 64)


class PeerWaitTests(ClusterCase):
    """The record says meanwhile what the daemon found earlier."""

    async def test_trust_waits(self) -> None:
        """trust --wait ends when the session is there, and with a code when it does not come."""
        await manifests.ensure(self.client)
        await self.client.create(FOREIGNCLUSTERS, {"metadata": {"name": "c2"}, "spec": {"clusterID": "c2"}})
        status = {"status": {"clusterName": "milan", "seenFingerprint": KEY}}
        await self.client.patch(FOREIGNCLUSTERS, "c2", status, subresource="status")
        self.assertIn("LQ3001", await self.liqodctl("trust", "c2", "--yes", "--wait", "--timeout", "0.5", status=1))
        await self.knows("c2", "Lost")
        self.assertIn("LQ3001", await self.liqodctl("trust", "c2", "--yes", "--wait", "--timeout", "0.5", status=1))
        self.later("c2", "Authenticated")
        self.assertIn("connected", await self.liqodctl("trust", "c2", "--yes", "--wait"))

    async def knows(self, peer: str, phase: str, refusal: str = "") -> None:
        """Record as the daemon does that a peer is trusted, or refuses a token, and in which phase it is."""
        condition = {"type": "Authenticated", "status": "True", "reason": "KeyPinned", "message": "mutual"}
        if refusal:
            condition |= {"status": "False", "reason": "TokenRefused", "message": refusal}
        condition["lastTransitionTime"] = "2026-01-02T03:04:05Z"  # also where a refusal follows one
        status = {"phase": phase, "conditions": [condition]}
        await self.client.patch(FOREIGNCLUSTERS, peer, {"status": status}, subresource="status")

    def later(self, *known: str) -> None:
        """Record it in two seconds, while a command waits."""
        REACTOR.callLater(2, lambda: Deferred.fromCoroutine(self.knows(*known)))

    async def test_an_earlier_answer_is_none(self) -> None:
        """What the record says of another token, or of a peer that is away, does not end the wait of `peer`."""
        await manifests.ensure(self.client)
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        token = Token("0a1b", ClusterID("milan"), "Milan", KEY, ["192.0.2.1:5872"], bytes(32))
        peer = ("peer", token.text, "--timeout")
        await self.liqodctl(*peer, "1", "--no-wait")
        await self.knows("milan", "TrustPending", "the peer refuses token/0a1a: it has expired")
        self.assertIn("LQ3001", await self.liqodctl(*peer, "0.5", status=1))
        self.later("milan", "TrustPending", "the peer refuses token/0a1b: it has expired")
        output = await self.liqodctl(*peer, "30", status=1)
        self.assertIn("LQ2010", output)
        self.assertIn("token/0a1b", output)
        self.later("milan", "Authenticated")
        self.assertIn("connected with", await self.liqodctl(*peer, "30"))
        for away in ("Suspect", "Lost", "Withdrawing"):
            await self.knows("milan", away)
            self.assertIn("LQ3001", await self.liqodctl(*peer, "0.5", status=1), away)
