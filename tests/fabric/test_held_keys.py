"""A peer that names the key of another peer's tunnel, which it may know since keys are no secrets."""

from __future__ import annotations

from twisted.internet.task import deferLater

from liqod.fabric.agent.key import generate
from liqod.fabric.service import Fabric
from liqod.kube.client import Client
from liqod.kube.resources import NETWORKCONFIGS, TUNNELENDPOINTS
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from tests.fabric.agent.test_recorded import KEY, MILAN, REACTOR, ClusterCase
from tests.fabric.fake_kernel import FakeKernel

THIEF = "ankara"
"""A peer that is dealt with before the other one, by its name."""


class HeldKeyTests(ClusterCase):
    """Two peers with tunnels."""

    async def phases(self, client: Client) -> dict[str, str]:
        found = await client.list(NETWORKCONFIGS, view=NetworkConfig)
        return {one.metadata.name: one.status.phase for one in found.items}

    async def until_agreed(self, client: Client) -> None:
        """Wait until all is agreed with both peers, and on record."""
        while await self.phases(client) != {MILAN: "Agreed", THIEF: "Agreed"}:
            await deferLater(REACTOR, 0.02)
        while len((await client.list(TUNNELENDPOINTS)).items) != 2:
            await deferLater(REACTOR, 0.02)

    async def test_a_key_of_another_peer(self) -> None:
        """The one that names it is refused, and the tunnel of the other stays as it is, after a restart as well."""
        client = await self.cluster()
        upcoming = generate().public
        await client.patch(NETWORKCONFIGS, MILAN, {"status": {"remote": {"nextKey": upcoming}}}, subresource="status")
        sound = {"publicKey": generate().public, "nextKey": ""}
        await self.peer(client, THIEF, **sound)
        for changes in ({"nextKey": KEY}, {"nextKey": upcoming}, {"publicKey": KEY}, {"publicKey": upcoming}):
            fabric = self.run_one(Fabric, client, "all", FakeKernel())
            await self.until_agreed(client)
            before = await client.get(TUNNELENDPOINTS, MILAN, view=TunnelEndpoint)
            await fabric.stopService()
            await client.patch(NETWORKCONFIGS, THIEF, {"status": {"remote": changes}}, subresource="status")
            fabric = self.run_one(Fabric, client, "all", FakeKernel())
            while "Refused" not in (await self.phases(client)).values():
                await deferLater(REACTOR, 0.02)
            self.assertEqual(await self.phases(client), {MILAN: "Agreed", THIEF: "Refused"}, changes)
            thief = await client.get(NETWORKCONFIGS, THIEF, view=NetworkConfig)
            self.assertEqual(thief.status.reason, "KeyInUse")
            while len((await client.list(TUNNELENDPOINTS)).items) != 1:
                await deferLater(REACTOR, 0.02)
            after = await client.get(TUNNELENDPOINTS, MILAN, view=TunnelEndpoint)
            self.assertEqual((after.metadata.uid, after.spec), (before.metadata.uid, before.spec), changes)
            await fabric.stopService()
            await client.patch(NETWORKCONFIGS, THIEF, {"status": {"remote": sound}}, subresource="status")
