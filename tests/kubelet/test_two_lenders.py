"""Virtual nodes of two lenders on one host: the port of each one's API says which of them is asked."""

from __future__ import annotations

import json
import socket
from typing import Any

from twisted.internet import ssl
from twisted.internet.endpoints import SSL4ClientEndpoint
from twisted.internet.protocol import Factory

from liqod.flow.clocks import installed_reactor
from liqod.kube.resources import CONFIGMAPS, NAMESPACES, NODES, PODS, VIRTUALNODES
from liqod.model.ids import ClusterID
from liqod.model.names import tenant_namespace
from tests.kubelet import cases
from tests.kubelet.api.lender_server import Connection
from tests.kubelet.reflection import sandboxes


class TwoLendersTests(sandboxes.Sandboxes, cases.KubeletSides):
    """The second lender is known and cannot be reached."""

    async def begin(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.listen = f"tcp:{free.getsockname()[1]}:interface=127.0.0.1"
        # The sandbox's API server does not publish the CA of its clients.
        meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
        data = {"client-ca-file": (self.home.config.ca_pem or b"").decode()}
        await self.home.create(CONFIGMAPS, {"metadata": meta, "data": data})
        await super().begin()
        self.other = ClusterID(f"other-{self.peer}")
        await self.namespace(tenant_namespace(self.other), {})
        meta = {"name": str(self.other), "namespace": tenant_namespace(self.other)}
        body = {"metadata": meta, "spec": {"clusterID": str(self.other), "nodeName": "liqo-other"}}
        await self.node_is("True")
        await self.home.create(VIRTUALNODES, body)

    async def clean(self) -> None:
        await self.home.delete(VIRTUALNODES, str(self.other), tenant_namespace(self.other))
        await self.home.delete(NODES, "liqo-other")
        await self.home.delete(NAMESPACES, tenant_namespace(self.other))
        await super().clean()

    async def ports(self) -> list[int]:
        """Return the ports of both nodes, when Nodes and records agree on them."""
        found: list[int] = []

        async def shown() -> bool:
            found.clear()
            for node, cluster in ((self.node, self.peer), ("liqo-other", self.other)):
                status = (await self.home.get(NODES, node))["status"]
                record = await self.home.get(VIRTUALNODES, str(cluster), tenant_namespace(cluster))
                found.append(status["daemonEndpoints"]["kubeletEndpoint"]["Port"])
                self.assertEqual(record["status"]["kubeletPort"], found[-1])
            return True

        await self.eventually(shown)
        return found

    async def ask(self, port: int, path: str) -> dict[str, Any]:
        """Return a page of the node at a port."""
        config = self.home.config
        identity = ssl.PrivateCertificate.loadPEM((config.client_key_pem or b"") + (config.client_cert_pem or b""))
        endpoint = SSL4ClientEndpoint(installed_reactor(), "127.0.0.1", port, identity.options())
        connection: Connection = await endpoint.connect(Factory.forProtocol(Connection))
        connection.transport.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await connection.until(None)).partition(b"\r\n\r\n")
        self.assertIn(b" 200 ", head)
        return dict(json.loads(body))

    async def test_a_port_for_each(self) -> None:
        """The first node has the configured port, the second one another; each shows its own pods and its own name,
        and has its port again after a restart.
        """
        await self.pod("web")
        await self.runs("web")
        ports = await self.ports()
        self.assertEqual(ports[0], int(self.listen.split(":")[1]))
        self.assertNotEqual(ports[0], ports[1])
        first, self.node = self.node, "liqo-other"
        await self.pod("db")
        self.node = first

        async def listed() -> bool:
            for port, node, pod in ((ports[0], first, "web"), (ports[1], "liqo-other", "db")):
                page = await self.ask(port, "/pods")
                self.assertEqual([each["metadata"]["name"] for each in page["items"]], [pod])
                self.assertEqual((await self.ask(port, "/stats/summary"))["node"]["nodeName"], node)
            return True

        await self.eventually(listed)
        await self.stop()
        await self.start()
        await self.node_is("True")
        self.assertEqual(await self.ports(), ports)
        await self.eventually(listed)
        await self.home.delete(PODS, "db", self.space, grace=0)
