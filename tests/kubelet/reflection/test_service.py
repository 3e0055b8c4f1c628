"""Reflection between two sandboxes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.logger import formatEvent, globalLogPublisher

from liqod.agent.metrics.daemon import Numbers
from liqod.kube.resources import EVENTS, SERVICES
from tests.kubelet.reflection import cases, sandboxes


class ReflectionTests(sandboxes.Sandboxes, cases.ReflectionCase):
    """The cases of reflection, each with two clusters of its own."""

    async def test_services_follow_the_ip_versions_of_the_lender(self) -> None:
        """A service of IPv6 is the lender's default until the lender is known to have IPv6; then it is made again."""
        await self.served()
        spec = {"ipFamilies": ["IPv6"], "ports": [{"port": 80}]}
        await self.home.create(SERVICES, {"metadata": {"name": "six"}, "spec": spec}, self.space)
        before = await self.there(SERVICES, "six")
        self.assertEqual(before["spec"]["ipFamilies"], ["IPv4"])
        self.network.versions = frozenset({"IPv4", "IPv6"})
        self.network.changed()

        async def recreated() -> bool:
            now = await self.lender.get(SERVICES, "six", self.remote)
            other = now["metadata"]["uid"] != before["metadata"]["uid"]
            return bool(other and now["spec"]["ipFamilies"] == ["IPv6"])

        await self.eventually(recreated)

    async def test_dropped_events_are_counted(self) -> None:
        """Every event beyond the limit is in the metrics, by the lender that made it, and the log says so once."""
        await self.served()
        lines: list[str] = []

        def take(event: dict[str, Any]) -> None:
            text = formatEvent(event)
            if "were dropped so far" in text:
                lines.append(text)

        observer: Any = take
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        about = {"kind": "Pod", "name": "first", "namespace": self.remote}
        for number in range(60):
            event = {
                "metadata": {"name": f"noise-{number}"},
                "involvedObject": about,
                "type": "Normal",
                "reason": "Noise",
                "message": f"that is {number}",
            }
            await self.lender.create(EVENTS, event, self.remote)
        daemon: Any = SimpleNamespace(
            features=SimpleNamespace(kubelets=self.kubelets, recorder=SimpleNamespace(dropped=0))
        )

        async def counted() -> bool:
            dropped = dict(Numbers(daemon).events())[(str(self.peer),)]
            return dropped > 0 and dropped + self.reported("first").count("Noise") == 60

        await self.eventually(counted)
        self.assertEqual(len(lines), 1)
        self.assertIn(str(self.peer), lines[0])
