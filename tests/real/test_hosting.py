"""Hosting on a real API server, with the controllers and the admission of Kubernetes."""

from __future__ import annotations

from tests.hosting import confined
from tests.real.sides import Asked


class HostingOnRealClusters(Asked, confined.ConfinedCases):
    """The cases of hosting, each with a tenant of its own on one cluster."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        await self.begin()
