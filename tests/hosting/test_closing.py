"""What takes traffic in a namespace that is being deleted: each object by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.tenants.closing import ClosingNamespaces, Service, close_service
from liqod.kube.errors import Invalid, from_status
from liqod.kube.resources import INGRESSES, SERVICES, Resource
from liqod.model.ids import Key
from liqod.model.names import CLOSED_LABEL, ORIGINAL_NAME_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.objects.meta import Object
from tests.hosting.test_controller import Cache

LEFT: dict[Resource, list[dict[str, Any]]] = {
    SERVICES: [{"spec": {"type": "ClusterIP", "selector": {"app": "web"}}}] * 2,
    INGRESSES: [{"spec": {"ingressClassName": "nginx"}}],
}


class RefusingServer:
    """Has two services and an ingress, and refuses a change of the first service as an admission webhook does."""

    def __init__(self) -> None:
        self.patched: list[tuple[str, str]] = []

    async def list(self, resource: Resource, namespace: str, *, view: Any) -> Any:
        bodies = [
            {"metadata": {"name": f"o{i}", "namespace": namespace}, **one} for i, one in enumerate(LEFT[resource])
        ]
        return SimpleNamespace(items=msgspec.convert(bodies, list[view]))

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str, *, view: Any) -> None:
        if (resource, name) == (SERVICES, "o0"):
            raise from_status(422, b'{"reason": "Invalid", "message": "not by this webhook"}')
        self.patched.append((resource.kind, name))


class ClosingTests(SynchronousTestCase):
    """One namespace."""

    def test_one_that_is_refused(self) -> None:
        """The others are disabled all the same, and the first refusal is raised: the controller tries again."""
        namespaces, server = Cache(), RefusingServer()
        meta = {
            "name": "shop",
            "labels": {REMOTE_CLUSTER_LABEL: "borrower"},
            "annotations": {ORIGINAL_NAME_ANNOTATION: "shop"},
            "deletionTimestamp": "2030-01-01T00:00:00Z",
        }
        namespaces.put(msgspec.convert({"metadata": meta}, Object))
        closing = ClosingNamespaces(cast(Any, server), Clock(), cast(Any, namespaces))
        ended = Deferred.fromCoroutine(closing.reconcile(Key("", "shop")))
        self.failureResultOf(ended, Invalid)
        self.assertEqual(server.patched, [("Service", "o1"), ("Ingress", "o0")])

    def test_a_service_that_wears_the_mark(self) -> None:
        """A selector with more than the mark, or another value of it, is not taken for that of a disabled service."""

        def closed(selector: dict[str, str]) -> Any:
            patch = close_service(msgspec.convert({"spec": {"selector": selector}}, Service))
            return patch and patch["spec"]["selector"]

        self.assertEqual(closed({CLOSED_LABEL: "yes", "app": "web"}), {CLOSED_LABEL: "true", "app": None})
        self.assertEqual(closed({CLOSED_LABEL: "true", "app": "web"}), {CLOSED_LABEL: "true", "app": None})
        self.assertIsNone(closed({CLOSED_LABEL: "true"}))
