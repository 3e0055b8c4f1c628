"""The caches that the parts of hosting share."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.hosting.context import Caches
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.resources import SHADOWPODS
from liqod.model.records.views import ShadowPod


class CachesTests(SynchronousTestCase):
    """Informers that are not started."""

    def setUp(self) -> None:
        self.informers = Informers(cast(Any, None), Clock())

    def test_sizes(self) -> None:
        """Of what tenants write, sizes are noted, and all that ask for them have the same caches."""
        caches = Caches.watched_by(self.informers, contents=True)
        self.assertEqual(len(caches.counted()), 5)
        self.assertEqual(len(Caches.watched_by(self.informers, contents=False).counted()), 3)
        self.assertEqual(Caches.watched_by(self.informers, contents=True), caches)

    def test_too_late(self) -> None:
        """Where others watch a record already, without sizes, that is refused at once."""
        self.informers.of(SHADOWPODS, ShadowPod)
        self.assertRaises(ValueError, Caches.watched_by, self.informers, contents=False)
