"""The cases of hosting, and those of borrowers that try to reach what belongs to others.

Import the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, NotFound
from liqod.kube.resources import (
    CLUSTERFACTS,
    CONFIGMAPS,
    ENDPOINTSLICES,
    FOREIGNCLUSTERS,
    LIMITRANGES,
    NAMESPACES,
    NETWORKPOLICIES,
    NODES,
    PODS,
    RESOURCEQUOTAS,
    ROLEBINDINGS,
    SECRETS,
    SERVICES,
    SHADOWENDPOINTSLICES,
    SHADOWPODS,
)
from liqod.model.ids import ClusterID
from liqod.model.names import (
    FULL_CONTENTS_LABEL,
    ORIGIN_LABEL,
    QUOTA_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
    tenant_namespace,
)
from liqod.model.objects.portable_metadata import POD_POLICY
from liqod.model.records.facts import FACTS_NAME
from liqod.model.records.offer import Refusal
from tests.facts.stated import state_networks
from tests.hosting import cases
from tests.hosting.side import pod_spec


class IsolationCase(cases.HostingCase):
    """All cases; a subclass provides the cluster."""

    async def refused_pod(self, client: Client, namespace: str, name: str, **fields: Any) -> str:
        """Ask for a pod that is not within the contract; return why not, by the API server or by the daemon."""
        try:
            await self.shadow(client, namespace, name, **fields)
        except Forbidden as error:
            return error.message if POD_POLICY in error.message else ""
        return str((await self.status_becomes(namespace, name, reason="InvalidPod"))["message"])

    async def test_what_is_of_others(self) -> None:
        """A pod gets no token of this cluster's accounts, and keeps off nobody's pods but its own tenant's."""
        borrower, namespace = await self.tenant()
        token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
        why = await self.refused_pod(borrower, namespace, "thief", spec=pod_spec(volumes=[token]))
        self.assertIn("service accounts are not for borrowers", why)
        term = {"topologyKey": "kubernetes.io/os", "labelSelector": {}, "namespaceSelector": {}}
        alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await self.shadow(borrower, namespace, name="alone", spec=pod_spec(affinity=alone))
        pod = await self.runs(namespace, "alone")
        (kept,) = pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(kept["namespaceSelector"]["matchLabels"], {REMOTE_CLUSTER_LABEL: str(self.peer)})
        await self.has_no_pod(namespace, "thief")

    async def test_bounds_of_a_namespace(self) -> None:
        """A granted namespace has a quota and a network policy before its borrower has rights in it; it may not
        remove them, the quota follows the offer, and the policy is for every pod again when somebody narrowed it.
        """
        borrower, namespace = await self.tenant(cpu="2", pods="10")
        quota = await self.admin.get(RESOURCEQUOTAS, "liqod-tenant", namespace)
        self.assertEqual(quota["spec"]["hard"]["count/secrets"], "510")
        policy = await self.admin.get(NETWORKPOLICIES, "liqod-tenant", namespace)
        self.assertEqual(policy["spec"]["policyTypes"], ["Egress"])
        for resource in (RESOURCEQUOTAS, NETWORKPOLICIES):
            with self.assertRaises(Forbidden):
                await borrower.delete(resource, "liqod-tenant", namespace)
        narrow = {"matchLabels": {"no": "pod"}, "matchExpressions": [{"key": "no", "operator": "Exists"}]}
        await self.admin.patch(
            NETWORKPOLICIES, "liqod-tenant", {"spec": {"podSelector": narrow}}, namespace, kind="merge"
        )
        await self.lend(cpu="2", pods="20")

        async def grown() -> bool:
            found = await self.admin.get(RESOURCEQUOTAS, "liqod-tenant", namespace)
            return bool(found["spec"]["hard"]["count/secrets"] == "520")

        async def wide() -> bool:
            found = await self.admin.get(NETWORKPOLICIES, "liqod-tenant", namespace)
            return not any(found["spec"]["podSelector"].values())

        await self.becomes(grown, "the quota follows the offer")
        await self.becomes(wide, "the policy selects every pod")

    async def test_the_sum_of_many_namespaces(self) -> None:
        """However many namespaces a tenant has, their quotas together allow no more than its total, and the last one is
        not left out.
        """
        for number in range(6):
            _, last = await self.tenant(f"shop{number}")
        granted = (await self.admin.list(NAMESPACES, labels=f"{REMOTE_CLUSTER_LABEL}={self.peer}")).items

        async def hard(name: str) -> dict[str, str]:
            quota = await self.admin.get(RESOURCEQUOTAS, "liqod-tenant", name)
            found: dict[str, str] = quota["spec"]["hard"]
            return found

        names = [
            one["metadata"]["name"] for one in granted if "liqo.io/tenant-namespace" not in one["metadata"]["labels"]
        ]
        self.assertEqual(len(names), 6)
        of_all = [await hard(name) for name in names]
        self.assertLessEqual(sum(int(one["services.loadbalancers"]) for one in of_all), 40)
        self.assertLessEqual(sum(int(one["services.nodeports"]) for one in of_all), 200)
        self.assertEqual((await hard(last))["count/configmaps"], "500")

    async def test_pods_that_request_nothing(self) -> None:
        """They count at the level ``hard``: a tenant cannot use an offer over and over by pods without requests."""
        borrower, namespace = await self.tenant(cpu="120m", pods="10")
        hard = {"metadata": {"annotations": {QUOTA_ANNOTATION: "hard"}}}
        await self.admin.patch(NAMESPACES, tenant_namespace(self.peer), hard)

        async def bound() -> bool:
            return bool(await self.admin.get(LIMITRANGES, "liqod-tenant", namespace))

        await self.becomes(bound, "default requests")
        spec = {"containers": [{"name": "main", "image": "localhost/busybox:1"}]}
        for name in ("a", "b"):
            await self.shadow(borrower, namespace, name=name, spec=spec)
            resources = (await self.runs(namespace, name))["spec"]["containers"][0]["resources"]
            self.assertEqual(resources, {"limits": {"cpu": "120m"}, "requests": {"cpu": "50m"}})
        await self.shadow(borrower, namespace, name="c", spec=spec)
        status = await self.status_becomes(namespace, "c", reason="QuotaExceeded")
        self.assertIn("asks cpu 50m, 20m left of 120m", status["message"])
        (item,) = (await self.admin.get(LIMITRANGES, "liqod-tenant", namespace))["spec"]["limits"]
        self.assertEqual(item["defaultRequest"], {"cpu": "50m"})
        with self.assertRaises(Forbidden):
            await borrower.delete(LIMITRANGES, "liqod-tenant", namespace)

    async def test_a_tenant_from_before(self) -> None:
        """It keeps the level that it had, though it is admitted again: its pods get neither limits nor requests."""
        await self.tenant()
        own = tenant_namespace(self.peer)
        await self.admin.patch(NAMESPACES, own, {"metadata": {"annotations": {QUOTA_ANNOTATION: None}}})
        borrower, namespace = await self.tenant()
        self.assertNotIn(QUOTA_ANNOTATION, (await self.admin.get(NAMESPACES, own))["metadata"].get("annotations") or {})

        async def unbound() -> bool:
            try:
                await self.admin.get(LIMITRANGES, "liqod-tenant", namespace)
            except NotFound:
                return True
            return False

        await self.becomes(unbound, "no default requests")
        await self.shadow(borrower, namespace, spec={"containers": [{"name": "main", "image": "localhost/busybox:1"}]})
        pod = await self.runs(namespace)
        self.assertNotIn("limits", pod["spec"]["containers"][0].get("resources") or {})

    async def test_what_is_not_a_pod(self) -> None:
        """A spec that is no pod spec is refused, by this daemon or by the API server, with what is wrong about it."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace, "none", spec={"containers": []})
        await self.shadow(borrower, namespace, "odd", spec={"containers": [{"name": "UPPER", "image": "x"}]})
        for name in ("none", "odd"):
            await self.status_becomes(namespace, name, phase="Pending", reason="InvalidPod")

    # Life of a tenant

    async def test_endpoints_of_the_lender(self) -> None:
        """A slice leads to no pod or Service of this cluster, nor to loopback or the metadata service; the rest works.

        As long as this cluster's own networks are not known it leads nowhere.
        """
        await state_networks(self.admin, services=())
        await self.settle()
        borrower, namespace = await self.tenant()
        nodes = (await self.admin.list(NODES)).items
        ours = [text.partition("/")[0] for node in nodes for text in node["spec"].get("podCIDRs") or ()]
        hostile = (*ours, "10.48.7.7", "10.111.255.1", "127.0.0.1", "169.254.169.254")
        await self.slice(borrower, namespace, "db", *hostile, "192.0.2.7")
        await self.is_reported(f"Warning {namespace}/db AddressRefused")

        async def made() -> bool:
            return await self.led_to(namespace, "db") == []

        await self.becomes(made, "a slice that leads nowhere")
        await state_networks(self.admin)

        async def known() -> bool:
            return await self.led_to(namespace, "db") == ["192.0.2.7"]

        await self.becomes(known, "an endpoint is there")

    async def test_api_servers_behind_a_name(self) -> None:
        """A slice leads to no API server of this cluster, whatever the URL by which the daemon calls it."""
        await state_networks(self.admin, servers=["192.0.2.99"])
        borrower, namespace = await self.tenant()
        await self.slice(borrower, namespace, "db", "192.0.2.99", "192.0.2.7")
        found = await self.becomes(lambda: self.led_to(namespace, "db"), "an endpoint")
        self.assertEqual(found, ["192.0.2.7"])

    async def test_a_service_of_the_lender(self) -> None:
        """A slice joins no service of the lender's own in the tenant's namespace, nor stays when it becomes one; it is
        made when the tenant's service comes later.
        """
        borrower, namespace = await self.tenant()
        await self.service(self.admin, namespace, "db", {})
        await self.shadow_slice(borrower, namespace, "db", "192.0.2.7")
        await self.shadow_slice(borrower, namespace, "later", "192.0.2.7")
        await self.settle()
        for name in ("db", "later"):
            with self.assertRaises(NotFound):
                await self.led_to(namespace, name)
        await self.service(borrower, namespace, "later", {ORIGIN_LABEL: self.peer})
        found = await self.becomes(lambda: self.led_to(namespace, "later"), "an endpoint")
        self.assertEqual(found, ["192.0.2.7"])
        await self.admin.delete(SERVICES, "later", namespace)
        await self.service(self.admin, namespace, "later", {})

        async def gone() -> bool:
            try:
                await self.led_to(namespace, "later")
            except NotFound:
                return True
            return False

        await self.becomes(gone, "the slice of what is the lender's now is gone")
        await self.admin.delete(SERVICES, "later", namespace)
        await self.service(borrower, namespace, "later", {ORIGIN_LABEL: self.peer})
        await self.becomes(lambda: self.led_to(namespace, "later"), "an endpoint again")

    async def test_facts_that_were_deleted(self) -> None:
        """Until they are written again what is there stays, and nothing is added."""
        borrower, namespace = await self.tenant()
        await self.slice(borrower, namespace, "db", "192.0.2.7")
        self.assertEqual(await self.becomes(lambda: self.led_to(namespace, "db"), "an endpoint"), ["192.0.2.7"])
        policy = await self.admin.get(NETWORKPOLICIES, "liqod-tenant", namespace)
        await self.admin.delete(CLUSTERFACTS, FACTS_NAME)
        await self.settle()
        await self.slice(borrower, namespace, "late", "192.0.2.8")
        await self.settle()
        self.assertEqual(await self.led_to(namespace, "db"), ["192.0.2.7"])
        after = await self.admin.get(NETWORKPOLICIES, "liqod-tenant", namespace)
        self.assertEqual(after["spec"], policy["spec"])
        with self.assertRaises(NotFound):
            await self.led_to(namespace, "late")
        await state_networks(self.admin)
        self.assertEqual(await self.becomes(lambda: self.led_to(namespace, "late"), "an endpoint"), ["192.0.2.8"])

    async def slice(self, borrower: Client, namespace: str, name: str, *addresses: str) -> None:
        """Have a borrower make a service without selector, and a slice of it."""
        await self.service(borrower, namespace, name, {ORIGIN_LABEL: self.peer})
        await self.shadow_slice(borrower, namespace, name, *addresses)

    async def service(self, client: Client, namespace: str, name: str, labels: dict[str, str]) -> None:
        """Have somebody make a service without selector."""
        spec = {"ports": [{"port": 443, "protocol": "TCP"}]}
        await client.create(SERVICES, {"metadata": {"name": name, "labels": labels}, "spec": spec}, namespace)

    async def shadow_slice(self, borrower: Client, namespace: str, name: str, *addresses: str) -> None:
        """Have a borrower make a slice of a service."""
        endpoints = [{"addresses": [address]} for address in addresses]
        template = {"addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 443, "protocol": "TCP"}]}
        metadata = {"name": name, "labels": {"kubernetes.io/service-name": name}}
        await borrower.create(SHADOWENDPOINTSLICES, {"metadata": metadata, "spec": {"template": template}}, namespace)

    async def led_to(self, namespace: str, name: str) -> list[str]:
        """Return the addresses in the slice that was made of a borrower's."""
        found = await self.admin.get(ENDPOINTSLICES, name, namespace)
        return [address for endpoint in found["endpoints"] or () for address in endpoint["addresses"]]

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

    async def test_large_secrets(self) -> None:
        """When a tenant's secrets and config maps take all of their room its namespaces say so, until there are fewer;
        those of the lender's own there do not count.
        """
        borrower, namespace = await self.tenant()
        own = {"metadata": {"name": "own"}, "data": {"a": "a" * 1_000_000}}
        await self.admin.create(CONFIGMAPS, own, namespace)
        for number in range(5):
            metadata = {"name": f"s{number}", "labels": {ORIGIN_LABEL: str(self.peer)}}
            await borrower.create(SECRETS, {"metadata": metadata, "data": {"a": "a" * 200_000}}, namespace)

        async def says(value: str) -> bool:
            labels = (await self.admin.get(NAMESPACES, namespace))["metadata"]["labels"]
            return bool(labels.get(FULL_CONTENTS_LABEL, "") == value)

        await self.settle()
        self.assertTrue(await says(""))
        metadata = {"name": "c", "labels": {ORIGIN_LABEL: str(self.peer)}}
        await borrower.create(CONFIGMAPS, {"metadata": metadata, "data": {"a": "a" * 100_000}}, namespace)
        await self.becomes(lambda: says("growth"), "the label")
        await borrower.delete(SECRETS, "s0", namespace)
        await self.becomes(lambda: says(""), "no label")

    async def test_a_borrower_can_do_nothing_elsewhere(self) -> None:
        """With its token a borrower reaches its own namespaces, and there what it needs; all else is denied."""
        borrower, namespace = await self.tenant()
        tenant = tenant_namespace(self.peer)
        await self.admin.create(SECRETS, {"metadata": {"name": "liqo-credential"}, "stringData": {"a": "b"}}, tenant)
        own = {"name": "ok", "labels": {ORIGIN_LABEL: self.peer}}
        await borrower.create(CONFIGMAPS, {"metadata": own, "data": {}}, namespace)
        shadow = await self.shadow(borrower, namespace)
        plain = {"metadata": {"name": "x"}, "spec": pod_spec()}
        attempts: list[Callable[[], Awaitable[object]]] = [
            lambda: borrower.list(NAMESPACES),
            lambda: borrower.list(NODES),
            lambda: borrower.list(SHADOWPODS),
            lambda: borrower.list(PODS),
            lambda: borrower.list(PODS, "default"),
            lambda: borrower.list(SECRETS, "kube-system"),
            lambda: borrower.list(SECRETS, tenant),
            lambda: borrower.get(SECRETS, "liqo-credential", tenant),
            lambda: self.shadow(borrower, "default"),
            lambda: self.shadow(borrower, tenant),
            lambda: borrower.create(PODS, plain, namespace),
            lambda: borrower.patch(PODS, "web", {"metadata": {"labels": {"a": "b"}}}, namespace),
            lambda: borrower.patch(SHADOWPODS, "web", {"status": {"phase": "x"}}, namespace, subresource="status"),
            lambda: borrower.delete(PODS, "web", namespace),
            lambda: borrower.delete(NAMESPACES, namespace),
            lambda: borrower.patch(NAMESPACES, namespace, {"metadata": {"labels": {"a": "b"}}}),
            lambda: borrower.list(ROLEBINDINGS, namespace),
            lambda: borrower.create(ENDPOINTSLICES, {"metadata": {"name": "x"}, "addressType": "IPv4"}, namespace),
            lambda: borrower.create(NAMESPACES, {"metadata": {"name": f"x-{self.peer}"}}),
            lambda: borrower.list(FOREIGNCLUSTERS),
        ]
        for number, attempt in enumerate(attempts):
            with self.assertRaises(Forbidden, msg=f"attempt {number}"):
                await attempt()
        self.assertEqual(shadow["metadata"]["name"], "web")

    async def test_one_tenant_against_another(self) -> None:
        """A borrower reaches neither another borrower's namespace nor runs pods in its name."""
        other = f"{self.peer}x"
        borrower, namespace = await self.tenant()
        _, theirs = await self.tenant(peer=other)
        with self.assertRaises(Forbidden):
            await self.shadow(borrower, theirs)
        with self.assertRaises(Refusal) as caught:
            await self.hosting.map_namespace(self.peer, "shop", theirs)
        self.assertEqual(caught.exception.reason, "NameNotYours")
        await self.shadow(borrower, namespace, origin=other)
        await self.status_becomes(namespace, "web", phase="Pending", reason="OriginMismatch")
        await self.has_no_pod(namespace)
        self.assertEqual(dict(self.hosting.used_by(ClusterID(other))), {})

    async def test_a_strangers_pod(self) -> None:
        """A pod of the same name that is not ours is never touched; the borrower learns that the name is taken."""
        borrower, namespace = await self.tenant()
        stranger = await self.admin.create(PODS, {"metadata": {"name": "web"}, "spec": pod_spec()}, namespace)
        await self.shadow(borrower, namespace)
        await self.status_becomes(namespace, "web", phase="Pending", reason="NameTaken")
        await borrower.delete(SHADOWPODS, "web", namespace)
        await self.settle()
        self.assertEqual((await self.pod(namespace))["metadata"]["uid"], stranger["metadata"]["uid"])

    async def test_namespaces_that_are_not_given(self) -> None:
        """System, foreign and tenant namespaces cannot be mapped, and are not changed by the attempt."""
        await self.hosting.admit(self.peer, {"cpu": "1"})
        existing = f"mine-{self.peer}"
        await self.admin.create(NAMESPACES, {"metadata": {"name": existing}})
        cases = [
            (self.peer, "default", "default", "NameReserved"),
            (self.peer, "shop", "somebody-elses", "NameNotYours"),
            (self.peer, "kube-system", "kube-system", "NameReserved"),
            (ClusterID("system"), "kube", "kube-system", "NameReserved"),
            (self.peer, "liqo-tenant", tenant_namespace(self.peer), "NameReserved"),
            (self.peer, "mine", existing, "NamespaceTaken"),
            (ClusterID("lender"), "shop", "shop-lender", "InvalidClusterID"),
            (ClusterID("not/an/id"), "shop", "shop-not", "InvalidClusterID"),
        ]
        for peer, local, remote, reason in cases:
            with self.assertRaises(Refusal) as caught:
                await self.hosting.map_namespace(peer, local, remote)
            self.assertEqual(caught.exception.reason, reason)
        labels = (await self.admin.get(NAMESPACES, existing))["metadata"].get("labels", {})
        self.assertNotIn("liqo.io/remote-cluster-id", labels)
        with self.assertRaises(Refusal):
            await self.hosting.release_namespace(self.peer, existing)
        await self.admin.get(NAMESPACES, existing)
