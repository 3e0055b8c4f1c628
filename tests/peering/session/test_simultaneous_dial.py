"""Both sides dial: one session remains, on both sides the same."""

from __future__ import annotations

from tests.peering.clusters import PairCase, PeerCluster, settings


class RaceTests(PairCase):
    """Sessions of two daemons that see each other at the same moment."""

    async def test_the_session_of_the_smaller_id_stays(self) -> None:
        """Both dial in the same moment: one session is left, opened by the smaller ID, on both sides, and stays."""
        alpha, beta = await self.pair(settings(autojoin_untrusted=True), settings(autojoin_untrusted=True))
        alpha.sees(beta)
        beta.sees(alpha)
        await self.becomes(lambda: self.settled(alpha, beta), "one session")
        await self.pause(0.3)
        one, two = alpha.peering.sessions(), beta.peering.sessions()
        self.assertEqual([view.role for view in (*one, *two)], ["dialer", "listener"])
        await self.pause(0.5)
        self.assertEqual(alpha.peering.sessions(), one)

    async def test_restarts_of_both_end_in_one_session(self) -> None:
        """One that is ready first: after each restart both sides agree on one session, and it does not flap."""
        alpha, beta = await self.pair(settings(autojoin_untrusted=True), settings(autojoin_untrusted=True))
        for _ in range(4):
            alpha.sees(beta)
            beta.sees(alpha)
            await self.becomes(lambda: self.settled(alpha, beta), "one session")
            await self.pause(0.5)
            one, two = alpha.peering.sessions(), beta.peering.sessions()
            self.assertTrue(await self.settled(alpha, beta))
            await self.pause(0.5)
            self.assertEqual((alpha.peering.sessions(), beta.peering.sessions()), (one, two))
            for side in (alpha, beta):
                await side.stop()
            for side in (alpha, beta):
                await side.start()

    async def settled(self, alpha: PeerCluster, beta: PeerCluster) -> bool:
        views = (*alpha.peering.sessions(), *beta.peering.sessions())
        return sorted(view.role for view in views) == ["dialer", "listener"]
