"""The admission webhook, asked by a real API server."""

from __future__ import annotations

from liqod.agent.address import own_address
from tests import webhook_cases
from tests.real.sides import Asked


class WebhookOnRealClusters(Asked, webhook_cases.WebhookCases):
    """The cases of the webhook, each with namespaces of its own."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        self.host = own_address(self.admin.config.server)
        await self.begin()
