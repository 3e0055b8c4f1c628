"""Which namespaces a borrower may be given, and which rights."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants import grants, rights
from liqod.kube.writing.ensure import difference
from liqod.model.names import remote_namespace
from liqod.model.objects.granted_namespace import tenant_of
from liqod.model.objects.meta import Object
from liqod.model.records.offer import Refusal

LABEL = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


def namespace(labels: dict[str, str], annotations: dict[str, str] | None = None, **metadata: Any) -> Object:
    return msgspec.convert(
        {"metadata": {"name": "shop-c1", "labels": labels, "annotations": annotations or {}, **metadata}}, Object
    )


class NameTests(SynchronousTestCase):
    def refused(self, peer: str, local: str, remote: str, allowed: tuple[str, ...] = (), **known: Any) -> str:
        try:
            grants.check_name(peer, local, remote, allowed, **known)
        except Refusal as refusal:
            return refusal.reason
        return ""

    def test_names_of_the_borrower(self) -> None:
        """The usual name, and any other that ends with the borrower's ID, may be asked for."""
        self.assertEqual(self.refused("c1", "shop", "shop-c1"), "")
        self.assertEqual(self.refused("c1", "shop", "sho-1a2b3c4d-c1"), "")
        long = "n" * 60
        self.assertEqual(self.refused("c1", long, remote_namespace(long, "c1")), "")

    def test_names_of_the_settings(self) -> None:
        """A namespace that the settings give to this cluster is nobody's, though an ID and a pattern fit it."""
        own = ("cluster-files", "liqod-east")
        for peer, local, remote in (("files", "cluster", "cluster-files"), ("east", "liqod", "liqod-east")):
            self.assertEqual(self.refused(peer, local, remote), "")
            self.assertEqual(self.refused(peer, local, remote, ("*",), own=own), "NameReserved")

    def test_names_of_add_ons(self) -> None:
        """An add-on that is installed later would be put into the tenant's namespace, secrets and all."""
        for remote in ("cert-manager", "ingress-nginx", "external-secrets", "rook-ceph", "local-path-storage"):
            local, _, peer = remote.rpartition("-")
            self.assertEqual(self.refused(peer, local, remote), "NameReserved", remote)
            self.assertEqual(self.refused("c1", local, remote, ("*",)), "NameReserved", remote)
            self.assertEqual(self.refused("c1", remote, f"{remote}-c1"), "")

    def test_an_id_that_ends_with_another(self) -> None:
        """A name goes to the trusted cluster with the longest ID that it ends with, in whatever order they ask."""
        peers = ("rome", "north-rome", "milan")
        self.assertEqual(self.refused("rome", "shop-north", "shop-north-rome", peers=peers), "NameReserved")
        self.assertEqual(self.refused("milan", "x", "shop-north-rome", ("*",), peers=peers), "NameReserved")
        self.assertEqual(self.refused("north-rome", "shop", "shop-north-rome", peers=peers), "")
        self.assertEqual(self.refused("rome", "shop", "shop-rome", peers=peers), "")
        self.assertEqual(self.refused("rome", "shop-north", "shop-north-rome", peers=("rome", "milan")), "")

    @given(st.lists(LABEL, min_size=1, max_size=4, unique=True), LABEL)
    def test_each_usual_name_is_of_one_cluster(self, peers: list[str], local: str) -> None:
        """Of trusted clusters one alone is given a name that ends with its ID."""
        for peer in peers:
            remote = f"{local}-{peer}"
            given_to = [one for one in peers if not self.refused(one, local, remote, peers=peers)]
            self.assertLessEqual(len(given_to), 1, (remote, given_to))

    def test_names_of_others(self) -> None:
        """System namespaces, other tenants' and tenant namespaces cannot be asked for, by no choice of an ID."""
        for remote in ("shop-c2", "c1", "shop"):
            self.assertEqual(self.refused("c1", "shop", remote), "NameNotYours", remote)
        for remote in ("default", "liqo-system"):
            self.assertEqual(self.refused("c1", "shop", remote), "NameReserved", remote)
        self.assertEqual(self.refused("system", "kube", "kube-system"), "NameReserved")
        self.assertEqual(self.refused("public", "kube", "kube-public"), "NameReserved")
        self.assertEqual(self.refused("storage", "liqo", "liqo-storage"), "NameReserved")
        self.assertEqual(self.refused("system", "istio", "istio-system"), "NameReserved")
        # As "example" of this namespace, the service example.xn--p1ai is found before the name on the Internet.
        self.assertEqual(self.refused("p1ai", "xn", "xn--p1ai", ("*",)), "NameReserved")
        self.assertEqual(self.refused("c1", "xn", "xn-c1"), "")
        self.assertEqual(self.refused("c1", "istio", "istio-system-c1"), "")
        self.assertEqual(self.refused("c1", "liqo-demo", "liqo-demo-c1"), "")
        self.assertEqual(self.refused("c1", "liqo-tenant", "liqo-tenant-c1"), "NameReserved")
        for local, remote in (
            ("shop", "Shop-c1"),
            ("shop", "a/b-c1"),
            ("../x", "x-c1"),
            ("", "-c1"),
            ("a", "x" * 61 + "-c1"),
        ):
            self.assertEqual(self.refused("c1", local, remote), "InvalidName", remote)

    def test_names_that_are_allowed(self) -> None:
        """Patterns allow names to all borrowers, but never those of this cluster's own namespaces."""
        patterns = ("shop", "team-*", "*-x-*")
        for remote in ("shop", "team-a", "team-", "a-x-b", "shop-c1"):
            wanted = "InvalidName" if remote.endswith("-") else ""
            self.assertEqual(self.refused("c1", "shop", remote, patterns), wanted, remote)
        for remote in ("shops", "my-shop", "teams", "x"):
            self.assertEqual(self.refused("c1", "shop", remote, patterns), "NameNotYours", remote)
        for remote in ("default", "kube-system", "liqo-system", "liqo-tenant-c2"):
            self.assertEqual(self.refused("c1", "shop", remote, ("*",)), "NameReserved", remote)

    @given(LABEL, LABEL, LABEL)
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_what_is_granted_bears_the_id(self, peer: str, local: str, remote: str) -> None:
        """Every name that may be asked for is the usual one or ends with the borrower's ID."""
        if not self.refused(peer, local, remote):
            self.assertTrue(remote.endswith(f"-{peer}") or remote == remote_namespace(local, peer))

    def test_nothing_is_adopted(self) -> None:
        """A namespace that exists is taken only if it is this very grant."""
        own = {"liqo.io/remote-cluster-id": "c1"}
        origin = {"liqo.io/original-name": "shop"}
        grants.check_existing(namespace(own, origin), "c1", "shop")
        tenant = {**own, "liqo.io/tenant-namespace": "true"}
        for labels, notes, reason in (
            ({}, {}, "NamespaceTaken"),
            (own, {}, "NamespaceTaken"),
            ({}, origin, "NamespaceTaken"),
            ({"liqo.io/remote-cluster-id": "c2"}, origin, "NamespaceTaken"),
            (tenant, origin, "NamespaceTaken"),
            (own, {"liqo.io/original-name": "other"}, "NamespaceTaken"),
        ):
            with self.assertRaises(Refusal) as caught:
                grants.check_existing(namespace(labels, notes), "c1", "shop")
            self.assertEqual(caught.exception.reason, reason)
        ending = namespace(own, origin, deletionTimestamp="2030-01-01T00:00:00Z")
        with self.assertRaises(Refusal) as caught:
            grants.check_existing(ending, "c1", "shop")
        self.assertEqual(caught.exception.reason, "NamespaceTerminating")

    def test_a_made_namespace_is_a_grant(self) -> None:
        """What is created is recognised as granted to the borrower, and has its Pod Security level."""
        body = grants.body("c1", "shop", "shop-c1", "baseline")
        self.assertEqual(tenant_of(msgspec.convert(body, Object)), "c1")
        self.assertEqual(body["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "baseline")


class RightsTests(SynchronousTestCase):
    def test_the_role_is_narrow(self) -> None:
        """A borrower writes ShadowPods, but neither pods nor the status by which the lender speaks."""
        allowed = {
            (group, resource, verb)
            for rule in rights.borrower_role(services=True)["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        self.assertIn(("offloading.liqo.io", "shadowpods", "create"), allowed)
        self.assertNotIn(("offloading.liqo.io", "shadowpods/status", "patch"), allowed)
        self.assertNotIn("*", {part for entry in allowed for part in entry})
        self.assertEqual({verb for _, resource, verb in allowed if resource == "pods"}, {"get", "list", "watch"})
        forbidden = {"serviceaccounts", "rolebindings", "roles", "namespaces", "endpointslices", "nodes"}
        self.assertFalse({resource for _, resource, _ in allowed} & forbidden)
        self.assertIn(("", "services", "create"), allowed)

    def test_no_services_without_limits(self) -> None:
        """Where no admission policy can keep external addresses out of services, borrowers make none."""
        rules = rights.borrower_role(services=False)["rules"]
        self.assertNotIn("services", {resource for rule in rules for resource in rule["resources"]})

    def test_the_tenant_namespace_shows_no_secrets(self) -> None:
        """In the tenant namespace, where credentials may lie, a borrower may look at its own account and no more."""
        rules = rights.tenant_role("c1")["rules"]
        self.assertEqual(
            rules,
            [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get"], "resourceNames": ["borrower"]}],
        )


class DifferenceTests(SynchronousTestCase):
    def test_only_what_differs(self) -> None:
        """What others added stays; what is missing or different is patched; equal objects ask for nothing."""
        wanted = {"kind": "Role", "metadata": {"name": "r", "labels": {"a": "1"}}, "rules": [{"verbs": ["get"]}]}
        present = {"kind": "Role", "metadata": {"name": "r", "labels": {"a": "1", "b": "2"}, "uid": "u"}, "rules": []}
        self.assertEqual(difference(present, wanted), {"rules": [{"verbs": ["get"]}]})
        self.assertEqual(difference({**present, "rules": wanted["rules"]}, wanted), {})
        self.assertEqual(
            difference({**present, "metadata": {}, "rules": wanted["rules"]}, wanted),
            {"metadata": {"labels": {"a": "1"}}},
        )
