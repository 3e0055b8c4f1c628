"""Virtual kubelets between two sandboxes."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import connectionDone
from twisted.protocols import portforward
from twisted.python.failure import Failure

from liqod.kube.client import Client
from liqod.kube.errors import ServerError, from_status
from liqod.kube.resources import (
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACES,
    NATTINGTABLES,
    NODES,
    PODS,
    SHADOWPODS,
    VIRTUALNODES,
    Resource,
)
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.pods import controller as pods
from liqod.kubelet.tokens import controller as tokens
from liqod.model.ids import Key
from liqod.model.names import HOME_UID_ANNOTATION, tenant_namespace
from tests.kubelet import cases, patch_cases
from tests.kubelet.reflection import sandboxes


class KubeletTests(sandboxes.Sandboxes, patch_cases.PatchCase, cases.KubeletCase):
    """The cases of virtual kubelets, each with two clusters of its own."""

    def way(self, server: str) -> str:
        """Lead the way to the lender through a relay that can be cut."""
        from twisted.internet import reactor

        self.relay = Relay(int(server.rsplit(":", 1)[1]))
        self.relay.listen(reactor)
        self.addCleanup(self.relay.cut)
        return f"https://127.0.0.1:{self.relay.port}"

    async def test_a_lender_that_goes_away(self) -> None:
        """An unreachable lender makes the node NotReady within seconds and deletes nothing; back again, all goes on."""
        from twisted.internet import reactor

        await self.pod("web")
        await self.runs("web")
        await self.relay.cut()
        await self.node_is("False", "PeerUnreachable")
        await self.home.delete(PODS, "web", self.space, grace=0)
        await self.pod("late")
        await self.pause(0.5)
        await self.lender.get(SHADOWPODS, "web", self.remote)
        self.relay.listen(reactor)
        await self.node_is("True")
        await self.gone(self.lender, SHADOWPODS, "web", self.remote)
        await self.runs("late")

    async def test_whose_pod_it_is(self) -> None:
        """The way to a pod tells whether the lender runs it, or has a stranger's pod of its name."""
        await self.pod("web")
        await self.runs("web")
        body = {"metadata": {"name": "db"}, "spec": {"containers": [{"name": "main", "image": "localhost/busybox:1"}]}}
        await self.lender.create(PODS, body, self.remote)
        await self.pod("db")

        async def known() -> bool:
            return self.kubelets.route(Key(self.space, "db")) is not None

        await self.eventually(known)
        routes = [self.kubelets.route(Key(self.space, name)) for name in ("web", "db")]
        self.assertEqual([route.there for route in routes if route is not None], [True, False])

    async def test_a_record_that_has_no_node(self) -> None:
        """Of a record that goes without ever having had a node nothing is remembered."""
        await self.node_is("True")
        namespace = tenant_namespace(self.peer)
        spec = {"clusterID": str(self.peer), "nodeName": self.node}
        await self.home.create(VIRTUALNODES, {"metadata": {"name": "second", "namespace": namespace}, "spec": spec})

        async def rests() -> bool:
            record = await self.home.get(VIRTUALNODES, "second", namespace)
            return "has the node name" in str(record.get("status"))

        await self.eventually(rests)
        await self.home.delete(VIRTUALNODES, "second", namespace)
        await self.pause(0.5)
        self.assertEqual((self.kubelets._removed, len(self.kubelets)), (set(), 1))

    async def test_a_session_that_is_back(self) -> None:
        """When the peering says that the lender is no longer suspect, its API server is asked at once."""
        await self.node_is("True")
        (kubelet,) = self.kubelets.of_lender(self.peer)
        asked: list[str] = []
        self.patch(kubelet.health, "session_resumed", lambda: asked.append("asked"))
        body = {"metadata": {"name": str(self.peer)}, "spec": {"clusterID": str(self.peer)}}
        await self.home.create(FOREIGNCLUSTERS, body)
        self.addCleanup(self.home.delete, FOREIGNCLUSTERS, str(self.peer))
        for phase in ("Ready", "Suspect", "Accepted", "Ready"):
            await self.home.patch(
                FOREIGNCLUSTERS, str(self.peer), {"status": {"phase": phase}}, subresource="status", view=None
            )

        async def received() -> bool:
            return bool(asked)

        await self.eventually(received)
        await self.pause(0.2)
        self.assertEqual(len(asked), 1)

    async def test_a_pod_deleted_while_the_lender_is_away(self) -> None:
        """A deleted pod waits for the lender a while, then goes; its ShadowPod goes when the lender is back."""
        from twisted.internet import reactor

        self.patch(pods, "GIVE_UP_AFTER", 1.0)
        await self.pod("web")
        await self.runs("web")
        await self.relay.cut()
        await self.node_is("False", "PeerUnreachable")
        await self.home.delete(PODS, "web", self.space)
        await self.gone(self.home, PODS, "web", self.space)
        self.relay.listen(reactor)
        await self.gone(self.lender, SHADOWPODS, "web", self.remote)


class RestartTests(sandboxes.Sandboxes, cases.KubeletSides):
    """The first steps of a daemon that finds many pods on its node."""

    async def test_an_api_server_that_fails_at_the_start(self) -> None:
        """What could not be read at first is read again: the natting table then names the cluster that wrote it."""
        await self.stop()
        get, failed = Client.get, list[str]()

        async def failing(client: Client, resource: Resource, name: str, *given: Any, **options: Any) -> Any:
            if (resource, name) == (NAMESPACES, "kube-system") and not failed:
                failed.append(name)
                raise from_status(500, b'{"message": "etcd is elsewhere"}')
            return await get(client, resource, name, *given, **options)

        self.patch(Client, "get", failing)
        await self.start()
        await self.pod("web")
        await self.runs("web")
        table = await self.home.get(NATTINGTABLES, str(self.peer))
        system = await self.home.get(NAMESPACES, "kube-system")
        self.assertEqual(len(failed), 1)
        self.assertEqual(table["metadata"]["annotations"][HOME_UID_ANNOTATION], system["metadata"]["uid"])

    async def test_a_removal_that_failed_half_way(self) -> None:
        """A record that is back before its node was removed whole has a virtual node that works."""
        await self.pod("web")
        await self.runs("web")
        delete = self.client.delete

        async def refused(resource: Resource, name: str, namespace: str = "", **more: Any) -> Any:
            if resource == LEASES:
                raise ServerError(503, "ServiceUnavailable", "etcd is busy")
            return await delete(resource, name, namespace, **more)

        record = await self.home.get(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        self.patch(self.client, "delete", refused)
        await self.home.delete(VIRTUALNODES, str(self.peer), tenant_namespace(self.peer))
        await self.gone(self.home, NODES, self.node)
        metadata = {"name": str(self.peer), "namespace": tenant_namespace(self.peer)}
        await self.home.create(VIRTUALNODES, {"metadata": metadata, "spec": record["spec"]})
        await self.node_is("True")
        await self.pod("again")
        await self.runs("again")

    async def test_new_pods_do_not_wait_for_old_ones(self) -> None:
        """A pod that nothing was done for yet, or one to be deleted, comes before those that run already: its step, and
        that for its tokens.
        """
        await self.node_is("True")
        await self.stop()
        for number in range(80):
            await self.pod(f"old-{number}")
            await self.home.patch(PODS, f"old-{number}", {"status": running()}, self.space, subresource="status")
        await self.pod("zz-new")
        taken: dict[str, list[str]] = {"pods": [], "tokens": []}

        def record(kind: str) -> Any:
            async def reconcile(_: object, key: Key) -> None:
                taken[kind].append(key.name)

            return reconcile

        self.patch(pods.PodController, "reconcile", record("pods"))
        self.patch(tokens.TokenController, "reconcile", record("tokens"))
        await self.start()

        async def all_taken() -> bool:
            return all({"zz-new", "old-79"} <= set(names) for names in taken.values())

        await self.eventually(all_taken)
        for names in taken.values():
            self.assertLess(names.index("zz-new"), 3, names)


class NetworkTests(sandboxes.Sandboxes, cases.KubeletSides):
    """Virtual kubelets where a network leads to the lender's pods."""

    async def start(self) -> None:
        self.network.manage(self.network.status.value)
        await super().start()

    def say(self, *, crosses: bool) -> None:
        """Let the network be up or down."""
        reason = "NetworkReady" if crosses else "NetworkDown"
        self.network.status.set(Readiness(ready=crosses, reason=reason, message="as it is"))

    async def test_another_mapping(self) -> None:
        """Pods at home show the addresses by which they are reached: when the mapping changes, these follow."""
        await self.pod("web")
        await self.runs("web")
        self.network.translate_home = lambda address: f"10.64.{address.partition('.')[2].partition('.')[2]}"
        self.network.changed()
        there = (await self.lender.get(PODS, "web", self.remote))["status"]["podIP"]

        async def moved() -> bool:
            status = (await self.home.get(PODS, "web", self.space))["status"]
            return bool(status["podIP"] == self.network.translate_home(there))

        await self.eventually(moved)

    async def test_a_tunnel_that_is_decided_later(self) -> None:
        """The node has NetworkUnavailable while there is a tunnel, which may be decided while the node is there."""

        async def shows(wanted: bool) -> bool:
            node = await self.home.get(NODES, self.node)
            kinds = [one["type"] for one in node["status"]["conditions"]]
            self.assertEqual("NetworkUnavailable" in kinds, wanted)
            return True

        self.say(crosses=True)
        await self.eventually(lambda: shows(True))
        self.network.leave()
        self.network.status.set(Readiness(ready=True, reason="NetworkReady", message="there is no tunnel"))
        await self.eventually(lambda: shows(False))
        self.network.manage(Readiness(ready=True, reason="NetworkReady", message="packets cross"))
        await self.eventually(lambda: shows(True))

    async def test_a_dead_tunnel(self) -> None:
        """While no packet crosses pods are not ready at home and the node says so; nothing is deleted, and all of it
        comes back, also when a daemon was started in between.
        """
        made = await self.pod("web")
        await self.runs("web")
        there = await self.lender.get(PODS, "web", self.remote)
        self.say(crosses=False)
        node = await self.node_is("False", "NetworkDown")
        self.assertEqual(cases.condition(node, "NetworkUnavailable")["status"], "True")

        async def cut_off() -> bool:
            pod = await self.home.get(PODS, "web", self.space)
            self.assertEqual(pod["metadata"]["uid"], made["metadata"]["uid"])
            ready = cases.condition(pod, "Ready")
            return bool((ready["status"], ready.get("reason")) == ("False", "NetworkDown"))

        await self.eventually(cut_off)
        before = await self.home.get(PODS, "web", self.space)
        self.assertEqual(before["status"]["phase"], "Running")
        await self.stop()
        await self.start()
        await self.settled_pods()
        self.assertEqual(await self.home.get(PODS, "web", self.space), before)
        self.say(crosses=True)
        await self.node_is("True")
        after = await self.runs("web")
        self.assertEqual(after["metadata"]["uid"], made["metadata"]["uid"])
        self.assertEqual((await self.lender.get(PODS, "web", self.remote))["metadata"], there["metadata"])

    async def settled_pods(self) -> None:
        """Wait until the daemon knows its pods and has looked at them."""

        async def known() -> bool:
            return any(each.health.ok and len(each.pods) == 1 for each in self.kubelets.of_lender(self.peer))

        await self.eventually(known)
        await self.pause(1.0)


class Relay:
    """Passes connections on to a port of this host, until it is cut; then nothing gets through and all are broken."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._listening: Any = None
        self._open: set[Any] = set()

    def listen(self, reactor: Any) -> None:
        """Let connections through (again, on the same port)."""
        relay = self

        class Through(portforward.ProxyServer):
            def connectionMade(self) -> None:
                relay._open.add(self)
                super().connectionMade()

            def connectionLost(self, reason: Failure = connectionDone) -> None:
                relay._open.discard(self)
                super().connectionLost(reason)

        factory = portforward.ProxyFactory("127.0.0.1", self._target)
        factory.noisy = False
        factory.protocol = Through
        self._listening = reactor.listenTCP(self.port, factory, interface="127.0.0.1")
        self.port = self._listening.getHost().port

    async def cut(self) -> None:
        """Break every connection and accept no more."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.stopListening()
        for connection in list(self._open):
            connection.transport.abortConnection()


def running() -> dict[str, Any]:
    """Return what a kubelet says of a pod that runs."""
    since = "2026-01-01T00:00:00Z"
    ready = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("Ready", "ContainersReady")]
    container = {"name": "main", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    return {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "hostIP": "192.168.0.1",
        "hostIPs": [{"ip": "192.168.0.1"}],
        "conditions": ready,
        "containerStatuses": [{**container, "state": {"running": {"startedAt": since}}, "lastState": {}}],
    }
