"""Reflection between two sandboxes."""

from __future__ import annotations

from liqod.kube.resources import SERVICES
from tests.kubelet.reflection import cases, sandboxes


class ReflectionTests(sandboxes.Sandboxes, cases.ReflectionCase):
    """The cases of reflection, each with two clusters of its own."""

    async def test_services_follow_the_ip_versions_of_the_lender(self) -> None:
        """A service of IPv6 is the lender's default until the lender is known to have IPv6; then it is made anew."""
        await self.served()
        spec = {"ipFamilies": ["IPv6"], "ports": [{"port": 80}]}
        await self.home.create(SERVICES, {"metadata": {"name": "six"}, "spec": spec}, self.space)
        before = await self.there(SERVICES, "six")
        self.assertEqual(before["spec"]["ipFamilies"], ["IPv4"])
        self.network.versions = frozenset({"IPv4", "IPv6"})
        self.network.changed()

        async def anew() -> bool:
            now = await self.lender.get(SERVICES, "six", self.remote)
            other = now["metadata"]["uid"] != before["metadata"]["uid"]
            return bool(other and now["spec"]["ipFamilies"] == ["IPv6"])

        await self.eventually(anew)
