"""NetworkPolicies of home, from a namespace there to the pods at a lender, for sandboxes and for real clusters alike.

Import the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound, from_status
from liqod.kube.resources import (
    CLUSTERFACTS,
    NAMESPACES,
    NETWORKPOLICIES,
    PODS,
    SHADOWNETWORKPOLICYSETS,
    SHADOWPODS,
    Resource,
)
from liqod.model.names import ISOLATED_LABEL, NETWORK_POLICIES_ANNOTATION
from liqod.model.records.facts import FACTS_NAME, PLUGIN
from tests.kubelet.cases import KubeletSides

NAME = "liqod-home-web"


class PolicyCase(KubeletSides):
    """The cases; a subclass provides the clusters."""

    async def begin(self) -> None:
        with suppress(AlreadyExists):
            await self.lender.create(CLUSTERFACTS, {"metadata": {"name": FACTS_NAME}})
        status = {"facts": [{"name": PLUGIN, "state": "Known", "values": ["cilium"]}]}
        await self.lender.patch(CLUSTERFACTS, FACTS_NAME, {"status": status}, subresource="status")
        await super().begin()

    async def restrict(self, *, egress: list[dict[str, Any]]) -> None:
        """Have home isolate the pods ``web``, but for what these rules allow."""
        spec = {"podSelector": {"matchLabels": {"app": "web"}}, "policyTypes": ["Egress"], "egress": egress}
        try:
            await self.home.create(NETWORKPOLICIES, {"metadata": {"name": "web"}, "spec": spec}, self.space)
        except AlreadyExists:
            patch = [{"op": "replace", "path": "/spec", "value": spec}]
            await self.home.patch(NETWORKPOLICIES, "web", patch, self.space, kind="json")

    async def isolated(self, name: str) -> str:
        """Return how the pod at the lender is isolated by its label."""
        found = await self.lender.get(PODS, name, self.remote)
        return str(found["metadata"]["labels"].get(ISOLATED_LABEL, ""))

    async def isolated_becomes(self, name: str, value: str) -> None:
        async def look() -> bool:
            self.assertEqual(await self.isolated(name), value)
            return True

        await self.eventually(look)

    async def rules_become(self, *fragments: str, never: str = "") -> str:
        """Wait for the compiled policy to name all of these; return its rules."""

        async def look() -> str:
            rules = str((await self.lender.get(NETWORKPOLICIES, NAME, self.remote))["spec"]["egress"])
            for one in fragments:
                self.assertIn(one, rules)
            if never:
                self.assertNotIn(never, rules)
            return rules

        return await self.eventually(look)

    async def test_the_way_of_a_policy(self) -> None:
        """It is in force at the lender when the first pod is created there, follows home, and goes with home's."""
        peer = {"namespaceSelector": {"matchLabels": {"kind": "store"}}, "podSelector": {"matchLabels": {"app": "db"}}}
        await self.restrict(egress=[{"to": [peer], "ports": [{"protocol": "TCP", "port": 5432}]}])
        await self.pod("web", labels={"app": "web"})
        await self.runs("web")
        await self.pod("free", labels={"app": "free"})
        await self.runs("free")
        self.assertEqual((await self.isolated("web"), await self.isolated("free")), ("egress", ""))
        shadow = await self.lender.get(SHADOWPODS, "web", self.remote)
        self.assertIn(NETWORK_POLICIES_ANNOTATION, shadow["metadata"]["annotations"])
        self.assertEqual((await self.lender.get(NETWORKPOLICIES, NAME, self.remote))["spec"].get("egress", []), [])

        store = f"store-{self.space}"
        await self.home.create(NAMESPACES, {"metadata": {"name": store, "labels": {"kind": "store"}}})
        self.addCleanup(self.home.delete, NAMESPACES, store)
        for name, app, address in (("db", "db", "10.64.0.17"), ("other", "other", "10.64.0.18")):
            spec = {"nodeName": "none", "containers": [{"name": "main", "image": "localhost/busybox:1"}]}
            await self.home.create(PODS, {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}, store)
            status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
            await self.home.patch(PODS, name, status, store, subresource="status")
        await self.rules_become("10.64.0.17/32", "5432", never="10.64.0.18")
        await self.home.delete(PODS, "db", store, grace=0)

        async def closed() -> bool:
            found = await self.lender.get(NETWORKPOLICIES, NAME, self.remote)
            return not found["spec"].get("egress")

        await self.eventually(closed)
        await self.home.delete(NETWORKPOLICIES, "web", self.space)
        await self.isolated_becomes("web", "")
        await self.gone(self.lender, NETWORKPOLICIES, NAME, self.remote)

    async def test_a_policy_for_pods_that_run(self) -> None:
        """It isolates them when it comes, and what is unchanged is not written again after a restart of home."""
        await self.pod("web", labels={"app": "web"})
        await self.runs("web")
        self.assertEqual(await self.isolated("web"), "")
        await self.restrict(egress=[{"to": [{"podSelector": {"matchLabels": {"app": "free"}}}]}])
        await self.isolated_becomes("web", "egress")
        before = await self.lender.get(SHADOWNETWORKPOLICYSETS, "home", self.remote)
        await self.stop()
        await self.start()
        await self.pause(3.0)
        after = await self.lender.get(SHADOWNETWORKPOLICYSETS, "home", self.remote)
        self.assertEqual(after["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"])

    async def test_a_lender_that_takes_none(self) -> None:
        """Pods run there as they did, and do not say that policies are sent."""
        create = Client.create

        async def unknown(client: Client, resource: Resource, *given: Any, **options: Any) -> Any:
            if resource is SHADOWNETWORKPOLICYSETS:
                raise from_status(404, b'{"message": "the server could not find the requested resource"}')
            return await create(client, resource, *given, **options)

        self.patch(Client, "create", unknown)
        await self.pod("web", labels={"app": "web"})
        await self.runs("web")
        with self.assertRaises(NotFound):
            await self.lender.get(SHADOWNETWORKPOLICYSETS, "home", self.remote)
