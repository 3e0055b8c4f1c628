"""What virtual kubelets do between two API servers, as cases for sandboxes and for real clusters alike.

A case needs ``self.home`` and ``self.lender`` (clients that may do everything), a lender whose pods run, and
``self.patience`` seconds. The lender's side is the real ``Hosting``. Import the module, not the class.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from twisted.internet.task import deferLater
from twisted.trial.unittest import FailTest, TestCase

from liqod.config.schema import (
    EgressSettings,
    HostingSettings,
    KubeletSettings,
    NetworkSettings,
    ReflectionSettings,
    Settings,
)
from liqod.flow.clocks import installed_reactor
from liqod.flow.observe import Latest
from liqod.hosting.service import Hosting
from liqod.hosting.tenants.access import ApiAccess
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.connection.seen_versions import SeenVersions
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import (
    ADVERTISEMENTS,
    LEASES,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    PODS,
    SECRETS,
    SHADOWPODS,
    VIRTUALNODES,
    Resource,
)
from liqod.kubelet.ports import HomeCluster
from liqod.kubelet.service import Kubelets
from liqod.model.ids import ClusterID
from liqod.model.names import advertisement_name, remote_namespace, tenant_namespace
from liqod.model.records.offer import HomeStreamsGrant, PeerUnreachable
from tests.kubelet.networks import OneNetwork, SimulatedNetwork

T = TypeVar("T")
OFFERED = {"cpu": "10", "memory": "10Gi", "pods": "50"}

LENDER_NETWORK: Final = NetworkSettings(mode="none", pod_cidrs=["10.244.0.0/16"], service_cidrs=["10.96.0.0/12"])
"""What a lender says of itself where nothing finds it out: endpoints in these networks would not be taken."""
GRANTING: Final = Settings(
    network=LENDER_NETWORK,
    hosting=HostingSettings(
        service_types=["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"],
        ingress_hosts=["example.com"],
        tolerations=["example.com/gpu"],
        egress_networks=["10.64.0.0/16"],
    ),
)
"""The lender's contract: with what the cases reflect beside the default."""


class Events:
    """Keeps the events that were emitted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.sources: dict[str, Any] = {}
        """Who reported the last event of a reason, if it was not liqod."""

    def record_event(
        self, regarding: Mapping[str, Any], type: str, reason: str, message: str, source: Any = None
    ) -> None:
        self.seen.append((str(regarding["name"]), reason, message))
        self.sources[reason] = source


class Session:
    """Peering, cut short: what a borrower asks for reaches the lender's hosting, while there is a connection."""

    def __init__(self, hosting: Hosting, me: ClusterID) -> None:
        self.hosting, self.me = hosting, me
        self.connected = True
        self.asked: list[str] = []

    async def map_namespace(self, peer: ClusterID, local: str, remote: str) -> str:
        self.asked.append(remote)
        self._check()
        await self.hosting.map_namespace(self.me, local, remote)
        return remote

    async def release_namespace(self, peer: ClusterID, remote: str) -> None:
        self._check()
        await self.hosting.release_namespace(self.me, remote)

    def relay_of(self, peer: ClusterID) -> None:
        """There is no relay."""

    def api_streams(self, peer: ClusterID) -> Latest[HomeStreamsGrant | None]:
        """No lender asks for streams."""
        return Latest(None)

    def peer_answered(self, peer: ClusterID) -> None:
        """Nobody dials."""

    def _check(self) -> None:
        if not self.connected:
            raise PeerUnreachable("there is no session with the lender")


class KubeletSides(TestCase):
    """A borrower's virtual kubelet and a lender's hosting, without cases; a subclass provides the clusters."""

    home: Client
    lender: Client
    listen = "tcp:0:interface=127.0.0.1"
    patience = 15.0
    timeout = 90
    workers = 8
    status_delay = 0.05
    most_patches = 1
    """Patches that tell that a pod runs: more where its steps are further apart than ``status_delay``."""
    reflection = ReflectionSettings()
    egress = EgressSettings()
    network: SimulatedNetwork
    kubelets_of: type[Kubelets] = Kubelets
    seen: Mapping[str, int] = {}

    def way(self, server: str) -> str:
        """Return the URL by which the borrower is to reach the lender."""
        return server

    async def begin(self) -> None:
        """To be called by the subclass when both clients work."""
        from twisted.internet import reactor

        tag = secrets.token_hex(3)
        self.network = SimulatedNetwork()
        self.me, self.peer = ClusterID(f"home-{tag}"), ClusterID(f"lender-{tag}")
        self.node = f"liqo-{self.peer}"
        self.space = f"shop-{tag}"
        self.remote = remote_namespace(self.space, self.me)
        self.events = Events()
        lending = Client(self.lender.config, reactor)
        informers = Informers(lending, reactor)
        access = ApiAccess(self.lender.config.server, (self.lender.config.ca_pem or b"").decode())
        hosting = Hosting(
            lending,
            informers,
            installed_reactor(),
            settings=GRANTING,
            cluster_id=self.peer,
            access=access,
            recorder=Events(),
        )
        for service in (informers, hosting):
            service.startService()
        self.addCleanup(lending.close)
        self.addCleanup(informers.stopService)
        self.addCleanup(hosting.stopService)
        self.hosting = hosting
        self.session = Session(hosting, self.me)
        grant = await self.eventually(lambda: hosting.admit(self.me, OFFERED))
        await self.namespace(tenant_namespace(self.peer), {})
        await self.namespace(self.space, {"liqo.io/enabled": "true"})
        self.grant = grant
        self.url = self.way(grant.api_url)
        await self.credential(grant.token)
        await self.advertise(OFFERED)
        body = {
            "metadata": {"name": str(self.peer), "namespace": tenant_namespace(self.peer)},
            "spec": {"clusterID": str(self.peer), "nodeName": self.node},
        }
        await self.home.create(VIRTUALNODES, body)
        self.addCleanup(self.clean)
        await self.start()
        self.addCleanup(self.stop)

    async def start(self) -> None:
        """Start the borrower's daemon: a client and caches of its own; ``seen`` is what a former process left."""
        from twisted.internet import reactor

        self.client = Client(self.home.config, reactor)
        self.client.seen = SeenVersions(self.seen)
        self.informers = Informers(self.client, reactor)
        settings = Settings(
            network=NetworkSettings(mode="none"),
            reflection=self.reflection,
            egress=self.egress,
            kubelet=KubeletSettings(
                listen=self.listen,
                workers=self.workers,
                status_delay=self.status_delay,
                node_address="10.9.8.7",
                lease_duration=12,
            ),
        )
        self.kubelets = self.kubelets_of(
            reactor=installed_reactor(),
            home=HomeCluster(cluster_id=self.me, client=self.client, informers=self.informers, recorder=self.events),
            settings=settings,
            lenders=self.session,
            networks=OneNetwork(self.network),
        )
        self.informers.startService()
        self.kubelets.startService()

    async def stop(self) -> None:
        await self.kubelets.stopService()
        await self.informers.stopService()
        await self.client.close()

    async def clean(self) -> None:
        """Leave nothing that the daemon of a later test would find."""
        await self.home.delete(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        for resource, name in (
            (NODES, self.node),
            (NATTINGTABLES, str(self.peer)),
            (ADVERTISEMENTS, advertisement_name(self.peer)),
            (NAMESPACES, self.space),
            (NAMESPACES, tenant_namespace(self.peer)),
        ):
            await self.home.delete(resource, name)
        await self.lender.delete(NAMESPACES, self.remote)

    # Making things

    async def namespace(self, name: str, labels: dict[str, str]) -> None:
        await self.home.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    async def credential(self, token: str) -> None:
        parts = {"api-url": self.url, "ca.crt": self.grant.ca, "token": token, "namespace": "x"}
        data = {key: base64.b64encode(value.encode()).decode() for key, value in parts.items()}
        metadata = {"name": "liqo-credential", "namespace": tenant_namespace(self.peer)}
        try:
            await self.home.create(SECRETS, {"metadata": metadata, "data": data})
        except AlreadyExists:
            await self.home.patch(SECRETS, "liqo-credential", {"data": data}, tenant_namespace(self.peer))

    async def advertise(self, resources: dict[str, Any], phase: str = "Accepted") -> None:
        name = advertisement_name(self.peer)
        spec = {"clusterID": str(self.peer), "offer": {"resources": resources, "kubernetesVersion": "v1.99.0"}}
        try:
            await self.home.get(ADVERTISEMENTS, name)
            await self.home.patch(ADVERTISEMENTS, name, {"spec": spec})
        except NotFound:
            await self.home.create(ADVERTISEMENTS, {"metadata": {"name": name}, "spec": spec})
        await self.home.patch(ADVERTISEMENTS, name, {"status": {"phase": phase}}, subresource="status")

    async def pod(
        self,
        name: str,
        cpu: str = "100m",
        namespace: str = "",
        tokens: bool = True,
        selector: dict[str, str] | None = None,
        *,
        volumes: Sequence[dict[str, Any]] = (),
        **meta: Any,
    ) -> dict[str, Any]:
        container = {"name": "main", "image": "localhost/busybox:1", "resources": {"requests": {"cpu": cpu}}}
        spec = {
            "nodeName": self.node,
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": tokens,
            "nodeSelector": selector or {},
            "volumes": list(volumes),
        }
        body = {"metadata": {"name": name, **meta}, "spec": spec}
        made: dict[str, Any] = await self.home.create(PODS, body, namespace or self.space)
        return made

    # Waiting for things

    async def eventually(self, look: Callable[[], Awaitable[T]]) -> T:
        """Return what ``look`` returns once it is true; its last failure ends the test."""
        from twisted.internet import reactor

        deadline = reactor.seconds() + self.patience
        while True:
            failure: Exception | None = None
            try:
                found = await look()
                if found:
                    return found
            except (AssertionError, KeyError, NotFound, FailTest) as error:
                failure = error
            if reactor.seconds() > deadline:
                raise failure or FailTest("it did not become true in time")
            await deferLater(reactor, 0.05)

    async def pause(self, seconds: float) -> None:
        from twisted.internet import reactor

        await deferLater(reactor, seconds)

    async def gone(self, client: Client, resource: Resource, name: str, namespace: str = "") -> None:
        async def look() -> bool:
            try:
                found = await client.get(resource, name, namespace)
            except NotFound:
                return True
            raise FailTest(f"still there: {found['metadata']} {found.get('status')}")

        await self.eventually(look)

    async def node_is(self, status: str, reason: str = "") -> dict[str, Any]:
        async def look() -> dict[str, Any]:
            node = await self.home.get(NODES, self.node)
            ready = condition(node, "Ready")
            self.assertEqual((ready["status"], ready["reason"] if reason else ""), (status, reason), ready)
            return node

        return await self.eventually(look)

    async def settled(self) -> None:
        """Wait until the record says that all is well."""

        async def reported() -> bool:
            record = await self.home.get(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
            return bool(record["status"]["phase"] == "Ready" and condition(record, "Reflection")["status"] == "True")

        await self.eventually(reported)

    async def runs(self, name: str) -> dict[str, Any]:
        """Wait until a home pod is Running and ready."""
        await self.run_remote(name)

        async def look() -> dict[str, Any]:
            pod = await self.home.get(PODS, name, self.space)
            self.assertEqual(pod["status"].get("phase"), "Running", pod["status"])
            self.assertEqual(condition(pod, "Ready")["status"], "True", pod["status"])
            return pod

        return await self.eventually(look)

    async def run_remote(self, name: str) -> None:
        """Wait for the lender's pod to run; subclasses without nodes help."""


class KubeletCase(KubeletSides):
    """The cases; a subclass provides the clusters."""

    async def test_the_node_and_its_idle(self) -> None:
        """The node has what is offered, is Ready and leased, the record says so; then only the lease is written."""
        node = await self.node_is("True")
        self.assertEqual(node["status"]["capacity"], OFFERED)
        self.assertEqual(node["spec"]["taints"][0]["key"], "virtual-node.liqo.io/not-allowed")
        self.assertEqual(node["status"]["addresses"][0], {"type": "InternalIP", "address": "10.9.8.7"})
        self.assertEqual(node["status"]["nodeInfo"]["kubeletVersion"], "v1.99.0")
        lease = await self.eventually(lambda: self.home.get(LEASES, self.node, "kube-node-lease"))
        self.assertEqual(lease["spec"]["holderIdentity"], self.node)
        await self.settled()
        await self.pause(1)
        before, since = self.client.requests.copy(), time.monotonic()
        await self.pause(6)
        more, took = self.client.requests - before, time.monotonic() - since
        self.assertEqual({key for key in more if key[0] != "watch"}, {("patch", "leases")})
        self.assertLessEqual(more[("patch", "leases")], took / 3)

    async def test_the_node_follows_the_offer(self) -> None:
        """What vanishes from the offer vanishes from the node; a withdrawn offer makes it NotReady with a reason."""
        await self.node_is("True")
        await self.advertise({"cpu": "3", "memory": None, "pods": "50"})

        async def less() -> bool:
            node = await self.home.get(NODES, self.node)
            return bool(node["status"]["capacity"] == {"cpu": "3", "pods": "50"} == node["status"]["allocatable"])

        await self.eventually(less)
        await self.advertise({"cpu": "3", "pods": "50"}, phase="Withdrawn")
        await self.node_is("False", "OfferWithdrawn")

    async def test_a_deleted_node_comes_back(self) -> None:
        """A node that somebody deletes is made again."""
        first = await self.node_is("True")
        await self.home.delete(NODES, self.node)

        async def back() -> bool:
            return bool((await self.home.get(NODES, self.node))["metadata"]["uid"] != first["metadata"]["uid"])

        await self.eventually(back)
        await self.node_is("True")

    async def test_offloading_in_two_requests(self) -> None:
        """A pod runs for one POST at the lender and one patch at home, its token for one at each; all of it goes."""
        await self.pod("first")
        await self.runs("first")
        await self.settled()
        before = self.client.requests.copy()
        (kubelet,) = self.kubelets.of_lender(self.peer)
        assert kubelet.access.client.value is not None
        there = kubelet.access.client.value
        before_there = there.requests.copy()
        await self.pod("second", tokens=False, labels={"app": "x", "liqo.io/internal": "y"})
        pod = await self.runs("second")
        shadow = await self.lender.get(SHADOWPODS, "second", self.remote)
        self.assertEqual(shadow["metadata"]["labels"]["offloading.liqo.io/origin"], str(self.me))
        self.assertNotIn("liqo.io/internal", shadow["metadata"]["labels"])
        self.assertEqual(shadow["spec"]["pod"]["automountServiceAccountToken"], False)
        self.assertEqual(pod["status"]["hostIP"], "10.9.8.7")
        remote = await self.lender.get(PODS, "second", self.remote)
        self.assertEqual(pod["status"].get("podIP"), remote["status"].get("podIP"))
        await self.pause(0.5)
        ours = {k: n for k, n in (self.client.requests - before).items() if k[1] != "leases"}
        self.assertLessEqual(ours.pop(("patch", "pods/status")), self.most_patches)
        self.assertEqual(ours, {})
        ours = {key: count for key, count in (there.requests - before_there).items() if key[1] != "/readyz"}
        self.assertEqual(ours, {("create", "shadowpods"): 1})
        before, before_there = self.client.requests.copy(), there.requests.copy()
        await self.pod("third")
        await self.runs("third")
        await self.pause(0.5)
        ours = {k: n for k, n in (self.client.requests - before).items() if k[1] != "leases"}
        self.assertLessEqual(ours.pop(("patch", "pods/status")), self.most_patches)
        self.assertEqual(ours, {("create", "serviceaccounts/token"): 1})
        ours = {key: count for key, count in (there.requests - before_there).items() if key[1] != "/readyz"}
        self.assertEqual(ours, {("create", "shadowpods"): 1, ("create", "secrets"): 1})
        await self.home.delete(PODS, "second", self.space)
        await self.gone(self.home, PODS, "second", self.space)
        await self.gone(self.lender, SHADOWPODS, "second", self.remote)
        await self.gone(self.lender, PODS, "second", self.remote)

    async def test_labels_follow(self) -> None:
        """A label changed at home reaches the ShadowPod; what the lender added to nothing of ours is left alone."""
        await self.pod("web", labels={"app": "a", "old": "1"})
        await self.runs("web")
        await self.home.patch(PODS, "web", {"metadata": {"labels": {"app": "b", "old": None}}}, self.space)

        async def there() -> bool:
            labels = (await self.lender.get(SHADOWPODS, "web", self.remote))["metadata"]["labels"]
            return bool(labels.get("app") == "b" and "old" not in labels)

        await self.eventually(there)

    async def test_a_restart_changes_nothing(self) -> None:
        """After a restart of the daemon nothing is re-created, and a pod deleted meanwhile is cleaned up."""
        for name in ("keep", "drop"):
            await self.pod(name)
            await self.runs(name)
        shadow = await self.lender.get(SHADOWPODS, "keep", self.remote)
        await self.stop()
        await self.home.delete(PODS, "drop", self.space, grace=0)
        await self.start()
        await self.gone(self.lender, SHADOWPODS, "drop", self.remote)
        await self.pause(1)
        again = await self.lender.get(SHADOWPODS, "keep", self.remote)
        self.assertEqual(again["metadata"]["uid"], shadow["metadata"]["uid"])
        self.assertEqual(again["metadata"]["resourceVersion"], shadow["metadata"]["resourceVersion"])
        self.assertEqual(self.client.requests[("patch", "pods/status")], 0, self.client.requests)
        self.assertEqual(self.client.requests[("create", "nodes")], 0)

    async def test_a_refusal_is_reported(self) -> None:
        """A pod beyond what was lent stays Pending, with the lender's reason as condition and event."""
        await self.pod("greedy", cpu="64")

        async def reported() -> dict[str, Any]:
            return condition(await self.home.get(PODS, "greedy", self.space), "liqo.io/Offloaded")

        said = await self.eventually(reported)
        self.assertEqual(said["status"], "False")
        self.assertIn("cpu", said["message"])

        async def received() -> bool:
            return ("greedy", said["reason"], said["message"]) in self.events.seen

        # The event follows the condition's write.
        await self.eventually(received)
        await self.pause(1)
        self.assertEqual(len([seen for seen in self.events.seen if seen[0] == "greedy"]), 1)
        await self.home.delete(PODS, "greedy", self.space)
        await self.gone(self.home, PODS, "greedy", self.space)

    async def test_a_namespace_that_is_not_enabled(self) -> None:
        """A pod forced onto the node from elsewhere stays Pending with OffloadingBackOff, and nothing is offloaded."""
        other = f"{self.space}-other"
        await self.namespace(other, {})
        await self.pod("stray", namespace=other)

        async def reported() -> bool:
            status = (await self.home.get(PODS, "stray", other))["status"]
            return bool(status.get("reason") == "OffloadingBackOff" and status["phase"] == "Pending")

        await self.eventually(reported)
        self.assertEqual(self.session.asked, [])
        await self.home.delete(PODS, "stray", other)
        await self.gone(self.home, PODS, "stray", other)

    async def test_disabling_a_namespace(self) -> None:
        """When the label goes, the pods leave, the remote namespace is given back, and the table forgets it."""
        await self.pod("web")
        await self.runs("web")
        await self.home.patch(NAMESPACES, self.space, {"metadata": {"labels": {"liqo.io/enabled": None}}})
        await self.gone(self.home, PODS, "web", self.space)

        async def forgotten() -> bool:
            table = await self.home.get(NATTINGTABLES, str(self.peer))
            return not table["spec"].get("nattingTable") and not table["spec"].get("deNattingTable")

        await self.eventually(forgotten)
        await self.gone(self.lender, NAMESPACES, self.remote)

    async def test_a_remote_pod_that_vanishes(self) -> None:
        """A pod deleted at the lender comes back there: the same home pod, one restart more, never deleted."""
        await self.pod("web")
        first = await self.runs("web")
        old = await self.lender.get(PODS, "web", self.remote)
        await self.lender.delete(PODS, "web", self.remote, grace=0)

        async def replaced() -> bool:
            pod = await self.lender.get(PODS, "web", self.remote)
            return bool(pod["metadata"]["uid"] != old["metadata"]["uid"])

        await self.eventually(replaced)
        await self.run_remote("web")

        async def counted() -> dict[str, Any]:
            pod = await self.home.get(PODS, "web", self.space)
            self.assertEqual(condition(pod, "Ready")["status"], "True")
            self.assertEqual(pod["status"]["containerStatuses"][0]["restartCount"], 1)
            return pod

        again = await self.eventually(counted)
        self.assertEqual(again["metadata"]["uid"], first["metadata"]["uid"])

    async def test_removing_the_virtual_node(self) -> None:
        """Deleting the record empties and removes the node, its lease, the mappings and the remote namespace."""
        await self.pod("web")
        await self.runs("web")
        await self.home.delete(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        await self.gone(self.home, NODES, self.node)
        await self.gone(self.home, PODS, "web", self.space)
        await self.gone(self.home, LEASES, self.node, "kube-node-lease")
        await self.gone(self.home, NATTINGTABLES, str(self.peer))
        await self.gone(self.lender, NAMESPACES, self.remote)

    async def test_a_record_deleted_while_nobody_looked(self) -> None:
        """A node whose record went away while the daemon was down is removed when it starts."""
        await self.node_is("True")
        await self.stop()
        await self.home.delete(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        await self.start()
        await self.gone(self.home, NODES, self.node)

    async def test_a_foreign_node_of_that_name(self) -> None:
        """A node that stands for something else is not touched, and the record says why there is none."""
        await self.node_is("True")
        await self.stop()
        await self.home.delete(NODES, self.node)
        await self.home.create(NODES, {"metadata": {"name": self.node, "labels": {"mine": "yes"}}})
        await self.start()

        async def reported() -> bool:
            record = await self.home.get(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
            return bool(condition(record, "Node")["reason"] == "NameTaken")

        await self.eventually(reported)
        node = await self.home.get(NODES, self.node)
        self.assertNotIn("liqo.io/type", node["metadata"]["labels"])

    async def test_without_a_session(self) -> None:
        """Without a session a namespace waits and says why; when the session is back, the pod runs."""
        self.session.connected = False
        await self.pod("web")

        async def reported() -> bool:
            table = await self.home.get(NATTINGTABLES, str(self.peer))
            self.assertEqual(table["spec"]["nattingTable"], {self.space: self.remote})
            return bool(table["status"]["mappings"][self.space]["reason"] == "PeerUnreachable")

        await self.eventually(reported)
        self.session.connected = True
        await self.runs("web")

    async def test_a_token_that_rotates(self) -> None:
        """A rejected token makes the node NotReady with the reason; a fresh one is used without a restart."""
        await self.node_is("True")
        await self.credential("not-a-token")
        await self.node_is("False", "CredentialRejected")
        await self.credential(self.grant.token)
        await self.node_is("True")
        await self.pod("web")
        await self.runs("web")


def condition(thing: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the condition of a type; raises KeyError."""
    for found in thing.get("status", {}).get("conditions") or []:
        if found["type"] == kind:
            return dict(found)
    raise KeyError(kind)
