"""A home and two lenders that are peers: they connect its pods directly, and go back to the way by home.

What their fabrics would do is done by the test: records of tunnels, and what a gateway says that it carries out.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import msgspec

from liqod.config.schema import NetworkSettings, Settings
from liqod.kube.resources import FOREIGNCLUSTERS, NATTINGTABLES, NETWORKCONFIGS, TUNNELENDPOINTS
from liqod.model.objects.meta import to_dict
from liqod.model.records.network import (
    ASKED,
    DIRECT,
    DirectState,
    NetworkConfig,
    NetworkConfigSpec,
    Subnets,
    TunnelSide,
)
from tests.peering.clusters import PairCase, PeerCluster, accepting

KEYS = {
    "alpha": "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=",
    "beta": "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=",
    "gamma": "TrMvSoP4jYQlY6RIzBgbssQqY3vxI2Pi+y71lOWWXX0=",
}
SEEN = {"alpha": "10.64.0.0/16", "beta": "10.65.0.0/16", "gamma": "10.66.0.0/16"}
"""How each is seen by both others."""


def connected(direct: Literal["never", "agree", "always"]) -> Settings:
    """Return settings of a cluster with tunnels that takes every offer."""
    return msgspec.structs.replace(accepting("AutoAcceptAll"), network=NetworkSettings(mode="wireguard", direct=direct))


class DirectTests(PairCase):
    """Alpha is home, beta and gamma are its lenders and peers of each other."""

    timeout = 120
    patience = 30.0

    async def clusters(
        self, home: Literal["never", "agree", "always"] = "always", second: Literal["never", "agree"] = "agree"
    ) -> tuple[PeerCluster, PeerCluster, PeerCluster]:
        """Return the three, peered, with all that their fabrics write once tunnels are up."""
        alpha = await self.side("alpha", connected(home))
        beta, gamma = await self.side("beta", connected("agree")), await self.side("gamma", connected(second))
        everyone = (alpha, beta, gamma)
        for one in everyone:
            for two in everyone:
                if one is not two:
                    await one.trust(two)
        alpha.sees(beta, gamma)
        beta.sees(gamma)
        for lender in (beta, gamma):
            await self.peered(alpha, lender)
        for one in everyone:
            for two in everyone:
                if one is not two:
                    await self.tunnel(one, two)
        for at, peer in ((beta, gamma), (gamma, beta), (beta, alpha), (gamma, alpha)):
            await self.becomes(partial(self.knows, at, peer), f"{at.name} knows the network of {peer.name}")
        for lender in (beta, gamma):
            spec = {"clusterID": lender.id, "nattingTable": {"shop": "shop-alpha"}, "deNattingTable": {}}
            await alpha.admin.apply(NATTINGTABLES, {"metadata": {"name": lender.id}, "spec": spec}, manager="test")
        return everyone

    async def tunnel(self, at: PeerCluster, peer: PeerCluster) -> None:
        """Write what a fabric has of a peer with which all is agreed."""
        side = TunnelSide(pod_cidrs=["10.201.0.0/16"], endpoints=["192.0.2.1:5871"], public_key=KEYS[at.id], mtu=1420)
        spec = NetworkConfigSpec(cluster_id=peer.id, local=side, remap=Subnets(pod_cidrs=[SEEN[peer.id]]))
        body = {"apiVersion": NETWORKCONFIGS.api_version, "kind": NETWORKCONFIGS.kind, "metadata": {"name": peer.id}}
        await at.admin.apply(NETWORKCONFIGS, {**body, "spec": to_dict(spec)}, manager="fabric")
        await at.admin.patch(NETWORKCONFIGS, peer.id, {"status": {"phase": "Agreed"}}, subresource="status")
        body = {"apiVersion": TUNNELENDPOINTS.api_version, "kind": TUNNELENDPOINTS.kind, "metadata": {"name": peer.id}}
        await at.admin.apply(TUNNELENDPOINTS, {**body, "spec": {"clusterID": peer.id}}, manager="fabric")
        await self.reports(at, peer, phase="Connected")

    async def knows(self, at: PeerCluster, peer: PeerCluster) -> bool:
        """Tell whether a cluster has what a peer says of the network."""
        config: NetworkConfig = await at.admin.get(NETWORKCONFIGS, peer.id, view=NetworkConfig)
        return config.status.remote.public_key == KEYS[peer.id] and bool(config.status.ack.pod_cidrs)

    async def reports(self, at: PeerCluster, peer: PeerCluster, **status: Any) -> None:
        """Have a gateway report of its tunnel to a peer."""
        await at.admin.patch(TUNNELENDPOINTS, peer.id, {"status": status}, subresource="status")

    async def granted(self, at: PeerCluster, peer: PeerCluster) -> list[tuple[str, bool]]:
        """Return which homes a lender connects with another one, and whether that one agreed."""
        config: NetworkConfig = await at.admin.get(NETWORKCONFIGS, peer.id, view=NetworkConfig)
        return [(one.home, one.confirmed) for one in config.status.direct]

    async def state(self, home: PeerCluster, lender: PeerCluster) -> DirectState | None:
        """Return what a home's record of a lender says of the other one."""
        config: NetworkConfig = await home.admin.get(NETWORKCONFIGS, lender.id, view=NetworkConfig)
        return config.status.others[0] if config.status.others else None

    async def is_granted(self, at: PeerCluster, peer: PeerCluster, wanted: list[tuple[str, bool]]) -> bool:
        return await self.granted(at, peer) == wanted

    async def shows(self, home: PeerCluster, lender: PeerCluster, reason: str) -> bool:
        state = await self.state(home, lender)
        return state is not None and state.reason == reason

    async def connect(self, alpha: PeerCluster, beta: PeerCluster, gamma: PeerCluster) -> None:
        """Have all three agree, and both gateways carry it out."""
        both = ((beta, gamma), (gamma, beta))
        for at, peer in both:
            await self.becomes(partial(self.is_granted, at, peer, [(alpha.id, True)]), f"agreed at {at.name}")
        state = await self.state(alpha, beta)
        self.assertNotEqual(state.phase if state is not None else "", DIRECT)
        for at, peer in both:
            await self.reports(at, peer, direct=[alpha.id])
        for lender in (beta, gamma):
            await self.becomes(partial(self.shows, alpha, lender, "BothAgreed"), f"direct from {lender.name}")

    async def test_all_three_agree(self) -> None:
        """It is direct only once both gateways carry it out, and each record names the other lender."""
        alpha, beta, gamma = await self.clusters()
        await self.connect(alpha, beta, gamma)
        state = await self.state(alpha, beta)
        assert state is not None
        self.assertEqual((state.peer, state.phase), (gamma.id, DIRECT))

    async def test_a_tunnel_that_fails(self) -> None:
        """The lender that sees it says so: home goes back to the way by home, and so does the other one."""
        alpha, beta, gamma = await self.clusters()
        await self.connect(alpha, beta, gamma)
        await self.reports(beta, gamma, phase="Error", reason="NoHandshake", direct=None)
        for lender in (beta, gamma):
            await self.becomes(partial(self.shows, alpha, lender, "TunnelDown"), "the way by home")
        for at, peer in ((beta, gamma), (gamma, beta)):
            await self.becomes(partial(self.is_granted, at, peer, []), f"nothing is left at {at.name}")

    async def test_one_that_is_not_willing(self) -> None:
        """Where one of the lenders, or home, has it switched off, nothing is opened anywhere."""
        alpha, beta, gamma = await self.clusters(second="never")
        await self.pause(1.0)
        self.assertEqual((await self.granted(beta, gamma), await self.granted(gamma, beta)), ([], []))
        self.assertIsNone(await self.state(alpha, beta))

    async def test_trust_that_ends(self) -> None:
        """With home's trust in one lender the other one's end goes."""
        alpha, beta, gamma = await self.clusters()
        await self.connect(alpha, beta, gamma)
        await gamma.admin.patch(FOREIGNCLUSTERS, alpha.id, {"spec": {"fingerprint": ""}})
        await self.becomes(partial(self.is_granted, gamma, beta, []), "nothing is left at gamma")
        await self.becomes(partial(self.is_granted, beta, gamma, []), "nothing is left at beta")

    async def test_what_an_earlier_home_left(self) -> None:
        """What a daemon had asked for before it was killed, and nobody wants any more, ends at both lenders."""
        alpha, beta, gamma = await self.clusters()
        await self.connect(alpha, beta, gamma)
        await alpha.stop()
        for lender, other in ((beta, gamma), (gamma, beta)):
            others = [{"peer": other.id, "phase": ASKED, "reason": "Asked"}]
            await alpha.admin.patch(NETWORKCONFIGS, lender.id, {"status": {"others": others}}, subresource="status")
            await alpha.admin.delete(NATTINGTABLES, lender.id)
        await alpha.start()
        alpha.sees(beta, gamma)
        for at, peer in ((beta, gamma), (gamma, beta)):
            await self.becomes(partial(self.is_granted, at, peer, []), f"nothing is left at {at.name}")

    async def test_a_restart_keeps_it(self) -> None:
        """A home that starts again finds it on record, asks again, and nothing ends meanwhile."""
        alpha, beta, gamma = await self.clusters()
        await self.connect(alpha, beta, gamma)
        await alpha.stop()
        await self.pause(0.5)
        self.assertEqual(await self.granted(beta, gamma), [(alpha.id, True)])
        await alpha.start()
        alpha.sees(beta, gamma)
        await self.pause(2.0)
        self.assertTrue(await self.shows(alpha, beta, "BothAgreed"))
        self.assertEqual(await self.granted(gamma, beta), [(alpha.id, True)])
