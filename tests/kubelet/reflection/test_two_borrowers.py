"""One service in three clusters, on sandboxes: every pod is an endpoint everywhere, each once."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from kubesandbox.cluster import SandboxCluster
from kubesandbox.nodes.node import SandboxNode
from twisted.internet.defer import Deferred

from liqod.config.schema import Settings
from liqod.demo.access import client_config
from liqod.flow.clocks import installed_reactor
from liqod.hosting.service import Hosting
from liqod.hosting.tenants.access import ApiAccess
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import ENDPOINTSLICES, PODS, SECRETS, SERVICES, VIRTUALNODES
from liqod.model.ids import ClusterID
from liqod.model.names import tenant_namespace
from tests.kubelet.cases import LENDER_NETWORK, OFFERED, Events, KubeletSides, Session

REFLECTED = "endpointslice.reflection.liqo.io"


class Sessions(Session):
    """The sessions with both lenders."""

    def __init__(self, by_peer: Mapping[ClusterID, Session]) -> None:
        self.by_peer = by_peer

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        return await self.by_peer[peer].map_namespace(peer, local, remote)

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        await self.by_peer[peer].release_namespace(peer, remote)


class ThreeClusterTests(KubeletSides):
    """A borrower with a node of its own, and two lenders."""

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        self.home, self.lender, self.third = [await self._cluster(name) for name in ("home", "lender", "third")]
        await self.begin()
        await self.node_is("True")
        await self.stop()
        await self._second_lender()
        await self.start()

    async def _cluster(self, name: str) -> Client:
        from twisted.internet import reactor

        cluster = SandboxCluster(reactor, name, [SandboxNode(f"node-{name}", cpu="64", memory="64Gi")])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        client = Client(client_config(cluster), reactor)
        self.addCleanup(client.close)
        await manifests.ensure(client)
        return client

    async def _second_lender(self) -> None:
        from twisted.internet import reactor

        self.other = ClusterID(f"third-{secrets.token_hex(3)}")
        lending = Client(self.third.config, reactor)
        informers = Informers(lending, reactor)
        access = ApiAccess(self.third.config.server, (self.third.config.ca_pem or b"").decode())
        hosting = Hosting(
            lending,
            informers,
            installed_reactor(),
            settings=Settings(network=LENDER_NETWORK),
            cluster_id=self.other,
            access=access,
            recorder=Events(),
        )
        for service in (informers, hosting):
            service.startService()
        self.addCleanup(lending.close)
        self.addCleanup(informers.stopService)
        self.addCleanup(hosting.stopService)
        self.session = Sessions({self.peer: self.session, self.other: Session(hosting, self.me)})
        first = (self.peer, self.grant, self.url)
        self.grant = await self.eventually(lambda: hosting.admit(self.me, OFFERED))
        self.peer, self.url = self.other, self.grant.api_url
        await self.namespace(tenant_namespace(self.other), {})
        await self.credential(self.grant.token)
        await self.advertise(OFFERED)
        body = {
            "metadata": {"name": str(self.other), "namespace": tenant_namespace(self.other)},
            "spec": {"clusterID": str(self.other), "nodeName": f"liqo-{self.other}"},
        }
        await self.home.create(VIRTUALNODES, body)
        self.peer, self.grant, self.url = first

    async def endpoints(self, client: Client, namespace: str) -> list[tuple[str, bool]]:
        """Return the pods behind the service in a cluster, and whether they are there by reflection."""
        found = []
        for each in (await client.list(ENDPOINTSLICES, namespace, labels="kubernetes.io/service-name=db")).items:
            reflected = each["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == REFLECTED
            for endpoint in each.get("endpoints") or ():
                self.assertEqual(endpoint["targetRef"]["kind"], "RemotePod" if reflected else "Pod")
                found.append((endpoint["targetRef"]["name"], reflected))
        return sorted(found)

    async def test_tokens_only_at_their_lender(self) -> None:
        """A lender has the tokens of the pods that it runs, and no others, whatever it claims."""
        nodes = {"b-lender": self.node, "c-third": f"liqo-{self.other}"}
        for name, node in nodes.items():
            container = {"name": "main", "image": "localhost/busybox:1"}
            body: dict[str, Any] = {
                "metadata": {"name": name},
                "spec": {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]},
            }
            await self.home.create(PODS, body, self.space)

        async def held(client: Client) -> list[str]:
            names = [each["metadata"]["name"] for each in (await client.list(SECRETS, self.remote)).items]
            return [name for name in names if name.endswith(".liqo-token")]

        async def each_its_own() -> bool:
            self.assertEqual(await held(self.lender), ["b-lender.liqo-token"])
            self.assertEqual(await held(self.third), ["c-third.liqo-token"])
            return True

        await self.eventually(each_its_own)
        # It claims to run the other's pod: that it wants its tokens renewed, and that it is its node.
        mine = await self.lender.get(SECRETS, "b-lender.liqo-token", self.remote)
        home = await self.home.get(PODS, "c-third", self.space)
        notes = {
            "offloading.liqo.io/service-account-for-pod-name": "c-third",
            "offloading.liqo.io/service-account-for-pod-uid": home["metadata"]["uid"],
            "offloading.liqo.io/service-account-expiration": "2020-01-01T00:00:00Z",
        }
        labels = {**mine["metadata"]["labels"]}
        body = {"metadata": {"name": "c-third.liqo-token", "labels": labels, "annotations": notes}}
        await self.lender.create(SECRETS, body, self.remote)
        await self.eventually(each_its_own)
        asked = self.client.requests[("create", "serviceaccounts/token")]
        await self.pause(1)
        self.assertEqual((asked, self.client.requests[("create", "serviceaccounts/token")]), (2, 2))

    async def test_one_service_in_three_clusters(self) -> None:
        """Each lender has its own pod by its own controller and the two others by reflection; a pod that goes, goes."""
        spec = {"selector": {"app": "db"}, "ports": [{"port": 5432}]}
        await self.home.create(SERVICES, {"metadata": {"name": "db"}, "spec": spec}, self.space)
        nodes = {"a-home": "node-home", "b-lender": self.node, "c-third": f"liqo-{self.other}"}
        for name, node in nodes.items():
            container = {"name": "main", "image": "localhost/busybox:1"}
            body: dict[str, Any] = {
                "metadata": {"name": name, "labels": {"app": "db"}},
                "spec": {"nodeName": node, "containers": [container], "tolerations": [{"operator": "Exists"}]},
            }
            await self.home.create(PODS, body, self.space)

        async def everywhere(*expected: str) -> bool:
            for client, namespace, own in (
                (self.home, self.space, set(nodes)),
                (self.lender, self.remote, {"b-lender"}),
                (self.third, self.remote, {"c-third"}),
            ):
                self.assertEqual(
                    await self.endpoints(client, namespace), sorted((name, name not in own) for name in expected)
                )
            return True

        await self.eventually(lambda: everywhere(*nodes))
        await self.home.delete(PODS, "c-third", self.space)
        await self.eventually(lambda: everywhere("a-home", "b-lender"))
