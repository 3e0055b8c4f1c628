"""What the admission policies let borrowers do, and that they concern nobody else."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants.authorizer import user_of
from liqod.hosting.tenants.policies import bindings, policies
from liqod.model.ids import ClusterID
from tests.hosting.admission import Request, refusals

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
ROME = ClusterID("rome")
BORROWERS = (user_of(ROME), "liqo:cluster:rome")
OTHERS = (
    "admin",
    "system:serviceaccount:liqo-tenant-rome:default",
    "system:serviceaccount:shop:borrower",
    "system:serviceaccount:liqo-system:liqod",
    "somebody:liqo:cluster:rome",
)
TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
TOKEN = "kubernetes.io/service-account-token"


def asked(user: str, resource: str, new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    """Return why a request is refused."""
    operation = "CREATE" if old is None else "UPDATE"
    return refusals(policies(), Request(user, operation, resource, new, old, namespace="shop-rome"))


def service(kind: str = "ClusterIP", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": "db", "namespace": "shop-rome"}, "spec": {"type": kind, **fields}}


def claim(**fields: Any) -> dict[str, Any]:
    spec = {"storageClassName": "fast", **fields}
    return {
        "metadata": {"name": "data", "namespace": "shop-rome"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


class ServicePolicyTests(SynchronousTestCase):
    """Services of borrowers."""

    @given(st.sampled_from(BORROWERS), st.sampled_from(TYPES), st.sampled_from(TYPES))
    @STEADILY
    def test_the_type_stays_as_it_was_made(self, user: str, before: str, after: str) -> None:
        """A borrower may make a service of any type, and change anything of it but the type."""
        self.assertEqual(asked(user, "services", service(before)), [])
        told = asked(user, "services", service(after, selector={"a": "b"}), service(before))
        self.assertEqual(bool(told), before != after)
        self.assertTrue(all("may not change the type" in message for message in told))

    @given(st.sampled_from(BORROWERS), st.booleans(), st.sampled_from([None, [], ["192.0.2.1"]]))
    @STEADILY
    def test_no_address_of_its_choice(self, user: str, update: bool, external: list[str] | None) -> None:
        """Neither external addresses nor a load balancer's, at first or later; their absence is no fault."""
        for field, value in (("externalIPs", external), ("loadBalancerIP", external and external[0])):
            given: dict[str, Any] = {field: value if value != [] or field[0] == "e" else ""}
            new = service() if value is None else service(**given)
            told = asked(user, "services", new, service() if update else None)
            self.assertEqual(bool(told), bool(value), (field, told))
            self.assertTrue(all(field in message for message in told))


class SecretAndClaimPolicyTests(SynchronousTestCase):
    """What would hold tokens or data of others."""

    @given(st.sampled_from(BORROWERS), st.booleans(), st.sampled_from(["Opaque", "kubernetes.io/tls", TOKEN, None]))
    @STEADILY
    def test_no_secret_that_is_filled_with_a_token(self, user: str, update: bool, kind: str | None) -> None:
        """Every other type passes, and one that names none."""
        secret: dict[str, Any] = (
            {"metadata": {"name": "s"}} if kind is None else {"metadata": {"name": "s"}, "type": kind}
        )
        self.assertEqual(bool(asked(user, "secrets", secret, secret if update else None)), kind == TOKEN)

    @given(st.sampled_from([None, "", "pv-1"]), st.sampled_from([None, "", "pv-1", "pv-2"]))
    @STEADILY
    def test_a_volume_is_not_chosen(self, before: str | None, after: str | None) -> None:
        """A claim is made without a volume, and a borrower's update leaves the one that was bound."""
        for user in BORROWERS:
            self.assertEqual(bool(asked(user, "persistentvolumeclaims", claim(volumeName=after))), bool(after))
            told = asked(user, "persistentvolumeclaims", claim(volumeName=after), claim(volumeName=before))
            self.assertEqual(bool(told), (before or "") != (after or ""))

    @given(st.booleans(), st.sampled_from([None, "", "fast"]), st.sampled_from([None, "shop-rome", "kube-system"]))
    @STEADILY
    def test_data_comes_from_nowhere_else(self, update: bool, storage_class: str | None, source: str | None) -> None:
        """A class is named, since volumes without one may be anybody's; a source is of the claim's own namespace."""
        reference = {"kind": "VolumeSnapshot", "name": "x", **({} if source is None else {"namespace": source})}
        for fields in ({}, {"dataSourceRef": reference}):
            new = claim(storageClassName=storage_class, **fields)
            told = asked(BORROWERS[0], "persistentvolumeclaims", new, claim() if update else None)
            allowed = bool(storage_class) and (not fields or source in (None, "shop-rome"))
            self.assertEqual(not told, allowed, (new, told))


class PolicyScopeTests(SynchronousTestCase):
    """Whom the policies concern."""

    def test_nobody_but_borrowers(self) -> None:
        """What is refused to a borrower is allowed to everybody else that has the right."""
        bad = [
            ("services", service(externalIPs=["192.0.2.1"])),
            ("secrets", {"metadata": {"name": "s"}, "type": TOKEN}),
            ("persistentvolumeclaims", claim(storageClassName=None)),
        ]
        for resource, new in bad:
            for user in BORROWERS:
                self.assertNotEqual(asked(user, resource, new), [], (user, resource))
            for user in OTHERS:
                self.assertEqual(asked(user, resource, new), [], (user, resource))

    def test_each_is_bound_and_denies(self) -> None:
        """By a binding of its name; what cannot be evaluated is refused."""
        names = [policy["metadata"]["name"] for policy in policies()]
        self.assertEqual([binding["metadata"]["name"] for binding in bindings()], names)
        for binding in bindings():
            wanted = {"policyName": binding["metadata"]["name"], "validationActions": ["Deny"]}
            self.assertEqual(binding["spec"], wanted)
        self.assertEqual({policy["spec"]["failurePolicy"] for policy in policies()}, {"Fail"})
