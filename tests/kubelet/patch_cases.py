"""What holds of the offloading patch of a virtual node, on any two clusters."""

from __future__ import annotations

from typing import Any

from liqod.kube.resources import PODS, VIRTUALNODES
from liqod.model.names import tenant_namespace
from tests.kubelet.cases import KubeletSides, condition


class PatchCase(KubeletSides):
    """The cases; a subclass provides the clusters."""

    async def patch_node(self, patch: dict[str, Any] | None) -> None:
        """Change the offloading patch of the virtual node."""
        spec = {"offloadingPatch": patch}
        await self.home.patch(VIRTUALNODES, str(self.peer), {"spec": spec}, tenant_namespace(self.peer))

    async def refused(self, name: str, reason: str, words: str) -> None:
        """Wait until a home pod waits with a reason and a sentence."""

        async def said() -> bool:
            pod = await self.home.get(PODS, name, self.space)
            found = condition(pod, "liqo.io/Offloaded")
            self.assertEqual((pod["status"]["phase"], found["status"], found["reason"]), ("Pending", "False", reason))
            self.assertIn(words, found["message"])
            return True

        await self.eventually(said)

    async def test_the_offloading_patch_is_live(self) -> None:
        """A patch holds for new pods at once, reaches running ones as far as they can change, and restarts nothing."""
        await self.pod("web")
        await self.runs("web")
        before = await self.lender.get(PODS, "web", self.remote)
        (kubelet,) = self.kubelets.all()
        gpu = {"key": "example.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
        other = {"key": "example.com/other", "operator": "Exists"}
        await self.patch_node({"tolerations": [gpu, other], "nodeSelector": {"kubernetes.io/os": "linux"}})

        async def tolerates() -> bool:
            pod = await self.lender.get(PODS, "web", self.remote)
            self.assertEqual(pod["metadata"]["uid"], before["metadata"]["uid"])
            self.assertNotIn("nodeSelector", pod["spec"])
            return bool(gpu in pod["spec"]["tolerations"])

        await self.eventually(tolerates)
        await self.pod("late")
        await self.runs("late")
        late = await self.lender.get(PODS, "late", self.remote)
        self.assertEqual(late["spec"]["nodeSelector"], {"kubernetes.io/os": "linux"})
        self.assertIn(gpu, late["spec"]["tolerations"])
        self.assertNotIn(other, late["spec"]["tolerations"])
        (now,) = self.kubelets.all()
        self.assertIs(now, kubelet)

    async def test_a_patch_that_cannot_hold(self) -> None:
        """What the lender does not grant, and what contradicts a pod, is said at the pod; mended, it runs."""
        arm = {"kubernetes.io/arch": "arm64"}
        await self.patch_node({"runtimeClassName": "unheard-of"})
        await self.pod("sandboxed")
        await self.refused("sandboxed", "InvalidPod", "unheard-of")
        await self.patch_node({"runtimeClassName": None, "nodeSelector": {"kubernetes.io/os": "linux"}})
        await self.runs("sandboxed")
        await self.patch_node({"nodeSelector": {"kubernetes.io/arch": "amd64"}})
        await self.pod("elsewhere", selector=arm)
        await self.refused("elsewhere", "PatchContradicts", "kubernetes.io/arch=arm64")
        await self.patch_node(None)
        await self.runs("elsewhere")
