"""What becomes of home's NetworkPolicies on an API server, as cases for the sandbox and for real clusters alike.

Import the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from liqod.config.schema import Settings
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound
from liqod.kube.resources import CLUSTERFACTS, NETWORKPOLICIES, PODS, SHADOWNETWORKPOLICYSETS, SHADOWPODS
from liqod.model.ids import ClusterID
from liqod.model.names import ISOLATED_LABEL, NETWORK_POLICIES_ANNOTATION, NETWORK_POLICIES_SENT, ORIGIN_LABEL
from liqod.model.records.facts import FACTS_NAME, PLUGIN
from tests.hosting import side
from tests.hosting.side import pod_spec

TO_DATABASE = {
    "podSelector": {"matchLabels": {"app": "web"}},
    "policyTypes": ["Egress"],
    "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "db"}}}], "ports": [{"protocol": "TCP", "port": 5432}]}],
}
"""Pods of home named web may call the database, and nobody else."""
CLOSED = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
FLOOR, HOME = "liqod-tenant-floor", "liqod-home-"


def sent(**policies: Any) -> dict[str, Any]:
    """Return the spec of a record with policies by their names."""
    listed = [{"name": name, "spec": spec} for name, spec in policies.items()]
    return {"policies": listed, "namespaces": [{"name": "shop"}]}


class Side(side.HostingSide):
    """A lender to which policies of home are sent, without cases; a subclass provides the cluster."""

    unenforced = "refuse"

    def settings(self) -> Settings:
        settings = super().settings()
        hosting = msgspec.structs.replace(settings.hosting, unenforced_policies=self.unenforced)
        return msgspec.structs.replace(settings, hosting=hosting)

    async def know(self, plugin: str) -> None:
        """Have it known which network plugin the cluster has."""
        with suppress(AlreadyExists):
            await self.admin.create(CLUSTERFACTS, {"metadata": {"name": FACTS_NAME}})
        present = await self.admin.get(CLUSTERFACTS, FACTS_NAME)
        others = [one for one in (present.get("status") or {}).get("facts") or () if one["name"] != PLUGIN]
        status = {"facts": [*others, {"name": PLUGIN, "state": "Known", "values": [plugin]}]}
        await self.admin.patch(CLUSTERFACTS, FACTS_NAME, {"status": status}, subresource="status")

    async def send(self, client: Client, namespace: str, spec: Mapping[str, Any], name: str = "home") -> None:
        """Write a record as a borrower does."""
        body = {"metadata": {"name": name, "labels": {ORIGIN_LABEL: str(self.peer)}}, "spec": spec}
        try:
            await client.create(SHADOWNETWORKPOLICYSETS, body, namespace)
        except AlreadyExists:
            patch = [{"op": "replace", "path": "/spec", "value": spec}]
            await client.patch(SHADOWNETWORKPOLICYSETS, name, patch, namespace, kind="json")

    async def offload(self, client: Client, namespace: str, name: str, **fields: Any) -> None:
        """Create a ShadowPod of a borrower that sends policies."""
        labels = {ORIGIN_LABEL: str(self.peer), "app": name, **fields}
        annotations = {NETWORK_POLICIES_ANNOTATION: NETWORK_POLICIES_SENT}
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        await client.create(SHADOWPODS, {"metadata": metadata, "spec": {"pod": pod_spec()}}, namespace)

    async def label(self, namespace: str, name: str) -> str:
        """Return how a pod is isolated by its label."""
        return str((await self.runs(namespace, name))["metadata"]["labels"].get(ISOLATED_LABEL, ""))

    async def label_becomes(self, namespace: str, name: str, value: str) -> None:
        async def there() -> bool:
            return await self.label(namespace, name) == value

        await self.becomes(there, f"the pod {name} is isolated in {value!r}")

    async def policies(self, namespace: str) -> dict[str, dict[str, Any]]:
        """Return the specs of the policies in a namespace."""
        found = await self.admin.list(NETWORKPOLICIES, namespace)
        return {str(one["metadata"]["name"]): one["spec"] for one in found.items}

    async def policies_become(self, namespace: str, *names: str) -> dict[str, dict[str, Any]]:
        async def there() -> bool:
            return set(await self.policies(namespace)) == set(names)

        await self.becomes(there, f"the policies of {namespace} are {names}")
        return await self.policies(namespace)

    async def restart(self) -> None:
        await self.hosting.stopService()
        self.hosting, self.requests = await self.start_hosting()


class HomePoliciesCase(Side):
    """The cases; a subclass provides the cluster."""

    async def test_from_the_first_packet(self) -> None:
        """A pod that home isolates is created with its label, when its policies are in force; another one without."""
        borrower, namespace = await self.tenant()
        await self.offload(borrower, namespace, "web")
        await self.offload(borrower, namespace, "free")
        await self.status_becomes(namespace, "web", reason="PoliciesUnknown")
        await self.send(borrower, namespace, sent(web=TO_DATABASE))
        self.assertEqual(await self.label(namespace, "web"), "egress")
        self.assertEqual(await self.label(namespace, "free"), "")
        self.assertEqual(self.requests.requests[("patch", "pods")], 0)
        found = await self.policies_become(namespace, FLOOR, "liqod-tenant", f"{HOME}web")
        (rule,) = found[f"{HOME}web"]["egress"]
        self.assertEqual(rule["ports"], [{"protocol": "TCP", "port": 5432}])
        (peer,) = rule["to"]
        self.assertEqual(
            peer["podSelector"], {"matchExpressions": [{"key": "app", "operator": "In", "values": ["db"]}]}
        )
        self.assertIn(namespace, str(peer["namespaceSelector"]))
        (term,) = found["liqod-tenant"]["podSelector"]["matchExpressions"]
        self.assertEqual((term["key"], term["operator"]), (ISOLATED_LABEL, "NotIn"))

    async def test_no_policies(self) -> None:
        """A home without policies has its pods run within the bounds alone."""
        borrower, namespace = await self.tenant()
        await self.send(borrower, namespace, {})
        await self.offload(borrower, namespace, "web")
        self.assertEqual(await self.label(namespace, "web"), "")
        await self.policies_become(namespace, "liqod-tenant")

    async def test_followed(self) -> None:
        """Policies that come later isolate pods that run, and those that go set them free again."""
        borrower, namespace = await self.tenant()
        await self.send(borrower, namespace, {})
        await self.offload(borrower, namespace, "web")
        await self.runs(namespace)
        await self.send(borrower, namespace, sent(all=CLOSED))
        await self.label_becomes(namespace, "web", "both")
        await self.policies_become(namespace, FLOOR, "liqod-tenant", f"{HOME}all")
        await self.send(borrower, namespace, sent(web=TO_DATABASE))
        await self.label_becomes(namespace, "web", "egress")
        await self.policies_become(namespace, FLOOR, "liqod-tenant", f"{HOME}web")
        await self.send(borrower, namespace, {})
        await self.label_becomes(namespace, "web", "")
        found = await self.policies_become(namespace, "liqod-tenant")
        self.assertEqual(found["liqod-tenant"]["podSelector"], {})

    async def test_a_pod_that_changes(self) -> None:
        """A pod that gets the label of a policy is isolated with it."""
        borrower, namespace = await self.tenant()
        await self.send(borrower, namespace, sent(web=TO_DATABASE))
        await self.offload(borrower, namespace, "idle")
        self.assertEqual(await self.label(namespace, "idle"), "")
        await borrower.patch(SHADOWPODS, "idle", {"metadata": {"labels": {"app": "web"}}}, namespace)
        await self.label_becomes(namespace, "idle", "egress")

    async def test_unknown_is_not_empty(self) -> None:
        """A record that is gone takes nothing away, nor does a restart without it; new pods are isolated strictly."""
        borrower, namespace = await self.tenant()
        await self.send(borrower, namespace, sent(web=TO_DATABASE))
        names = (FLOOR, "liqod-tenant", f"{HOME}web")
        before = await self.policies_become(namespace, *names)
        await borrower.delete(SHADOWNETWORKPOLICYSETS, "home", namespace)
        await self.settle()
        self.assertEqual(await self.policies_become(namespace, *names), before)
        await self.restart()
        await self.lend()
        await self.settle()
        self.assertEqual(await self.policies_become(namespace, *names), before)
        await self.shadow(borrower, namespace, name="late")
        self.assertEqual(await self.label(namespace, "late"), "both")
        await self.offload(borrower, namespace, "awaiting")
        await self.status_becomes(namespace, "awaiting", reason="PoliciesUnknown")
        await self.send(borrower, namespace, sent(web=TO_DATABASE))
        await self.label_becomes(namespace, "late", "")
        self.assertEqual(await self.label(namespace, "awaiting"), "")

    async def test_after_a_restart(self) -> None:
        """Nothing is written again, and what others changed is put right."""
        borrower, namespace = await self.tenant()
        await self.send(borrower, namespace, sent(web=TO_DATABASE))
        await self.offload(borrower, namespace, "web")
        await self.runs(namespace, "web")
        names = (FLOOR, "liqod-tenant", f"{HOME}web")
        before = await self.policies_become(namespace, *names)
        await self.restart()
        await self.lend()
        await self.settle()
        written = {key: count for key, count in self.writes(self.requests).items() if "networkpolicies" in key[1]}
        self.assertEqual(written, {})
        open_to_all = [{"op": "replace", "path": "/spec/egress", "value": [{}]}]
        await self.admin.patch(NETWORKPOLICIES, f"{HOME}web", open_to_all, namespace, kind="json")
        await self.admin.delete(NETWORKPOLICIES, FLOOR, namespace)
        await self.admin.patch(PODS, "web", {"metadata": {"labels": {ISOLATED_LABEL: None}}}, namespace)

        async def right() -> bool:
            return await self.policies(namespace) == before

        await self.becomes(right, "the policies are as they were")
        await self.label_becomes(namespace, "web", "egress")

    # Attacks

    async def test_what_a_tenant_may_not_write(self) -> None:
        """A borrower writes no policies, and no records where others are."""
        borrower, namespace = await self.tenant()
        _, other = await self.tenant(peer=f"{self.peer}x")
        everything = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}
        with self.assertRaises(Forbidden):
            await borrower.create(NETWORKPOLICIES, {"metadata": {"name": "x"}, "spec": everything}, namespace)
        with self.assertRaises(Forbidden):
            await borrower.patch(NETWORKPOLICIES, "liqod-tenant", {"spec": everything}, namespace)
        with self.assertRaises(Forbidden):
            await borrower.list(NETWORKPOLICIES, namespace)
        with self.assertRaises(Forbidden):
            await self.send(borrower, other, sent(web=TO_DATABASE))
        with self.assertRaises(Forbidden):
            await borrower.list(SHADOWNETWORKPOLICYSETS, other)
        self.assertEqual(set(await self.policies(other)), {"liqod-tenant"})

    async def test_a_forged_label(self) -> None:
        """The label of a pod is what policies say, not what the borrower does, at its creation and later."""
        borrower, namespace = await self.tenant()
        await self.send(borrower, namespace, sent(all=CLOSED))
        await self.offload(borrower, namespace, "web", **{ISOLATED_LABEL: "none"})
        self.assertEqual(await self.label(namespace, "web"), "both")
        forged = {"metadata": {"labels": {ISOLATED_LABEL: "none", "more": "labels"}}}
        await borrower.patch(SHADOWPODS, "web", forged, namespace)

        async def followed() -> bool:
            return bool((await self.runs(namespace, "web"))["metadata"]["labels"].get("more") == "labels")

        await self.becomes(followed, "the pod follows")
        self.assertEqual(await self.label(namespace, "web"), "both")

    async def test_beyond_the_bounds(self) -> None:
        """Home's policies open nothing that this cluster closes, by whatever addresses they are said."""
        borrower, namespace = await self.tenant()
        blocks = ["0.0.0.0/0", "::/0", "169.254.169.254/32", "127.0.0.0/8"]
        rules = [{}, *({"to": [{"ipBlock": {"cidr": one}}]} for one in blocks)]
        kube_system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
        spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [*rules, {"to": [kube_system]}]}
        record = {
            **sent(open=spec),
            "namespaces": [{"name": "kube-system", "labels": {"kubernetes.io/metadata.name": "kube-system"}}],
            "pods": [{"namespace": "kube-system", "addresses": ["169.254.169.254", "10.96.0.1", "127.0.0.1"]}],
            "addresses": [{"home": "192.0.2.1", "here": "169.254.169.254"}],
        }
        await self.send(borrower, namespace, record)
        found = await self.policies_become(namespace, FLOOR, "liqod-tenant", f"{HOME}open")
        text = str(found[f"{HOME}open"])
        for address in ("'169.254.169.254/32'}", "'127.0.0.1/32'}", "'10.96.0.1/32'}"):
            self.assertNotIn(f"{{'cidr': {address}", text)
        self.assertTrue(all(rule["to"] for rule in found[f"{HOME}open"]["egress"]))

    async def test_ten_thousand_rules(self) -> None:
        """A record with too much is closed beyond its bound, and another tenant's pods do not wait for it."""
        other = ClusterID(f"{self.peer}x")
        borrower, namespace = await self.tenant()
        rule = {"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}, {"namespaceSelector": {}}], "ports": [{"port": 80}]}
        many = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [rule] * 5_000}
        await self.send(borrower, namespace, sent(many=many))
        neighbour, quiet = await self.tenant(peer=other)
        await self.send(neighbour, quiet, sent(web=TO_DATABASE))
        await self.offload(neighbour, quiet, "web", **{ORIGIN_LABEL: str(other)})
        self.assertEqual(await self.label(quiet, "web"), "egress")
        await self.offload(borrower, namespace, "web")
        self.assertEqual(await self.label(namespace, "web"), "egress")
        await self.policies_become(namespace, FLOOR, "liqod-tenant", f"{HOME}many")
        await self.is_reported(f"Warning {namespace}/web PolicyNotApplied")

    async def test_more_policies_than_are_read(self) -> None:
        """With too many every pod is isolated in both directions; more than the record has room for are not taken."""
        borrower, namespace = await self.tenant()
        policies = {f"p{number:03}": TO_DATABASE for number in range(101)}
        await self.send(borrower, namespace, sent(**policies))
        await self.offload(borrower, namespace, "free")
        self.assertEqual(await self.label(namespace, "free"), "both")
        self.assertIn("liqod-tenant-closed", await self.policies(namespace))
        with self.assertRaises(ApiError):
            await self.send(borrower, namespace, sent(**policies, more=TO_DATABASE))


class UnenforcedCase(Side):
    """A cluster of which nothing is known that enforces policies; only the cases of that."""

    async def isolated(self) -> str:
        """Offload a pod that is isolated and one that is not; return the namespace."""
        borrower, namespace = await self.tenant()
        await self.send(borrower, namespace, sent(web=TO_DATABASE))
        await self.offload(borrower, namespace, "web")
        await self.offload(borrower, namespace, "free")
        await self.runs(namespace, "free")
        return namespace

    async def is_missing(self, namespace: str, name: str) -> None:
        with self.assertRaises(NotFound):
            await self.pod(namespace, name)
