"""The admission webhook, asked by a real API server."""

from __future__ import annotations

from liqod.agent.host.address import own_address
from tests.real.sides import Asked
from tests.webhook import cases


class WebhookOnRealClustersTests(Asked, cases.WebhookCase):
    """The cases of the webhook, each with namespaces of its own."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        self.host = own_address(self.admin.config.server)
        await self.begin()
