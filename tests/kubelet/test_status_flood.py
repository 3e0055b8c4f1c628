"""A lender that changes the status of a pod all the time, between two sandboxes."""

from __future__ import annotations

from liqod.kube.resources import PODS
from tests.kubelet.reflection import sandboxes


class StatusFloodTests(sandboxes.Sandboxes):
    """The attack, and what becomes of it at home."""

    async def test_a_flood_of_messages(self) -> None:
        """A hundred long messages become a dozen writes of the home pod, each of less than 16 KiB."""
        await self.pod("web", tokens=False)
        await self.runs("web")
        before = self.client.requests["patch", "pods/status"]
        for number in range(100):
            status = {"status": {"message": f"{number} " + "x" * 100_000}}
            await self.lender.patch(PODS, "web", status, self.remote, subresource="status", view=None)
            await self.pause(0.06)
        self.assertLess(self.client.requests["patch", "pods/status"] - before, 20)
        home = await self.home.get(PODS, "web", self.space)
        self.assertLess(len(str(home["status"])), 16 << 10)
