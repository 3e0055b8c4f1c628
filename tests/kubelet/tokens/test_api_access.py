"""The service that leads to the home API server, kept in a sandbox's lender by the real virtual kubelet."""

from __future__ import annotations

from typing import Any

from liqod.kube.errors import NotFound
from liqod.kube.resources import ENDPOINTSLICES, PODS, SERVICES, SHADOWENDPOINTSLICES, VIRTUALNODES
from liqod.kubelet.common.readiness import READY
from liqod.kubelet.tokens.api_service import NAME
from liqod.model.names import HOME_API, tenant_namespace
from tests.kubelet.networks import SimulatedNetwork
from tests.kubelet.reflection import sandboxes
from tests.kubelet.reflection.tokens_and_claims_cases import TOKEN, access_volume

HOME_ADDRESS = "192.0.2.10"
"""What the home API server publishes as its own."""
EXPORTED = "198.51.100.10"
"""How the lender's pods are said to reach it."""


class HomeApiAccessTests(sandboxes.Sandboxes):
    """A lender to which there is a tunnel."""

    async def begin(self) -> None:
        labels = {"kubernetes.io/service-name": "kubernetes"}
        published = {
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [HOME_ADDRESS]}],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        }
        try:
            await self.home.get(ENDPOINTSLICES, "kubernetes", "default")
        except NotFound:
            await self.home.create(ENDPOINTSLICES, published, "default")
        else:
            await self.home.patch(ENDPOINTSLICES, "kubernetes", published, "default")
        await super().begin()

    async def start(self) -> None:
        self.exported: dict[str, str] = {HOME_ADDRESS: EXPORTED}
        self.network = SimulatedNetwork(endpoint_to_lender=lambda address: self.exported.get(address, ""))
        self.network.manage(READY)
        await super().start()

    async def token_pod(self, name: str) -> None:
        """Create a pod that mounts a token."""
        spec = {
            "nodeName": self.node,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "volumes": [access_volume()],
            "containers": [{"name": "main", "image": "localhost/busybox:1", "volumeMounts": [TOKEN]}],
        }
        await self.home.create(PODS, {"metadata": {"name": name}, "spec": spec}, self.space)

    async def service(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.lender.get(SERVICES, NAME, self.remote)
        return found

    async def addresses(self) -> list[str]:
        """Return the addresses of the lender's EndpointSlice."""
        found = await self.lender.get(ENDPOINTSLICES, NAME, self.remote)
        return [address for one in found["endpoints"] for address in one["addresses"]]

    async def aliases(self, name: str) -> dict[str, str]:
        """Return the addresses of a pod's host aliases at the lender, by name."""
        pod = await self.lender.get(PODS, name, self.remote)
        return {host: one["ip"] for one in pod["spec"].get("hostAliases") or () for host in one["hostnames"]}

    async def condition(self) -> tuple[str, str]:
        record = await self.home.get(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        found = [one for one in record["status"].get("conditions", ()) if one["type"] == HOME_API]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    async def test_life(self) -> None:
        """The pod calls the service by all names, at port 443; the slice follows; what is deleted is made again."""
        await self.token_pod("web")

        async def runs() -> dict[str, Any]:
            return dict(await self.lender.get(PODS, "web", self.remote))

        pod = await self.eventually(runs)
        service = await self.service()
        address = service["spec"]["clusterIP"]
        names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
        self.assertEqual(await self.aliases("web"), dict.fromkeys(names, address))
        env = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        self.assertEqual(
            (env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]), ("kubernetes.default", "443")
        )

        async def shown(*wanted: str) -> bool:
            self.assertEqual(await self.addresses(), list(wanted))
            return True

        await self.eventually(lambda: shown(EXPORTED))

        async def conditions(*wanted: str) -> bool:
            self.assertEqual(await self.condition(), wanted)
            return True

        await self.eventually(lambda: conditions("True", "Tunnel"))
        # The network gives it another address.
        self.exported[HOME_ADDRESS] = "198.51.100.11"
        self.network.changed()
        await self.eventually(lambda: shown("198.51.100.11"))
        # While that is not known, what is there stays.
        self.exported.clear()
        self.network.changed()
        await self.eventually(lambda: conditions("False", "NotExportedYet"))
        await self.pause(1.0)
        self.assertEqual(await self.addresses(), ["198.51.100.11"])
        self.exported[HOME_ADDRESS] = EXPORTED
        self.network.changed()
        await self.lender.delete(SHADOWENDPOINTSLICES, NAME, self.remote)
        await self.lender.delete(SERVICES, NAME, self.remote)

        async def again() -> bool:
            found = await self.service()
            self.assertNotEqual(found["metadata"]["uid"], service["metadata"]["uid"])
            self.assertEqual(found["spec"]["clusterIP"], address)
            return await shown(EXPORTED)

        await self.eventually(again)
        # A restart writes nothing, and the next pod has the same address at once.
        before = (await self.service())["metadata"]["resourceVersion"]
        await self.stop()
        await self.start()
        await self.token_pod("next")

        async def next_runs() -> bool:
            self.assertEqual((await self.aliases("next"))["kubernetes.default.svc"], address)
            return True

        await self.eventually(next_runs)
        self.assertEqual((await self.service())["metadata"]["resourceVersion"], before)

    async def test_a_tunnel_that_was_decided_against(self) -> None:
        """Where it turns out that there is no tunnel, pods get the API server's own address, and the condition says so;
        with a tunnel again, the service.
        """

        async def reaches(name: str, address: str, *wanted: str) -> bool:
            self.assertEqual(await self.condition(), wanted)
            self.assertEqual((await self.aliases(name))["kubernetes.default"], address)
            return True

        await self.token_pod("web")

        async def made() -> str:
            return str((await self.service())["spec"]["clusterIP"])

        service = await self.eventually(made)
        await self.eventually(lambda: reaches("web", service, "True", "Tunnel"))
        self.network.leave()
        await self.token_pod("next")
        await self.eventually(lambda: reaches("next", HOME_ADDRESS, "Unknown", "NoTunnel"))
        self.network.manage(READY)
        self.network.changed()
        await self.eventually(lambda: reaches("web", service, "True", "Tunnel"))
        await self.token_pod("last")
        await self.eventually(lambda: reaches("last", service, "True", "Tunnel"))

    async def test_a_name_that_is_taken(self) -> None:
        """Where the lender has such a service of its own, pods go without, by the API server's own address."""
        await self.hosting.map_namespace(self.me, self.space, self.remote)
        port = {"port": 443}
        await self.lender.create(SERVICES, {"metadata": {"name": NAME}, "spec": {"ports": [port]}}, self.remote)
        await self.token_pod("web")

        async def runs() -> bool:
            self.assertEqual((await self.aliases("web"))["kubernetes.default"], HOME_ADDRESS)
            self.assertEqual(await self.condition(), ("False", "ServiceRefused"))
            return True

        await self.eventually(runs)
        self.assertNotIn("labels", (await self.service())["metadata"])
