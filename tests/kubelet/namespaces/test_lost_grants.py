"""Grants of namespaces that a lender loses after they were used, between two sandboxes."""

from __future__ import annotations

from typing import Any

from liqod.kube.errors import Forbidden
from liqod.kube.resources import NAMESPACES, PODS, ROLEBINDINGS, SHADOWPODS
from liqod.kubelet.common import refusals
from liqod.kubelet.namespaces import controller
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.namespaces.state import Offloaded
from tests.kubelet import cases
from tests.kubelet.reflection import sandboxes


class LostGrantTests(sandboxes.Sandboxes, cases.KubeletSides):
    """A grant that is lost is asked for again, and nothing is deleted because it is lost."""

    patience = 25.0

    async def offload(self) -> dict[str, Any]:
        """Return a pod that runs at the lender, where the watches have begun; a lost grant is noticed soon."""
        self.patch(controller, "WATCH_TIMEOUT", 1.0)
        await self.pod("web")
        pod = await self.runs("web")
        await self.settled()
        return pod

    def end_watches(self) -> None:
        """End the watches at the lender, as its API server does every few minutes."""
        for stream in list(self.clusters["lender"].server.streams):
            stream.stop()

    async def lose_rights(self) -> None:
        """Delete what binds the borrower's account to its role in the namespace."""
        for binding in (await self.lender.list(ROLEBINDINGS, self.remote)).items:
            await self.lender.delete(ROLEBINDINGS, binding["metadata"]["name"], self.remote)
        self.end_watches()

    async def asked_again(self) -> bool:
        return self.session.asked == [self.remote] * 2

    async def test_a_pod_deleted_without_rights(self) -> None:
        """A pod that is deleted at home after the rights were lost goes, and the namespace is asked for again."""
        self.patch(controller, "WATCH_TIMEOUT", 1000.0)
        await self.pod("web")
        await self.runs("web")
        # The refused deletion alone has it asked for: not before the grant had time to take effect.
        await self.pause(11)
        await self.lose_rights()
        await self.home.delete(PODS, "web", self.space)
        await self.gone(self.home, PODS, "web", self.space)
        await self.gone(self.lender, SHADOWPODS, "web", self.remote)
        await self.eventually(self.asked_again)

    async def test_lost_rights(self) -> None:
        """Lost rights are asked for again although no pod changes; the pods stay, and their statuses follow again."""
        made = await self.offload()
        shadow = await self.lender.get(SHADOWPODS, "web", self.remote)
        await self.lose_rights()
        await self.eventually(self.asked_again)
        await self.lender.delete(PODS, "web", self.remote, grace=0)

        async def restarted() -> bool:
            pod = await self.home.get(PODS, "web", self.space)
            self.assertEqual(pod["metadata"]["uid"], made["metadata"]["uid"])
            return bool(pod["status"]["containerStatuses"][0]["restartCount"] == 1)

        await self.eventually(restarted)
        after = await self.lender.get(SHADOWPODS, "web", self.remote)
        self.assertEqual(after["metadata"]["uid"], shadow["metadata"]["uid"])
        await self.pause(3)
        self.assertTrue(await self.asked_again())

    async def test_a_namespace_deleted_at_the_lender(self) -> None:
        """A namespace that is deleted at the lender is granted again, and the same home pod runs in it."""
        made = await self.offload()
        await self.lender.delete(NAMESPACES, self.remote)
        await self.gone(self.lender, NAMESPACES, self.remote)
        self.end_watches()

        async def is_back() -> bool:
            await self.lender.get(SHADOWPODS, "web", self.remote)
            return True

        await self.eventually(is_back)
        pod = await self.runs("web")
        self.assertEqual(pod["metadata"]["uid"], made["metadata"]["uid"])

    async def test_drained_without_rights(self) -> None:
        """A namespace that is no longer offloaded, and whose rights were lost, is asked for again and then released."""
        await self.offload()
        await self.lose_rights()
        await self.home.patch(NAMESPACES, self.space, {"metadata": {"labels": {"liqo.io/enabled": None}}})
        await self.gone(self.home, PODS, "web", self.space)
        await self.gone(self.lender, NAMESPACES, self.remote)

    async def test_watches_that_merely_fail(self) -> None:
        """While the lender does not answer, or its watches end as they should, nothing is asked for."""
        await self.offload()
        for _ in range(3):
            self.end_watches()
            await self.pause(1.5)
        await self.clusters["lender"].stop()
        await self.pause(4)
        self.assertEqual(self.session.asked, [self.remote])
        self.assertEqual(len((await self.home.list(PODS, self.space)).items), 1)

    async def test_a_pod_that_is_refused(self) -> None:
        """A pod that the lender forbids has the grant confirmed; the watches of the namespace go on as they are."""
        await self.offload()
        self.patch(refusals, "SETTLING_TIME", 0.0)
        (kubelet,) = self.kubelets.of_lender(self.peer)
        there = kubelet.access.client.value
        assert there is not None
        create = there.create

        async def forbids(resource: Any, body: Any, *more: Any, **most: Any) -> Any:
            if resource is SHADOWPODS:
                raise Forbidden(403, "Forbidden", "there are too many records")
            return await create(resource, body, *more, **most)

        def watched() -> RemoteNamespace:
            state = kubelet.namespaces.state_of(self.space)
            assert isinstance(state, Offloaded)
            return state.remote

        self.patch(there, "create", forbids)
        before = watched()
        await self.pod("big")
        await self.eventually(self.asked_again)
        await self.pause(1)
        self.assertIs(watched(), before)
        self.assertTrue(before.is_watched)
