"""Two real clusters with a daemon each, made once for all tests of a class and removed when the process ends."""

from __future__ import annotations

import atexit
from typing import Any, ClassVar
from unittest import TestResult

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import failures, require_clusters
from tests.real.daemons import Daemon
from tests.testbed.process import tail
from tests.testbed.testbed import Testbed


class PairTests(SynchronousTestCase):
    """Steps on one pair of clusters, rome and milan, run in the order of their names.

    When a step fails, it shows what the daemons said last.
    """

    start_daemons: ClassVar[bool] = True
    configuration: ClassVar[str] = ""
    same_pod_cidr: ClassVar[bool] = False
    workers: ClassVar[int] = 0
    shape: ClassVar[dict[str, Any]] = {}
    daemon_class: ClassVar[type[Daemon]] = Daemon
    _testbed: ClassVar[Testbed | None] = None
    rome: Daemon
    milan: Daemon

    def setUp(self) -> None:
        """Make the clusters before the first step."""
        cls = type(self)
        if cls._testbed is None:
            require_clusters()
            cls._testbed = Testbed(2, nodes=True, same_pod_cidr=cls.same_pod_cidr, workers=cls.workers, **cls.shape)
            atexit.register(cls._testbed.stop)
            cls._testbed.start()
            cls.rome = cls.daemon_class(cls._testbed[1], "rome", extra=cls.configuration)
            cls.milan = cls.daemon_class(cls._testbed[2], "milan", extra=cls.configuration)
            if cls.start_daemons:
                cls.rome.start()
                cls.milan.start()

    def run(self, result: TestResult | None = None) -> TestResult | None:
        """Run one step; when it fails, show what the daemons said."""
        before = failures(result)
        done: TestResult | None = super().run(result)
        if failures(result) > before and self._testbed is not None:
            for daemon in (self.rome, self.milan):
                print(f"--- {daemon.name}", tail(daemon.log, 60), sep="\n")
        return done
