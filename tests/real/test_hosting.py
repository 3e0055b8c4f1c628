"""Hosting on a real API server, with the controllers and the admission of Kubernetes."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Awaitable
from typing import Any, cast

from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater

from liqod.hosting.home.path import SILENT_FOR
from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant
from liqod.kube.errors import ApiError, Forbidden
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    CONFIGMAPS,
    ENDPOINTSLICES,
    FOREIGNCLUSTERS,
    INGRESSES,
    NAMESPACES,
    PERSISTENTVOLUMECLAIMS,
    SECRETS,
    SERVICEACCOUNTS,
    SERVICES,
    SHADOWENDPOINTSLICES,
    SHADOWPODS,
    Resource,
)
from liqod.model.names import ORIGIN_LABEL
from tests.hosting import isolation_cases
from tests.real.sides import Asked


class HostingOnRealClustersTests(Asked, isolation_cases.IsolationCase):
    """The cases of hosting, each with a tenant of its own on one cluster."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        await self.begin()

    async def test_borrowers_keep_to_their_contract(self) -> None:
        """The API server refuses a borrower what other controllers would act on: hosts, names, annotations,
        finalizers, classes and slices of names.
        """
        borrower, namespace = await self.tenant()
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        path = {"path": "/.well-known", "pathType": "Prefix", "backend": backend}
        ingress = {"rules": [{"host": "www.lender.example", "http": {"paths": [path]}}]}
        port: dict[str, Any] = {"ports": [{"port": 80}]}
        claim: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        beta = {"volume.beta.kubernetes.io/storage-class": ""}
        template = {"addressType": "FQDN", "endpoints": [{"addresses": ["vault.vault"]}]}
        own = {ORIGIN_LABEL: str(self.peer)}
        balanced = {"type": "LoadBalancer", "loadBalancerClass": "a.b/c"}
        selector = {"matchLabels": {"a": "b"}}
        attempts: list[tuple[str, Resource, dict[str, Any], dict[str, Any]]] = [
            ("ingress-hosts", INGRESSES, {"labels": own}, {"spec": ingress}),
            ("service-types", SERVICES, {"labels": own}, {"spec": {"type": "ExternalName", "externalName": "a.b"}}),
            ("offered", SERVICES, {"labels": own}, {"spec": {**port, **balanced}}),
            (
                "[hosting] annotations",
                SERVICES,
                {"labels": own, "annotations": {"metallb.io/loadBalancerIPs": "192.0.2.1"}},
                {"spec": port},
            ),
            (ORIGIN_LABEL, SECRETS, {}, {}),
            (ORIGIN_LABEL, SERVICES, {}, {"spec": port}),
            (ORIGIN_LABEL, PERSISTENTVOLUMECLAIMS, {}, {"spec": claim}),
            (ORIGIN_LABEL, CONFIGMAPS, {"labels": {"app": "web"}}, {}),
            (
                "[hosting] annotations",
                SECRETS,
                {"labels": own, "annotations": {"replicator.example/replicate-to": "x"}},
                {},
            ),
            ("[hosting] labels", CONFIGMAPS, {"labels": {**own, "argocd.argoproj.io/secret-type": "cluster"}}, {}),
            ("finalizers", CONFIGMAPS, {"labels": own, "finalizers": ["x.example/never"]}, {}),
            ("finalizers", SHADOWPODS, {"finalizers": ["x.example/never"]}, {"spec": {"pod": {}}}),
            ("annotation", PERSISTENTVOLUMECLAIMS, {"labels": own, "annotations": beta}, {"spec": claim}),
            ("select", PERSISTENTVOLUMECLAIMS, {"labels": own}, {"spec": {**claim, "selector": selector}}),
            ("names", SHADOWENDPOINTSLICES, {}, {"spec": {"template": template}}),
        ]

        async def refused(resource: Resource, meta: dict[str, Any], body: dict[str, Any]) -> str:
            try:
                await borrower.create(resource, {"metadata": {"generateName": "probe-", **meta}, **body}, namespace)
            except ApiError as error:
                return error.message
            return ""

        for word, resource, meta, body in attempts:

            async def in_force(word: str = word, what: Any = (resource, meta, body)) -> bool:
                return word in await refused(*what)

            await self.becomes(in_force, f"{resource} is refused")
        fine: list[tuple[Resource, dict[str, Any], dict[str, Any]]] = [
            (
                SERVICES,
                {"annotations": {"note": "n"}, "labels": {**own, "app.kubernetes.io/name": "w"}},
                {"spec": port},
            ),
            (SECRETS, {"labels": own, "annotations": {"meta.helm.sh/release-name": "r"}}, {}),
            (PERSISTENTVOLUMECLAIMS, {"labels": own, "annotations": {"note": "n"}}, {"spec": claim}),
            (CONFIGMAPS, {"labels": {**own, "app": "web"}}, {"data": {"a": "b"}}),
        ]
        for resource, meta, body in fine:
            self.assertEqual(await refused(resource, meta, body), "")

    async def test_the_path_home_without_a_tunnel(self) -> None:
        """While the peer's session is silent its endpoints are asked: one that answers stays ready, one that used to
        answer and does not is unready until the session is back.
        """
        from twisted.internet import reactor

        address = "192.0.2.77"
        self.ip("address", "add", f"{address}/32", "dev", "lo")
        listening = cast(Any, reactor).listenTCP(0, Factory.forProtocol(Protocol), interface=address)
        borrower, namespace = await self.tenant()
        endpoint = {"addresses": [address], "conditions": {"ready": True}}
        ports = [{"port": listening.getHost().port, "protocol": "TCP"}]
        template = {"addressType": "IPv4", "endpoints": [endpoint], "ports": ports}
        metadata = {"name": "db", "labels": {"kubernetes.io/service-name": "db"}}
        await self.phase("Ready")
        await self.service(borrower, namespace, "db", {ORIGIN_LABEL: self.peer})
        await borrower.create(SHADOWENDPOINTSLICES, {"metadata": metadata, "spec": {"template": template}}, namespace)

        async def ready() -> bool:
            (found,) = (await self.admin.get(ENDPOINTSLICES, "db", namespace))["endpoints"]
            return bool(found["conditions"]["ready"])

        async def unready() -> bool:
            return not await ready()

        await self.becomes(ready, "a ready endpoint")
        await self.phase("Suspect")
        await deferLater(reactor, SILENT_FOR + 3.0)
        self.assertTrue(await ready())
        self.ip("address", "del", f"{address}/32", "dev", "lo")
        self.ip("route", "add", "blackhole", f"{address}/32")
        await self.becomes(unready, "no path")
        await self.phase("Ready")
        await self.becomes(ready, "the path is back")
        await listening.stopListening()

    async def phase(self, name: str) -> None:
        """Have the peer's record say a phase, as peering does."""
        await self.admin.patch(FOREIGNCLUSTERS, str(self.peer), {"status": {"phase": name}}, subresource="status")

    def ip(self, *words: str) -> None:
        """Change this host's addresses or routes; what was added goes with the test."""
        subprocess.run(["ip", *words], check=True)
        if words[1] == "add":
            self.addCleanup(subprocess.run, ["ip", words[0], "del", *words[2:]], check=False, capture_output=True)

    async def test_a_tenant_that_fills_etcd(self) -> None:
        """It can create as many ShadowPods as it may have and those of a moment more, in all of its namespaces
        together, and none in a new one; other records it can; and with fewer of them ShadowPods again.
        """
        borrower, namespace = await self.tenant(pods="1")
        body: dict[str, Any] = {"spec": {"pod": {"containers": []}}}
        made: list[str] = []

        async def refused() -> bool:
            try:
                found = await borrower.create(SHADOWPODS, {"metadata": {"generateName": "p-"}, **body}, namespace)
            except Forbidden as error:
                self.assertIn("tenant-records", error.message)
                return True
            made.append(found["metadata"]["name"])
            return False

        await self.becomes(refused, "a refusal")
        self.assertGreaterEqual(len(made), 40)
        sliced: dict[str, Any] = {"spec": {"template": {"addressType": "IPv4", "endpoints": []}}}
        await borrower.create(SHADOWENDPOINTSLICES, {"metadata": {"name": "db"}, **sliced}, namespace)
        _, later = await self.tenant("later", pods="1")
        namespace, first = later, namespace
        self.assertTrue(await refused())
        for name in made[: len(made) - 30]:
            await borrower.delete(SHADOWPODS, name, first)

        async def accepted() -> bool:
            return not await refused()

        await self.becomes(accepted, "room again")

    async def test_a_tenant_that_fills_etcd_with_secrets(self) -> None:
        """When they are as large as they may be it can create none, in a new namespace neither; what does not grow
        changes still, until annotations have grown too much; and with less of them it creates some again.
        """
        borrower, namespace = await self.tenant()

        def secret(name: str, letters: str) -> dict[str, Any]:
            metadata = {"name": name, "labels": {ORIGIN_LABEL: str(self.peer)}}
            return {"metadata": metadata, "data": {"a": letters}}

        async def is_accepted(attempt: Awaitable[object]) -> bool:
            try:
                await attempt
            except Forbidden as error:
                self.assertIn("tenant-contents", error.message)
                return False
            return True

        async def creates(where: str = namespace) -> bool:
            name = f"small-{secrets.token_hex(4)}"
            return await is_accepted(borrower.create(SECRETS, secret(name, "aaaa"), where))

        async def changes(name: str, change: dict[str, Any]) -> bool:
            return await is_accepted(borrower.patch(SECRETS, name, change, namespace))

        async def is_full() -> bool:
            return not await creates()

        async def is_frozen() -> bool:
            return not await changes("s5", {"data": {"a": "c" * 100_000}})

        for number in range(11):
            await borrower.create(SECRETS, secret(f"s{number}", "a" * 100_000), namespace)
        await self.becomes(is_full, "a refusal")
        self.assertTrue(await changes("s0", {"data": {"a": "b" * 100_000}}))
        self.assertFalse(await changes("s0", {"data": {"a": "b" * 100_004}}))
        self.assertFalse(await changes("s0", {"data": {"b": "aaaa"}}))
        _, later = await self.tenant("later")
        self.assertFalse(await creates(later))
        for number in range(1, 5):
            self.assertTrue(await changes(f"s{number}", {"metadata": {"annotations": {"note": "x" * 60_000}}}))
        await self.becomes(is_frozen, "no change any more")
        for number in range(5):
            await borrower.delete(SECRETS, f"s{number}", namespace)
        await self.becomes(creates, "room again")

    async def test_a_tenant_that_takes_load_balancers(self) -> None:
        """In all of its namespaces together it gets as many as are its total, with its own credential and in whatever
        order it asks for them, and not one more.
        """
        balanced = {"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}}
        tenants = [await self.tenant(f"shop{number}") for number in range(6)]
        made: list[str] = []

        async def grab(number: int) -> bool:
            borrower, namespace = tenants[number]
            try:
                metadata = {"generateName": "taken-", "labels": {ORIGIN_LABEL: str(self.peer)}}
                await borrower.create(SERVICES, {"metadata": metadata, **balanced}, namespace)
            except Forbidden as error:
                self.assertIn("quota", error.message)
                return False
            made.append(namespace)
            return True

        async def all_taken() -> bool:
            for number in range(6):
                while await grab(number):
                    pass
            return len(made) >= 40

        await self.becomes(all_taken, "the total can be used")
        for _ in range(3):
            await self.settle()
            await all_taken()
        self.assertEqual(len(made), 40)

    async def user(self, name: str, *rules: dict[str, Any]) -> Client:
        """Return a client of an account with these rights across the cluster, and no others."""
        await self.admin.create(SERVICEACCOUNTS, {"metadata": {"name": name}}, "default")
        await self.admin.create(CLUSTERROLES, {"metadata": {"name": name}, "rules": list(rules)})
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        await self.admin.create(CLUSTERROLEBINDINGS, binding)
        request = {"spec": {"expirationSeconds": 3600}}
        answer = await self.admin.create(SERVICEACCOUNTS, request, "default", name=name, subresource="token")
        return self.having(answer["status"]["token"])

    def having(self, token: str) -> Client:
        from twisted.internet import reactor

        config = self.admin.config
        client = Client(from_grant(config.server, config.ca_pem or b"", lambda: token), reactor)
        self.addCleanup(client.close)
        return client

    async def test_nobody_prepares_the_namespace_of_a_tenant(self) -> None:
        """Who may make and change namespaces sets no label by which the daemon goes, on any of the ways to labels."""
        everything = {"apiGroups": [""], "resources": ["namespaces", "namespaces/*"], "verbs": ["*"]}
        somebody = await self.user(f"somebody-{self.peer}", everything)
        await self.tenant()  # the policies are there
        labels = {"liqo.io/remote-cluster-id": "prey", "liqo.io/tenant-namespace": "true"}
        own, prepared = f"own-{self.peer}", "liqo-tenant-prey"

        async def refused(body: dict[str, Any]) -> bool:
            try:
                await somebody.create(NAMESPACES, body)
            except Forbidden as error:
                return "patch foreignclusters" in error.message
            await self.admin.delete(NAMESPACES, body["metadata"]["name"])
            return False

        for body in ({"name": prepared}, {"name": f"x-{self.peer}", "labels": labels}):

            async def in_force(body: dict[str, Any] = body) -> bool:
                return await refused({"metadata": body})

            await self.becomes(in_force, f"{body} is refused")
        await somebody.create(NAMESPACES, {"metadata": {"name": own, "labels": {"a": "b"}}})
        for key, value in labels.items():
            patch = {"metadata": {"labels": {key: value}}}
            for subresource in ("", "status"):
                with self.assertRaises(Forbidden, msg=f"{key} {subresource}"):
                    await somebody.patch(NAMESPACES, own, patch, subresource=subresource)
        whole = await somebody.get(NAMESPACES, own)
        whole["metadata"]["labels"].update(labels)
        with self.assertRaises(Forbidden):
            await somebody.replace(NAMESPACES, whole, own, subresource="finalize")
        await somebody.patch(NAMESPACES, own, {"metadata": {"labels": {"a": "c"}}})
        await self.admin.delete(NAMESPACES, own)
