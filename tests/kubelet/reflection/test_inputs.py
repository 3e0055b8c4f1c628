"""When there is enough to forge from: a cache that is not filled says nothing of what is not in it."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Reflected, ReflectionSettings
from liqod.kubelet.common.context import Context
from liqod.kubelet.reflection.kinds import CLAIM, KINDS, SECRET, SERVICE, reflected_kinds
from liqod.kubelet.reflection.service import Reflection
from liqod.model.ids import ClusterID

UNUSED: Any = SimpleNamespace()
"""In place of what the inputs are not read from."""
CONTEXT = Context(home=ClusterID("home"), lender=ClusterID("rome"), node_name="liqo-rome")


def cache(synced: bool) -> Any:
    """Return an informer that has seen all there is, or has not."""
    return SimpleNamespace(synced=synced)


class Services(Reflection):
    """Reflection whose reflector of services has an informer of the namespace at home, or none."""

    services: Any = None

    def _home_informer(self, *_: Any) -> Any:
        return self.services


class CompletenessTests(SynchronousTestCase):
    """Nodes, services, volumes and classes: what is forged depends on all of them."""

    def complete(self, *, nodes: bool, classes: bool, services: bool | None, volumes: bool | None) -> bool:
        """Return whether inputs are complete where caches are filled; None stands for one that there is not."""
        settings = ReflectionSettings()
        none = {kind.setting: type(getattr(settings, kind.setting))(workers=0) for kind in KINDS}
        none["event"] = type(settings.event)(workers=0)
        locations: Any = None if volumes is None else SimpleNamespace(volumes=cache(volumes))
        reflection = Services(
            Clock(),
            ReflectionSettings(**none),
            CONTEXT,
            informers=UNUSED,
            home=UNUSED,
            election=UNUSED,
            nodes=cache(nodes),
            pods=UNUSED,
            namespaces=UNUSED,
            health=UNUSED,
            gate=UNUSED,
            recorder=UNUSED,
            classes=cache(classes),
            locations=locations,
        )
        self.assertEqual(reflected_kinds(ReflectionSettings(**none), storage=True), [])
        reflection.services = None if services is None else cache(services)
        return reflection.inputs(SERVICE, "shop").complete

    def test_each(self) -> None:
        """They are complete when everything that there is is filled, and not a moment before."""
        maybe = (None, True, False)
        for (nodes, classes), services, volumes in product(product((True, False), repeat=2), maybe, maybe):
            there = [one for one in (nodes, classes, services, volumes) if one is not None]
            found = self.complete(nodes=nodes, classes=classes, services=services, volumes=volumes)
            self.assertEqual(found, all(there), (nodes, classes, services, volumes))


class KindsTests(SynchronousTestCase):
    """Which kinds are reflected at all."""

    def test_of_settings(self) -> None:
        """Those with workers are; claims only where their data follows pods."""
        settings = ReflectionSettings(secret=Reflected(workers=0))
        self.assertEqual(set(KINDS) - set(reflected_kinds(settings, storage=True)), {SECRET})
        self.assertEqual(set(KINDS) - set(reflected_kinds(settings, storage=False)), {SECRET, CLAIM})
