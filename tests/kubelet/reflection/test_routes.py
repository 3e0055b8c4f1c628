"""Routes of the Gateway API between two sandboxes, which do not serve them unless their definitions are made."""

from __future__ import annotations

from functools import partial
from typing import Any

from liqod.kube.errors import NotFound
from liqod.kube.resources import ADVERTISEMENTS, CONFIGMAPS, CRDS, HTTPROUTES, NAMESPACES, Resource
from liqod.model.ingress_path import GATEWAY_GROUP
from liqod.model.names import advertisement_name
from tests.kubelet.reflection import sandboxes

BACKEND = {"name": "web", "port": 80}
GATEWAY = {"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": "public", "name": "shared"}


def definition(resource: Resource) -> dict[str, Any]:
    """Return a definition of a kind that takes any object: those of the Gateway API are not ours to carry."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource)},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def route(name: str) -> dict[str, Any]:
    spec = {"parentRefs": [{"name": "mine"}], "hostnames": ["example.com"], "rules": [{"backendRefs": [BACKEND]}]}
    return {"metadata": {"name": name}, "spec": spec}


class RouteTests(sandboxes.Sandboxes):
    """HTTPRoutes; a GRPCRoute goes the same way."""

    async def served(self) -> None:
        """Have the namespace offloaded, by a pod."""
        await self.pod("first")
        await self.runs("first")
        await self.settled()

    async def define(self, *sides: str) -> None:
        """Make the definition of HTTPRoutes in some clusters."""
        for side in sides:
            client = getattr(self, side)
            await client.create(CRDS, definition(HTTPROUTES))
            await self.eventually(partial(client.list, HTTPROUTES, "default"))

    async def offer(self, *gateways: str) -> None:
        """Have the lender offer gateways."""
        patch = {"spec": {"offer": {"gateways": list(gateways)}}}
        await self.home.patch(ADVERTISEMENTS, advertisement_name(self.peer), patch)

    async def test_a_route(self) -> None:
        """It goes when a gateway is offered, as one of that gateway, follows changes, and goes when it goes at home."""
        await self.define("home", "lender")
        await self.home.create(HTTPROUTES, route("web"), self.space)
        await self.served()
        await self.eventually(self.reported)
        with self.assertRaises(NotFound):
            await self.lender.get(HTTPROUTES, "web", self.remote)
        await self.offer("public/shared", "public/other")
        found = await self.eventually(lambda: self.lender.get(HTTPROUTES, "web", self.remote))
        self.assertEqual((found["spec"]["parentRefs"], found["spec"]["hostnames"]), ([GATEWAY], ["example.com"]))
        await self.home.patch(HTTPROUTES, "web", {"spec": {"hostnames": ["www.example.com"]}}, self.space)

        async def followed() -> bool:
            now = await self.lender.get(HTTPROUTES, "web", self.remote)
            return bool(now["spec"]["hostnames"] == ["www.example.com"])

        await self.eventually(followed)
        await self.home.delete(HTTPROUTES, "web", self.space)
        await self.gone(self.lender, HTTPROUTES, "web", self.remote)

    async def reported(self) -> bool:
        return ("web", "ClassNotOffered") in [(name, reason) for name, reason, _ in self.events.seen]

    async def test_where_a_side_does_not_serve_them(self) -> None:
        """All else goes on: a kind that is lacking keeps nothing waiting."""
        await self.define("home")
        await self.home.create(HTTPROUTES, route("web"), self.space)
        await self.served()
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "conf"}, "data": {"a": "1"}}, self.space)
        await self.eventually(lambda: self.lender.get(CONFIGMAPS, "conf", self.remote))
        self.assertTrue(await self.lender.get(NAMESPACES, self.remote))
