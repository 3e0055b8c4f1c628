"""What hosting does on an API server, as cases for the sandbox and for real clusters alike.

A case needs ``self.admin`` (a client that may do everything), a schedulable node, and ``self.patience`` seconds.
Import the module, not the class: trial runs what it finds.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from liqod.hosting.tenants.closing import CLASS, NOWHERE
from liqod.kube.errors import Forbidden, NotFound, Unauthorized
from liqod.kube.resources import (
    FOREIGNCLUSTERS,
    INGRESSES,
    NAMESPACES,
    PODS,
    SERVICES,
    SHADOWPODS,
    VIRTUALNODES,
    Resource,
)
from liqod.model.ids import ClusterID
from liqod.model.names import CLOSED_LABEL, tenant_namespace
from liqod.model.records.offer import Refusal
from tests.hosting.side import HostingSide, pod_spec


class HostingCase(HostingSide):
    """The cases; a subclass provides the cluster."""

    async def test_one_request_per_pod(self) -> None:
        """A ShadowPod becomes a running pod by one POST; nothing else is read or written for it."""
        borrower, namespace = await self.tenant()
        await self.settle()
        before = self.requests.requests.copy()
        await self.shadow(borrower, namespace, labels={"app": "web"})
        pod = await self.runs(namespace)
        await self.settle()
        self.assertEqual(self.made(before), {("create", "pods"): 1})
        self.assertEqual(pod["metadata"]["labels"]["app"], "web")
        self.assertEqual(pod["metadata"]["labels"]["liqo.io/managed-by"], "shadowpod")
        self.assertEqual(pod["spec"]["automountServiceAccountToken"], False)
        self.assertEqual(dict(self.hosting.used_by(self.peer)), {"cpu": Fraction(1, 10), "pods": 1})
        self.assertEqual([what for what, _ in self.events.seen], [f"Normal {namespace}/web CreatedPod"])

    async def test_a_vanished_pod_returns(self) -> None:
        """A pod that somebody deletes on the lender is made again, the same but for its uid."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        first = await self.runs(namespace)
        await self.admin.delete(PODS, "web", namespace, grace=0)
        second = await self.runs(namespace, beside=first["metadata"]["uid"])
        self.assertEqual(first["spec"]["containers"], second["spec"]["containers"])

    async def test_finished_never_again(self) -> None:
        """A finished pod is recorded, and not run again when it is deleted, nor after a restart of the daemon."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace, spec=pod_spec(restartPolicy="Never"))
        await self.runs(namespace)
        await self.end_pod(namespace, "web", "Succeeded")
        await self.status_becomes(namespace, "web", phase="Succeeded")
        self.assertEqual(dict(self.hosting.used_by(self.peer)), {})
        await self.admin.delete(PODS, "web", namespace, grace=0)
        await self.has_no_pod(namespace)
        await self.hosting.stopService()
        _, client = await self.start_hosting()
        await self.has_no_pod(namespace)
        self.assertEqual(self.writes(client), {})

    async def test_finished_while_away(self) -> None:
        """A pod that ended while the daemon was not there is recorded when it returns."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace, spec=pod_spec(restartPolicy="Never"))
        await self.runs(namespace)
        await self.hosting.stopService()
        await self.end_pod(namespace, "web", "Failed", "Oops")
        await self.start_hosting()
        await self.status_becomes(namespace, "web", phase="Failed", reason="Oops")

    async def test_an_evicted_pod_returns(self) -> None:
        """A pod that was to run for ever and was evicted is replaced."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        first = await self.runs(namespace)
        await self.end_pod(namespace, "web", "Failed", "Evicted", disrupted=True)
        await self.runs(namespace, beside=first["metadata"]["uid"])
        await self.status_becomes(namespace, "web", phase="")

    async def test_a_pod_beyond_its_limits_has_ended(self) -> None:
        """A pod that was evicted for the storage it used itself is not made again, also one to run for ever."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        await self.end_pod(namespace, "web", "Failed", "Evicted")
        await self.status_becomes(namespace, "web", phase="Failed", reason="Evicted")

    async def test_deleted_with_its_shadow_pod(self) -> None:
        """The pod goes when the ShadowPod goes, and its quota with it."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        await borrower.delete(SHADOWPODS, "web", namespace)
        await self.pod_goes(namespace)

        async def free() -> bool:
            return not self.hosting.used_by(self.peer)

        await self.becomes(free, "its quota is free")
        self.assertEqual(self.requests.requests[("get", "shadowpods")], 0)

    async def test_orphans_go(self) -> None:
        """A pod whose ShadowPod went while the daemon was away is removed at its return."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        await self.hosting.stopService()
        await self.admin.delete(SHADOWPODS, "web", namespace, propagation="Orphan")

        async def let_go() -> bool:
            try:
                await self.admin.get(SHADOWPODS, "web", namespace)
            except NotFound:
                return True
            return False

        # The garbage collector takes the owner reference off, some time before the ShadowPod goes.
        await self.becomes(let_go, "the ShadowPod is gone")
        self.assertFalse((await self.pod(namespace))["metadata"].get("ownerReferences"))
        await self.start_hosting()
        await self.pod_goes(namespace)

    async def test_a_restart_writes_nothing(self) -> None:
        """A daemon that comes back to a settled cluster writes nothing and restarts nothing."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.shadow(borrower, namespace, "odd", origin="other")
        before = await self.runs(namespace)
        await self.status_becomes(namespace, "odd", reason="OriginMismatch")
        await self.hosting.stopService()
        hosting, client = await self.start_hosting()
        await self.settle()
        self.assertEqual(self.writes(client), {})
        self.assertEqual((await self.pod(namespace))["metadata"]["uid"], before["metadata"]["uid"])
        self.assertEqual(hosting.used_by(self.peer), self.hosting.used_by(self.peer))

    async def test_changes_follow(self) -> None:
        """Labels and images changed on the ShadowPod reach the running pod by one patch."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace, labels={"app": "web", "old": "1"})
        pod = await self.runs(namespace)
        before = self.requests.requests.copy()
        change = {"metadata": {"labels": {"app": "api", "old": None}}, "spec": {"pod": pod_spec()}}
        change["spec"]["pod"]["containers"][0]["image"] = "localhost/busybox:2"
        await borrower.patch(SHADOWPODS, "web", change, namespace)

        async def followed() -> bool:
            seen = await self.pod(namespace)
            labels = seen["metadata"]["labels"]
            same = seen["metadata"]["uid"] == pod["metadata"]["uid"]
            image = seen["spec"]["containers"][0]["image"]
            return same and labels.get("app") == "api" and "old" not in labels and image == "localhost/busybox:2"

        await self.becomes(followed, "the change arrives")
        await self.settle()
        self.assertEqual(self.made(before), {("patch", "pods"): 1})

    async def test_a_change_that_cannot_be(self) -> None:
        """What the API server does not let change is reported by an event; labels follow all the same, once."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        key = "node.kubernetes.io/not-ready"
        wrong = [{"key": key, "operator": "Exists", "value": "no value goes with Exists"}]
        change = {"metadata": {"labels": {"app": "api"}}, "spec": {"pod": {"tolerations": wrong}}}
        await borrower.patch(SHADOWPODS, "web", change, namespace)

        async def followed() -> bool:
            return bool((await self.pod(namespace))["metadata"]["labels"].get("app") == "api")

        await self.becomes(followed, "the label arrives")
        await self.is_reported(f"Warning {namespace}/web UpdateRefused")
        await self.settle()
        self.assertEqual(self.requests.requests[("patch", "pods")], 2)
        self.assertEqual(self.events.warnings, [f"Warning {namespace}/web UpdateRefused"])

    # Limits

    async def test_no_more_than_was_lent(self) -> None:
        """Pods beyond the offer wait with a reason, run when there is room, oldest first, and say so."""
        borrower, namespace = await self.tenant(cpu="2")
        for name in ("a", "b"):
            await self.shadow(borrower, namespace, name, cpu="1")
            await self.runs(namespace, name)
        await self.shadow(borrower, namespace, "c", cpu="1")
        status = await self.status_becomes(namespace, "c", phase="Pending", reason="QuotaExceeded")
        self.assertIn("asks cpu 1, 0 left of 2", status["message"])
        await borrower.delete(SHADOWPODS, "a", namespace)
        await self.runs(namespace, "c")
        await self.status_becomes(namespace, "c", phase="", reason="")

    async def test_at_the_same_time(self) -> None:
        """Many ShadowPods at once do not use more than was lent together."""
        borrower, namespace = await self.tenant(cpu="3")
        for number in range(8):
            await self.shadow(borrower, namespace, f"p{number}", cpu="1")

        async def settled() -> bool:
            shadows = (await self.admin.list(SHADOWPODS, namespace)).items
            refused = [one for one in shadows if one.get("status", {}).get("reason") == "QuotaExceeded"]
            return len(refused) == 5

        await self.becomes(settled, "five of eight are refused")
        self.assertEqual(len((await self.admin.list(PODS, namespace)).items), 3)
        await self.lend(cpu="5")

        async def grown() -> bool:
            return len((await self.admin.list(PODS, namespace)).items) == 5

        await self.becomes(grown, "a larger offer is used")
        await self.lend(cpu="1")
        await self.settle()
        self.assertTrue(await grown(), "a smaller offer evicts nobody")

    async def test_nothing_lent(self) -> None:
        """Without an offer nothing runs; an offer that comes lets it run."""
        borrower, namespace = await self.tenant()
        await self.admin.delete(FOREIGNCLUSTERS, self.peer)
        await self.settle()
        await self.shadow(borrower, namespace)
        await self.status_becomes(namespace, "web", reason="NotLent")
        await self.lend()
        await self.runs(namespace)

    async def test_the_lenders_own_no(self) -> None:
        """A pod that Pod Security forbids is refused in the API server's words; other pods do not suffer."""
        borrower, namespace = await self.tenant()
        spec = pod_spec()
        spec["containers"][0]["securityContext"] = {"privileged": True}
        await self.shadow(borrower, namespace, "root", spec=spec)
        status = await self.status_becomes(namespace, "root", phase="Pending", reason="PodSecurity")
        self.assertIn("privileged", status["message"])
        await self.is_reported(f"Warning {namespace}/root PodSecurity")
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        await self.has_no_pod(namespace, "root")

    async def test_mapping_again(self) -> None:
        """Asking again for what was granted changes nothing and costs no write."""
        _, namespace = await self.tenant()
        # What the grant asks of controllers, such as the namespace's share of the quota, may still be on its way.
        await self.settle()
        before = self.writes(self.requests)
        self.assertFalse(await self.hosting.map_namespace(self.peer, "shop", namespace))
        self.assertEqual(self.writes(self.requests), before)
        labels = (await self.admin.get(NAMESPACES, namespace))["metadata"]["labels"]
        self.assertEqual(labels["pod-security.kubernetes.io/enforce"], "baseline")
        with self.assertRaises(Refusal):
            await self.hosting.map_namespace(self.peer, "other", namespace)

    async def test_renewal(self) -> None:
        """A token is renewed by one write; it never shows when the grant is printed."""
        first = await self.hosting.admit(self.peer, {"cpu": "1"})
        before = self.requests.requests.copy()
        second = await self.hosting.admit(self.peer, {"cpu": "1"})
        made = {key: n for key, n in (self.requests.requests - before).items() if key[0] != "get"}
        self.assertEqual(made, {("create", "serviceaccounts/token"): 1})
        self.assertEqual((second.lifetime, second.namespace), (3600, tenant_namespace(self.peer)))
        self.assertNotIn(second.token, repr(second))
        self.assertTrue(first.token and second.token)

    async def test_released(self) -> None:
        """A released namespace goes with all that is in it; releasing it again is well."""
        borrower, namespace = await self.tenant()
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        self.assertTrue(await self.hosting.release_namespace(self.peer, namespace))
        await self.goes(namespace)
        self.assertFalse(await self.hosting.release_namespace(self.peer, namespace))
        self.assertEqual(dict(self.hosting.used_by(self.peer)), {})

    async def test_dismissed(self) -> None:
        """A dismissed borrower is locked out at once and everything of it goes; others are not touched."""
        other = ClusterID(f"{self.peer}x")
        borrower, namespace = await self.tenant()
        friend, theirs = await self.tenant(peer=other)
        await self.shadow(borrower, namespace)
        await self.runs(namespace)
        self.assertTrue(await self.hosting.dismiss(self.peer))

        async def locked_out() -> bool:
            try:
                await borrower.list(SHADOWPODS, namespace)
            except (Forbidden, Unauthorized):
                return True
            return False

        await self.becomes(locked_out, "the borrower is locked out")
        await self.goes(namespace)
        await self.goes(tenant_namespace(self.peer))
        await friend.list(SHADOWPODS, theirs)
        self.assertFalse(await self.hosting.dismiss(self.peer), "nothing is left to revoke")

    async def test_what_a_dismissed_tenant_leaves_takes_no_traffic(self) -> None:
        """Services and ingresses that finalizers keep lead nowhere at once and are of no controller."""
        _, namespace = await self.tenant()
        kept = {"finalizers": ["x.example/never"]}
        ports = [{"port": 80, "targetPort": 80, "protocol": "TCP"}]
        path = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "web", "port": {"number": 80}}}}
        host = "www.lender.example"
        rules = [{"host": host, "http": {"paths": [path]}}]
        balanced = {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": ports}
        left: list[tuple[Resource, str, dict[str, Any]]] = [
            (SERVICES, "web", {"selector": {"app": "web"}, "ports": ports}),
            (SERVICES, "balanced", {**balanced, "loadBalancerSourceRanges": ["192.0.2.0/24"]}),
            (SERVICES, "annotated", balanced),
            (SERVICES, "bare", {"type": "NodePort", "ports": ports}),
            (SERVICES, "elsewhere", {"type": "ExternalName", "externalName": "vault.vault.svc.cluster.local"}),
            (
                INGRESSES,
                "hosts",
                {"ingressClassName": "nginx", "rules": rules, "tls": [{"hosts": ["www.lender.example"]}]},
            ),
            (INGRESSES, "all", {"defaultBackend": path["backend"]}),
        ]
        annotations = {
            "all": {"kubernetes.io/ingress.class": "nginx"},
            "annotated": {"service.beta.kubernetes.io/load-balancer-source-ranges": "192.0.2.0/24"},
        }
        for resource, name, spec in left:
            meta = {"name": name, **kept, "annotations": annotations.get(name, {})}
            await self.admin.create(resource, {"metadata": meta, "spec": spec}, namespace)
        await self.hosting.dismiss(self.peer)

        async def state() -> tuple[dict[str, Any], list[Any]]:
            services = (await self.admin.list(SERVICES, namespace)).items
            leads = {
                one["metadata"]["name"]: (
                    one["spec"]["type"],
                    one["spec"].get("selector"),
                    one["spec"].get("externalName"),
                )
                for one in services
            }
            ingresses = (await self.admin.list(INGRESSES, namespace)).items
            takes = [
                (
                    one["spec"].get("ingressClassName"),
                    one["spec"].get("rules"),
                    one["spec"].get("tls") or one["spec"].get("defaultBackend"),
                    one["metadata"].get("annotations") or None,
                )
                for one in ingresses
            ]
            return leads, takes

        names, nowhere = ("web", "balanced", "annotated", "bare"), ("ClusterIP", {CLOSED_LABEL: "true"}, None)
        wanted = (
            {**dict.fromkeys(names, nowhere), "elsewhere": ("ExternalName", None, NOWHERE)},
            [(CLASS, [{"host": NOWHERE}], None, None)] * 2,
        )

        async def are_closed() -> bool:
            return await state() == wanted

        await self.becomes(are_closed, "what is left takes no traffic")
        before = self.writes(self.requests)
        await self.settle()
        self.assertEqual(self.writes(self.requests), before, "what is disabled is not written again")
        for resource, name, _ in left:
            await self.admin.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
        await self.goes(namespace)

    async def test_dismissed_but_still_lending_to_us(self) -> None:
        """The tenant namespace stays while it also holds what this cluster borrows from the same peer."""
        await self.hosting.admit(self.peer, {"cpu": "1"})
        node = {"metadata": {"name": self.peer}, "spec": {"clusterID": self.peer}}
        await self.admin.create(VIRTUALNODES, node, tenant := tenant_namespace(self.peer))
        await self.hosting.dismiss(self.peer)
        await self.settle()
        self.assertNotIn("deletionTimestamp", (await self.admin.get(NAMESPACES, tenant))["metadata"])

    async def goes(self, namespace: str) -> None:
        async def gone() -> bool:
            try:
                await self.admin.get(NAMESPACES, namespace)
            except NotFound:
                return True
            return False

        await self.becomes(gone, f"namespace {namespace} is gone")
