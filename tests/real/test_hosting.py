"""Hosting on a real API server, with the controllers and the admission of Kubernetes."""

from __future__ import annotations

from tests.hosting import isolation_cases
from tests.real.sides import Asked


class HostingOnRealClustersTests(Asked, isolation_cases.IsolationCase):
    """The cases of hosting, each with a tenant of its own on one cluster."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        await self.begin()
