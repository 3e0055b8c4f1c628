"""What the daemon's own account may do where, as its admission policies have it, evaluated as an API server does."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.account.admission_policies import policies
from liqod.webhook.configuration import NAME
from tests.hosting.admission import Request, refusals

STEADILY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
OWN = "liqo"
DAEMON = "system:serviceaccount:liqo:liqod"
TENANT = {"liqo.io/remote-cluster-id": "rome"}
OFFLOADED = {"liqo.io/enabled": "true"}
PLACES: dict[str, tuple[str, dict[str, str]]] = {
    "own": (OWN, {}),
    "tenant": ("shop-rome", TENANT),
    "offloaded": ("shop", OFFLOADED),
    "other": ("kube-system", {}),
}
GROUPS = {
    "roles": "rbac.authorization.k8s.io",
    "rolebindings": "rbac.authorization.k8s.io",
    "endpointslices": "discovery.k8s.io",
    "mutatingwebhookconfigurations": "admissionregistration.k8s.io",
}
OPERATIONS = ("CREATE", "UPDATE", "DELETE")
places = st.sampled_from(sorted(PLACES))


def may(resource: str, operation: str, place: str = "own", user: str = DAEMON, **objects: Any) -> bool:
    """Return whether a request is allowed; without ``new`` and ``old`` the objects say nothing."""
    namespace, labels = PLACES[place]
    thing: dict[str, Any] = {"metadata": {"name": "x"}}
    new = objects.get("new", thing) if operation != "DELETE" else None
    old = objects.get("old", thing) if operation != "CREATE" else None
    group = GROUPS.get(resource, "")
    asked = Request(user, operation, resource, new, old, group, namespace=namespace, namespace_labels=labels)
    return not refusals(policies(OWN), asked)


def pod(image: str = "a:1", init: str | None = None, **more: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": image}, {"name": "side", "image": "b"}], **more}
    if init is not None:
        spec["initContainers"] = [{"name": "first", "image": init}]
    return {"metadata": {"name": "web"}, "spec": spec}


class EverywhereTests(SynchronousTestCase):
    """Objects that the account writes in its own namespace and for its tenants."""

    @given(
        st.sampled_from(["secrets", "serviceaccounts", "roles", "rolebindings", "endpointslices"]),
        st.sampled_from(OPERATIONS),
        places,
    )
    @STEADILY
    def test_objects_stay_at_home(self, resource: str, operation: str, place: str) -> None:
        """Nothing of the kind is made, changed or removed in any namespace but its own and its tenants'."""
        self.assertEqual(may(resource, operation, place), place in ("own", "tenant"))

    @given(st.sampled_from(["CREATE", "UPDATE"]), st.sampled_from(["own", "tenant"]), st.booleans(), st.booleans())
    @STEADILY
    def test_no_token_by_a_secret(self, operation: str, place: str, typed: bool, token: bool) -> None:
        """Not even where all else may be written."""
        kind = "kubernetes.io/service-account-token" if token else "Opaque"
        secret: dict[str, Any] = {"metadata": {"name": "s"}, **({"type": kind} if typed else {})}
        self.assertEqual(may("secrets", operation, place, new=secret), not (typed and token))

    @given(
        places,
        st.sampled_from([None, {"kind": "Pod", "name": "a"}, {"kind": "Secret", "name": "a"}]),
        st.sampled_from(["true", "false", None]),
    )
    @STEADILY
    def test_tokens_are_for_pods_of_offloaded_namespaces(
        self, place: str, bound: dict[str, str] | None, enabled: str | None
    ) -> None:
        """Or of a tenant's accounts; a token that is bound to no pod would outlive all of it."""
        labels = {} if enabled is None else {"liqo.io/enabled": enabled}
        namespace = PLACES[place][0]
        where = {**(TENANT if place == "tenant" else {}), **labels}
        spec = {} if bound is None else {"boundObjectRef": bound}
        asked = Request(
            DAEMON, "CREATE", "serviceaccounts/token", {"spec": spec}, namespace=namespace, namespace_labels=where
        )
        allowed = place == "tenant" or (enabled == "true" and bound is not None and bound["kind"] == "Pod")
        self.assertEqual(not refusals(policies(OWN), asked), allowed)


class PodsTests(SynchronousTestCase):
    """Pods run for tenants only."""

    @given(places, st.sampled_from(["a:1", "a:2"]), st.sampled_from([None, "i:1", "i:2"]))
    @STEADILY
    def test_pods_are_made_and_given_images_for_tenants_only(self, place: str, image: str, init: str | None) -> None:
        """Elsewhere an update may change all but images, of containers and of init containers alike."""
        self.assertEqual(may("pods", "CREATE", place, new=pod()), place == "tenant")
        new, old = pod(image, init, priority=1), pod("a:1", None if init is None else "i:1")
        allowed = place == "tenant" or (image == "a:1" and init in (None, "i:1"))
        self.assertEqual(may("pods", "UPDATE", place, new=new, old=old), allowed)

    @given(places, st.sampled_from(["pods/ephemeralcontainers", "pods/resize"]))
    @STEADILY
    def test_running_pods_get_no_more_parts(self, place: str, resource: str) -> None:
        """A container put into another's pod has all that the pod has."""
        self.assertEqual(may(resource, "UPDATE", place, new=pod(), old=pod()), place == "tenant")


class NamespacesTests(SynchronousTestCase):
    """Namespaces of tenants, and nobody else's."""

    @given(st.sampled_from([None, {}, TENANT]), st.sampled_from([None, {}, TENANT]))
    @STEADILY
    def test_only_those_of_tenants(self, before: dict[str, str] | None, after: dict[str, str] | None) -> None:
        """No namespace becomes a tenant's, stops being one, or goes, unless it was made for one."""

        def space(labels: dict[str, str] | None) -> dict[str, Any]:
            return {"metadata": {"name": "x", **({} if labels is None else {"labels": labels})}}

        new, old = space(after), space(before)
        self.assertEqual(may("namespaces", "CREATE", "other", new=new), after == TENANT)
        self.assertEqual(may("namespaces", "DELETE", "other", old=old), before == TENANT)
        self.assertEqual(may("namespaces", "UPDATE", "other", new=new, old=old), before == after == TENANT)

    def test_one_webhook(self) -> None:
        """A webhook sees every pod of the cluster: the account makes the daemon's, and no other."""
        for name in (NAME, "evil", f"{NAME}-2"):
            new = {"metadata": {"name": name}}
            self.assertEqual(may("mutatingwebhookconfigurations", "CREATE", "other", new=new), name == NAME)


class OthersTests(SynchronousTestCase):
    """Whom the policies concern."""

    @given(st.sampled_from(["admin", "system:serviceaccount:liqo:default", "system:serviceaccount:shop:liqod"]), places)
    @STEADILY
    def test_nobody_but_the_account(self, user: str, place: str) -> None:
        """What it may not do others may, if they have the right."""
        for resource in ("secrets", "pods", "namespaces", "mutatingwebhookconfigurations", "pods/resize"):
            for operation in OPERATIONS:
                self.assertTrue(may(resource, operation, place, user=user), (resource, operation))
