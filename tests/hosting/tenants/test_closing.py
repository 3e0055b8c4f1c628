"""What takes traffic in a namespace that is being deleted: each object by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants.closing import (
    LAST_GRACE,
    NOWHERE,
    ClosingNamespaces,
    Route,
    Service,
    close_route,
    close_service,
)
from liqod.kube.errors import Invalid, NotFound, ServerError, from_status
from liqod.kube.resources import HTTPROUTES, INGRESSES, PODS, SERVICEACCOUNTS, SERVICES, Resource
from liqod.model.ids import Key
from liqod.model.names import CLOSED_LABEL, ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from tests.hosting.shadowpods.test_controller import Cache

LEFT: dict[Resource, list[dict[str, Any]]] = {
    SERVICES: [{"spec": {"type": "ClusterIP", "selector": {"app": "web"}}}] * 2,
    INGRESSES: [{"spec": {"ingressClassName": "nginx"}}],
    HTTPROUTES: [{"spec": {"parentRefs": [{"name": "shared"}], "hostnames": ["shop.example"]}}],
    PODS: [],
}

DELETED = msgspec.convert(
    {
        "metadata": {
            "name": "shop",
            "labels": {REMOTE_CLUSTER_LABEL: "borrower"},
            "annotations": {ORIGINAL_NAME_ANNOTATION: "shop"},
            "deletionTimestamp": "2030-01-01T00:00:00Z",
        }
    },
    Object,
)


class RefusingServer:
    """Has two services, an ingress and a route, serves no GRPCRoutes, and refuses a change of the first service."""

    def __init__(self) -> None:
        self.patched: list[tuple[str, str]] = []

    async def get(self, resource: Resource, name: str, namespace: str, *, view: Any) -> Any:
        raise NotFound(404, "NotFound", f"no {name} in {namespace}")

    async def list(self, resource: Resource, namespace: str, *, view: Any) -> Any:
        if resource not in LEFT:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        bodies = [
            {"metadata": {"name": f"o{i}", "namespace": namespace}, **one} for i, one in enumerate(LEFT[resource])
        ]
        return SimpleNamespace(items=msgspec.convert(bodies, list[view]))

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str, *, view: Any) -> None:
        if (resource, name) == (SERVICES, "o0"):
            raise from_status(422, b'{"reason": "Invalid", "message": "not by this webhook"}')
        self.patched.append((resource.kind, name))


class Tenant:
    """Has pods that are being deleted with these grace periods, and the account of their tenant, if it is not gone."""

    def __init__(self, *graces: int | None, account: bool) -> None:
        self.pods = {f"p{number}": grace for number, grace in enumerate(graces)}
        self.account = account

    async def get(self, resource: Resource, name: str, namespace: str, *, view: Any) -> Any:
        assert (resource, name, namespace) == (SERVICEACCOUNTS, "borrower", "liqo-tenant-borrower")
        if not self.account:
            raise NotFound(404, "NotFound", "there is none")

    async def list(self, resource: Resource, namespace: str, *, view: Any) -> Any:
        pods = self.pods if resource == PODS else {}
        deleted = {"namespace": namespace, "uid": "u", "deletionTimestamp": "2030-01-01T01:00:00Z"}
        bodies = [
            {"metadata": {"name": name, **({} if grace is None else {**deleted, "deletionGracePeriodSeconds": grace})}}
            for name, grace in pods.items()
        ]
        return SimpleNamespace(items=msgspec.convert(bodies, list[view]))

    async def delete(self, resource: Resource, name: str, namespace: str, *, uid: str, grace: int) -> None:
        assert (resource, namespace, uid) == (PODS, "shop", "u")
        self.pods[name] = grace


class WithoutRoutes(Tenant):
    """Answers with an error where routes are listed, as for a kind whose conversion is broken."""

    async def list(self, resource: Resource, namespace: str, *, view: Any) -> Any:
        if resource == HTTPROUTES:
            raise from_status(500, b'{"reason": "InternalError", "message": "conversion webhook failed"}')
        return await super().list(resource, namespace, view=view)


class PodsTests(SynchronousTestCase):
    """Pods of a namespace that is being deleted."""

    def left(self, *graces: int | None, account: bool) -> list[int | None]:
        """Return the grace periods after one look."""
        namespaces, server = Cache(), Tenant(*graces, account=account)
        namespaces.put(DELETED)
        closing = ClosingNamespaces(cast(Any, server), Clock(), cast(Any, namespaces))
        self.successResultOf(Deferred.fromCoroutine(closing.reconcile(Key("", "shop"))))
        return list(server.pods.values())

    def test_of_a_dismissed_tenant(self) -> None:
        """They do not run on for the hour that the tenant chose; what ends sooner, or is not deleted, stays so."""
        self.assertEqual(self.left(3600, 61, 60, 5, None, account=False), [LAST_GRACE, LAST_GRACE, 60, 5, None])

    def test_where_routes_are_not_listed(self) -> None:
        """They end all the same; the refusal is raised, so that the routes are tried again."""
        namespaces, server = Cache(), WithoutRoutes(3600, account=False)
        namespaces.put(DELETED)
        closing = ClosingNamespaces(cast(Any, server), Clock(), cast(Any, namespaces))
        self.failureResultOf(Deferred.fromCoroutine(closing.reconcile(Key("", "shop"))), ServerError)
        self.assertEqual(list(server.pods.values()), [LAST_GRACE])

    def test_of_a_tenant_that_gives_it_back(self) -> None:
        """It chose their grace periods, and waits for them."""
        self.assertEqual(self.left(3600, account=True), [3600])


class ClosingTests(SynchronousTestCase):
    """One namespace."""

    def test_one_that_is_refused(self) -> None:
        """The others are disabled all the same, and the first refusal is raised: the controller tries again.

        So it is where a kind is not served.
        """
        namespaces, server = Cache(), RefusingServer()
        namespaces.put(DELETED)
        closing = ClosingNamespaces(cast(Any, server), Clock(), cast(Any, namespaces))
        ended = Deferred.fromCoroutine(closing.reconcile(Key("", "shop")))
        self.failureResultOf(ended, Invalid)
        self.assertEqual(server.patched, [("Service", "o1"), ("Ingress", "o0"), ("HTTPRoute", "o0")])

    def test_a_service_that_wears_the_mark(self) -> None:
        """A selector with more than the mark, or another value of it, is not taken for that of a disabled service."""

        def closed(selector: dict[str, str]) -> Any:
            patch = close_service(msgspec.convert({"spec": {"selector": selector}}, Service))
            return patch and patch["spec"]["selector"]

        self.assertEqual(closed({CLOSED_LABEL: "yes", "app": "web"}), {CLOSED_LABEL: "true", "app": None})
        self.assertEqual(closed({CLOSED_LABEL: "true", "app": "web"}), {CLOSED_LABEL: "true", "app": None})
        self.assertIsNone(closed({CLOSED_LABEL: "true"}))

    def test_a_route(self) -> None:
        """It is of no gateway afterwards, and takes no host; then nothing is written again."""
        spec = {"parentRefs": [{"name": "shared"}], "hostnames": ["shop.example"]}
        patch = close_route(msgspec.convert({"spec": spec}, Route))
        self.assertEqual(patch, {"spec": {"parentRefs": None, "hostnames": [NOWHERE], "rules": None}})
        self.assertIsNone(close_route(msgspec.convert({"spec": {"hostnames": [NOWHERE]}}, Route)))
        self.assertIsNotNone(close_route(msgspec.convert({"spec": {**spec, "hostnames": [NOWHERE]}}, Route)))
