"""The cases of hosting, and beside them those of borrowers that reach for what is of others.

Import the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

from liqod.kube.resources import SHADOWPODS
from liqod.model.names import REMOTE_CLUSTER_LABEL
from tests.hosting import cases
from tests.hosting.cases import pod_spec


class ConfinedCases(cases.HostingCases):
    """All cases; a subclass provides the cluster."""

    async def test_what_is_of_others(self) -> None:
        """A pod gets no token of this cluster's accounts, and keeps off nobody's pods but its own tenant's."""
        borrower, namespace = await self.tenant()
        token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
        await self.shadow(borrower, namespace, name="thief", spec=pod_spec(volumes=[token]))
        told = await self.told(namespace, "thief", reason="InvalidPod")
        self.assertIn("serviceAccountToken", told["message"])
        term = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, "namespaceSelector": {}}
        alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await self.shadow(borrower, namespace, name="alone", spec=pod_spec(affinity=alone))
        pod = await self.runs(namespace, "alone")
        (kept,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(kept["namespaceSelector"]["matchLabels"], {REMOTE_CLUSTER_LABEL: str(self.peer)})
        await self.has_no_pod(namespace, "thief")

    async def test_an_origin_rewritten_later(self) -> None:
        """A pod stays on its tenant's account, whatever origin its ShadowPod claims afterwards."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        used = self.hosting.used_by(self.peer)
        await borrower.patch(
            SHADOWPODS, "web", {"metadata": {"labels": {"offloading.liqo.io/origin": "other"}}}, namespace
        )
        await self.settle()
        self.assertEqual((await self.pod(namespace))["metadata"]["labels"]["offloading.liqo.io/origin"], self.peer)
        self.assertEqual(self.hosting.used_by(self.peer), used)
