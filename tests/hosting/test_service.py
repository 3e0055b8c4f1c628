"""Hosting on the sandbox's API server."""

from __future__ import annotations

from fractions import Fraction

import msgspec
from kubesandbox.cluster import SandboxCluster
from kubesandbox.controllers.api_controllers import GarbageCollector
from kubesandbox.nodes.node import SandboxNode
from twisted.internet.defer import Deferred

from liqod.demo.access import client_config
from liqod.kube.client import Client
from liqod.kube.resources import (
    ENDPOINTSLICES,
    FOREIGNCLUSTERS,
    NAMESPACES,
    PODS,
    PRIORITYCLASSES,
    SHADOWENDPOINTSLICES,
    SHADOWPODS,
)
from liqod.model.records.offer import Refusal
from tests.hosting import isolation_cases
from tests.hosting.side import pod_spec


class HostingOnTheSandboxTests(isolation_cases.IsolationCase):
    """The cases of hosting, each with a cluster of its own."""

    patience = 10.0
    timeout = 60

    def setUp(self) -> Deferred[None]:  # type: ignore[override]
        return Deferred.fromCoroutine(self._set_up())

    async def _set_up(self) -> None:
        from twisted.internet import reactor

        cluster = SandboxCluster(reactor, "lender", [SandboxNode("one", cpu="64", memory="64Gi")])
        cluster.listen(reactor)
        cluster.startService()
        self.addCleanup(cluster.stop)
        self.cluster = cluster
        self.admin = Client(client_config(cluster), reactor)
        self.addCleanup(self.admin.close)
        await self.begin()

    async def _deletions(self) -> int:
        """Delete a ShadowPod whose pod runs, wait until the pod is gone, and count hosting's own deletions."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        await borrower.delete(SHADOWPODS, "web", namespace)
        await self.pod_goes(namespace)
        return self.requests.requests[("delete", "pods")]

    async def test_priority(self) -> None:
        """A tenant's pod has the priority class that liqod made, below all others, whatever the borrower asks for."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace, spec=pod_spec(priorityClassName="system-node-critical"))
        self.assertEqual((await self.runs(namespace))["spec"]["priorityClassName"], "liqod-tenant")
        made = await self.admin.get(PRIORITYCLASSES, "liqod-tenant")
        self.assertEqual((made["value"], made["preemptionPolicy"]), (-1, "Never"))

    async def test_what_orphaning_leaves(self) -> None:
        """Pods and slices of records that are deleted with ``propagationPolicy=Orphan`` go too, and count until then;
        what is alike in a namespace of nobody's stays.
        """
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        pod = await self.runs(namespace)
        await self.slice(borrower, namespace, "db", "192.0.2.7")

        async def made() -> bool:
            return "db" in await self.names_of_slices(namespace)

        await self.becomes(made, "the slice is made")
        await self.admin.create(NAMESPACES, {"metadata": {"name": "nobodys"}})
        metadata = {key: pod["metadata"][key] for key in ("name", "labels", "annotations")}
        await self.admin.create(PODS, {"metadata": metadata, "spec": pod_spec()}, "nobodys")
        copied = (await self.admin.get(ENDPOINTSLICES, "db", namespace))["metadata"]["labels"]
        await self.admin.create(
            ENDPOINTSLICES,
            {"metadata": {"name": "db", "labels": copied}, "addressType": "IPv4", "endpoints": []},
            "nobodys",
        )
        await self.settle()
        self.assertEqual(self.hosting.used_by(self.peer)["pods"], 1)
        await borrower.delete(SHADOWENDPOINTSLICES, "db", namespace, propagation="Orphan")
        await borrower.delete(SHADOWPODS, "web", namespace, propagation="Orphan")
        await self.pod_goes(namespace)

        async def gone() -> bool:
            return not await self.names_of_slices(namespace) and not self.hosting.used_by(self.peer)

        await self.becomes(gone, "nothing is left")
        await self.settle()
        self.assertEqual(await self.names_of_slices("nobodys"), ["db"])
        self.assertEqual((await self.pod("nobodys"))["metadata"].get("deletionTimestamp"), None)

    async def names_of_slices(self, namespace: str) -> list[str]:
        return [one["metadata"]["name"] for one in (await self.admin.list(ENDPOINTSLICES, namespace)).items]

    async def test_reclaimed(self) -> None:
        """A pod is evicted once, by the order in the peer's record, and neither comes back nor is another one made."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        order = {"spec": {"reclaim": {"by": "2020-01-01T00:00:00Z"}}}
        await self.admin.patch(FOREIGNCLUSTERS, self.peer, order)
        await self.pod_goes(namespace)
        await self.status_becomes(namespace, "web", phase="Failed", reason="Reclaimed")
        await self.has_no_pod(namespace)
        self.assertEqual(self.requests.requests[("create", "pods/eviction")], 1)
        self.assertEqual(self.requests.requests[("create", "pods")], 1)
        await self.shadow(borrower, namespace, "late")
        await self.status_becomes(namespace, "late", phase="Failed", reason="Reclaimed")

    async def test_left_to_the_garbage_collector(self) -> None:
        """A pod that the cluster deletes with its owner is not deleted by hosting as well."""
        self.assertEqual(await self._deletions(), 0)

    async def test_without_a_garbage_collector(self) -> None:
        """A pod that nobody else deletes is deleted by hosting, once."""
        for service in self.cluster:
            if isinstance(service, GarbageCollector):
                service.stopService()
        self.assertEqual(await self._deletions(), 1)

    async def test_resized(self) -> None:
        """A pod is resized by one request of its own, within what is lent; beyond that it is reported and left as it
        is.
        """
        borrower, namespace = await self.tenant(cpu="2")
        await self.shadow(borrower, namespace, spec=pod_spec("100m"))
        pod = await self.runs(namespace)
        before = self.requests.requests.copy()
        await borrower.patch(SHADOWPODS, "web", {"spec": {"pod": pod_spec("1500m")}}, namespace)

        async def followed() -> bool:
            seen = await self.pod(namespace)
            self.assertEqual(seen["metadata"]["uid"], pod["metadata"]["uid"])
            return bool(seen["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m")

        await self.becomes(followed, "the pod is resized")
        await self.settle()
        self.assertEqual(self.requests.requests - before, {("patch", "pods/resize"): 1, ("patch", "pods"): 1})
        self.assertEqual(self.hosting.used_by(self.peer)["cpu"], Fraction(3, 2))
        await borrower.patch(SHADOWPODS, "web", {"spec": {"pod": pod_spec("3")}}, namespace)

        async def reported() -> bool:
            return self.events.warnings == [f"Warning {namespace}/web UpdateRefused"]

        await self.becomes(reported, "the refusal is reported")
        await self.settle()
        self.assertTrue(await followed())
        self.assertEqual(self.hosting.used_by(self.peer)["cpu"], Fraction(3, 2))
        self.assertEqual(self.requests.requests[("patch", "pods/resize")], 1)

    async def test_resized_when_there_is_room(self) -> None:
        """A size for which there is no room is reported once, and given as soon as another pod leaves, also by a
        hosting that was not there when it was asked for; other changes do not wait for it.
        """
        borrower, namespace = await self.tenant(cpu="2")
        await self.shadow(borrower, namespace, spec=pod_spec("100m"))
        await self.shadow(borrower, namespace, "other", spec=pod_spec("1500m"))
        pod = await self.runs(namespace)
        await self.runs(namespace, "other")
        await borrower.patch(SHADOWPODS, "web", {"spec": {"pod": pod_spec("1")}}, namespace)

        async def reported() -> bool:
            return self.events.warnings == [f"Warning {namespace}/web UpdateRefused"]

        await self.becomes(reported, "the refusal is reported")
        await self.settle()
        writes = sum(count for (verb, _), count in self.requests.requests.items() if verb == "patch")
        await borrower.patch(SHADOWPODS, "web", {"metadata": {"labels": {"tier": "x"}}}, namespace)

        async def labelled() -> bool:
            return bool((await self.pod(namespace))["metadata"]["labels"].get("tier") == "x")

        await self.becomes(labelled, "the label is there")
        await self.settle()
        self.assertTrue(await reported())
        after = sum(count for (verb, _), count in self.requests.requests.items() if verb == "patch")
        self.assertEqual(after - writes, 1)
        await self.hosting.stopService()
        self.hosting, self.requests = await self.start_hosting()
        await self.settle()
        self.assertEqual(self.requests.requests[("patch", "pods/resize")], 0)
        await borrower.delete(SHADOWPODS, "other", namespace)

        async def resized() -> bool:
            seen = await self.pod(namespace)
            self.assertEqual(seen["metadata"]["uid"], pod["metadata"]["uid"])
            return bool(seen["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1")

        await self.becomes(resized, "it is resized")
        await self.settle()
        self.assertEqual(self.requests.requests[("patch", "pods/resize")], 1)
        self.assertEqual(self.hosting.used_by(self.peer)["cpu"], Fraction(1))

    async def test_a_size_that_is_not_wanted_any_more(self) -> None:
        """A pod whose larger size was taken back does not keep room from others that wait for it."""
        borrower, namespace = await self.tenant(cpu="2")
        for name in ("web", "other"):
            await self.shadow(borrower, namespace, name, spec=pod_spec("900m"))
            await self.runs(namespace, name)

        async def reported() -> bool:
            return len(self.events.warnings) == 1

        for cpu in ("1500m", "900m"):
            await borrower.patch(SHADOWPODS, "web", {"spec": {"pod": pod_spec(cpu)}}, namespace)
            await self.settle()
            await self.becomes(reported, "what is too large is reported once")
        await self.shadow(borrower, namespace, "late", spec=pod_spec("1"))
        await self.settle()
        await borrower.delete(SHADOWPODS, "other", namespace)
        await self.runs(namespace, "late")
        self.assertEqual(self.hosting.used_by(self.peer)["cpu"], Fraction(19, 10))

    async def test_a_cluster_with_a_longer_id(self) -> None:
        """A name that ends with the ID of another trusted cluster is that one's; what was granted before stays."""
        name = f"shop-north-{self.peer}"
        await self.tenant("shop-north")
        spec = {"clusterID": f"north-{self.peer}", "fingerprint": "sha256:" + "a" * 64}
        await self.admin.create(FOREIGNCLUSTERS, {"metadata": {"name": spec["clusterID"]}, "spec": spec})

        async def known() -> bool:
            return f"north-{self.peer}" in self.hosting._offers.trusted()

        await self.becomes(known, "the other cluster is trusted")
        self.assertFalse(await self.hosting.map_namespace(self.peer, "shop-north", name))
        with self.assertRaises(Refusal) as caught:
            await self.hosting.map_namespace(self.peer, "db-north", f"db-north-{self.peer}")
        self.assertEqual(caught.exception.reason, "NameReserved")
        await self.admin.delete(FOREIGNCLUSTERS, f"north-{self.peer}")

    async def test_names_that_are_not_granted_any_more(self) -> None:
        """When fewer names are allowed what was granted stays, for its namespace at home alone; nothing new is."""
        with_names = self.settings()
        granting = msgspec.structs.replace(with_names.hosting, namespace_names=["team-*"])
        self.patch(self, "settings", lambda: msgspec.structs.replace(with_names, hosting=granting))
        await self.hosting.stopService()
        self.hosting, self.requests = await self.start_hosting()
        await self.tenant()
        name = f"team-{self.peer}-a"
        self.assertTrue(await self.hosting.map_namespace(self.peer, "team", name))
        self.patch(self, "settings", lambda: with_names)
        await self.hosting.stopService()
        self.hosting, self.requests = await self.start_hosting()
        self.assertFalse(await self.hosting.map_namespace(self.peer, "team", name))
        for local, remote in (("other", name), ("team", f"team-{self.peer}-b")):
            with self.assertRaises(Refusal) as caught:
                await self.hosting.map_namespace(self.peer, local, remote)
            self.assertEqual(caught.exception.reason, "NameNotYours")

    async def test_debugged(self) -> None:
        """A container for debugging comes to the running pod, once; a pod that is made again does not get it again."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        first = await self.runs(namespace)
        look = {"name": "look", "image": "localhost/busybox:1", "terminationMessagePolicy": "File"}
        await borrower.patch(SHADOWPODS, "web", {"spec": {"pod": {"ephemeralContainers": [look]}}}, namespace)

        async def added() -> bool:
            found = (await self.pod(namespace))["spec"].get("ephemeralContainers") or []
            return [one["name"] for one in found] == ["look"]

        await self.becomes(added, "the container is there")
        await self.settle()
        self.assertEqual(self.requests.requests[("patch", "pods/ephemeralcontainers")], 1)
        await self.end_pod(namespace, "web", "Failed", "Evicted", disrupted=True)
        await self.runs(namespace, beside=first["metadata"]["uid"])
        await self.settle()
        self.assertFalse(await added())
        self.assertEqual(self.requests.requests[("patch", "pods/ephemeralcontainers")], 1)

    async def test_a_privileged_debugger(self) -> None:
        """A container for debugging that the Pod Security level forbids is reported, and the pod goes on without it."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        first = await self.runs(namespace)
        container = {"name": "root", "image": "localhost/busybox:1", "securityContext": {"privileged": True}}
        await borrower.patch(SHADOWPODS, "web", {"spec": {"pod": {"ephemeralContainers": [container]}}}, namespace)

        async def reported() -> bool:
            return self.events.warnings == [f"Warning {namespace}/web UpdateRefused"]

        await self.becomes(reported, "the refusal is reported")
        self.assertIn("privileged", self.events.seen[-1][1])
        await self.settle()
        seen = await self.pod(namespace)
        self.assertNotIn("ephemeralContainers", seen["spec"])
        self.assertEqual(seen["metadata"]["uid"], first["metadata"]["uid"])
        self.assertEqual(self.requests.requests[("patch", "pods/ephemeralcontainers")], 1)
