"""What two lenders agreed on for a home, on its way from the record to the kernel and back."""

from __future__ import annotations

import base64
from typing import Any

from twisted.internet.task import deferLater

from liqod.config.schema import DaemonSettings, NetworkSettings, Settings
from liqod.fabric.agent.recorded import RecordedFabric
from liqod.fabric.service import Fabric
from liqod.kube.client import Client
from liqod.kube.resources import NETWORKCONFIGS, TUNNELENDPOINTS
from liqod.model.records.network import TunnelEndpoint
from tests.fabric.agent.test_recorded import MILAN, REACTOR, ClusterCase
from tests.fabric.fake_kernel import FakeKernel

TURIN = "turin"
KEY = base64.b64encode(bytes([0xCF, 0x3C, 0xF2] * 11)[:32]).decode()
"""A great key too ("zzy..."), so that networks are chosen from the beginning."""


class GrantTests(ClusterCase):
    """The home milan has a pod here, and asked to have it connected with those at turin."""

    def chosen(self, role: Any, direct: Any = "agree") -> Settings:
        """Return the settings of a process."""
        network = NetworkSettings(
            mode="wireguard", service_cidrs=["10.96.0.0/12"], pod_cidrs=["10.201.0.0/16"], direct=direct
        )
        return Settings(daemon=DaemonSettings(role=role), network=network)

    async def grant(self, client: Client, **changes: Any) -> None:
        """Have peering put on record what was agreed."""
        grant = {"home": MILAN, "request": 1, "podCIDRs": ["10.201.0.0/16"], "confirmed": True, **changes}
        await client.patch(NETWORKCONFIGS, TURIN, {"status": {"direct": [grant]}}, subresource="status")

    async def until(self, client: Client, kernel: FakeKernel, pods: list[str], carried_out: list[str]) -> None:
        """Wait until the kernel lets these pods through, and the record says for whom."""
        while True:
            tunnel = await client.get(TUNNELENDPOINTS, TURIN, view=TunnelEndpoint)
            sets = kernel.tables["inet liqod"]["sets"]
            found = sorted(one for name, elements in sets.items() if name.startswith("direct_") for one in elements)
            if (found, tunnel.status.direct) == (pods, carried_out):
                return
            await deferLater(REACTOR, 0.02)

    async def started(self, *, split: bool, direct: Any = "agree") -> tuple[Client, FakeKernel]:
        """Start the fabric of a cluster with both peers, as one process or two."""
        client, kernel = await self.cluster(), FakeKernel()
        await self.peer(client, TURIN, publicKey=KEY)
        if split:
            self.run_one(RecordedFabric, client, "network", kernel, settings=self.chosen("network", direct))
        role = "control" if split else "all"
        self.run_one(Fabric, client, role, None if split else kernel, settings=self.chosen(role, direct))
        await self.until_peer(kernel)
        while not any(one.metadata.name == TURIN for one in await self.tunnels(client)):
            await deferLater(REACTOR, 0.02)
        return client, kernel

    async def tunnels(self, client: Client) -> list[TunnelEndpoint]:
        """Return the records of all tunnels."""
        return (await client.list(TUNNELENDPOINTS, view=TunnelEndpoint)).items

    async def test_from_the_record_to_the_kernel(self) -> None:
        """Only once the other lender agreed, only that home's pods, and nothing any more when it ends."""
        for split in (False, True):
            client, kernel = await self.started(split=split)
            await self.grant(client, confirmed=False)
            await deferLater(REACTOR, 0.3)
            await self.until(client, kernel, [], [])
            await self.grant(client)
            await self.until(client, kernel, ["10.201.0.9"], [MILAN])
            await client.patch(NETWORKCONFIGS, TURIN, {"status": {"direct": None}}, subresource="status")
            await self.until(client, kernel, [], [])

    async def test_what_is_not_carried_out(self) -> None:
        """Networks that are not the other lender's, a home that is no peer, the lender itself: nothing is opened."""
        client, kernel = await self.started(split=False)
        others: tuple[dict[str, Any], ...] = ({"podCIDRs": ["10.99.0.0/16"]}, {"home": "oslo"}, {"home": TURIN})
        for changes in (*others, {"podCIDRs": []}):
            await self.grant(client, **changes)
            await deferLater(REACTOR, 0.3)
            await self.until(client, kernel, [], [])

    async def test_switched_off(self) -> None:
        """With direct = "never" what is on record opens nothing."""
        client, kernel = await self.started(split=False, direct="never")
        await self.grant(client)
        await deferLater(REACTOR, 0.3)
        await self.until(client, kernel, [], [])
