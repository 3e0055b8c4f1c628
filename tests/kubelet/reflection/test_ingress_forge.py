"""Which paths of ingresses go to a lender."""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.forge.ingress import forge
from liqod.kubelet.reflection.forge.reflected import DesiredObject, Withheld
from liqod.kubelet.reflection.views import WithSpec
from tests.kubelet.reflection.test_service_forge import CONTEXT

BACKEND = {"service": {"name": "web", "port": {"number": 80}}}


def made(*paths: dict[str, Any]) -> DesiredObject | Withheld:
    rules = [{"host": "other.example"}, {"host": "shop.example", "http": {"paths": list(paths)}}]
    body = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"rules": rules}}
    return forge(msgspec.json.decode(msgspec.json.encode(body), type=WithSpec), CONTEXT)


class PathTests(SynchronousTestCase):
    """Every lender refuses paths that are not plain."""

    def test_paths_that_are_not_plain(self) -> None:
        """The ingress stays at home, and an event says which path it is."""
        found = made({"path": "/", "pathType": "Prefix"}, {"path": "/;} x", "pathType": "ImplementationSpecific"})
        assert isinstance(found, Withheld)
        self.assertTrue(found.recorded)
        self.assertIn("'/;} x'", found.why)

    def test_types_that_a_class_defines(self) -> None:
        """Such a path goes as a prefix; the others, and rules without paths, stay as they are."""
        exact = {"path": "/a", "pathType": "Exact", "backend": BACKEND}
        found = made(
            exact,
            {"pathType": "ImplementationSpecific", "backend": BACKEND},
            {"path": "/b", "pathType": "ImplementationSpecific", "backend": BACKEND},
        )
        assert isinstance(found, DesiredObject)
        first, second = found.content["spec"]["rules"]
        self.assertEqual(first, {"host": "other.example"})
        self.assertEqual(
            second["http"]["paths"],
            [
                exact,
                {"path": "/", "pathType": "Prefix", "backend": BACKEND},
                {"path": "/b", "pathType": "Prefix", "backend": BACKEND},
            ],
        )
