"""Three real clusters, for walks where rome borrows from milan and from paris."""

from __future__ import annotations

import atexit
from functools import partial
from itertools import permutations
from typing import Any, ClassVar, Final
from unittest import TestResult

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import failures, require_clusters
from tests.real.daemons import Daemon
from tests.real.manifests import pod
from tests.real.path import NAMESPACE, condition, eventually, is_running, peer_of
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed, tail
from tests.testbed.testbed import Testbed

NAMES: Final = ("rome", "milan", "paris")
LENDERS: Final = ("milan", "paris")
LOOP: Final = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]


class LendersTests(SynchronousTestCase):
    """Steps on the three in the order of their names; when one fails, it shows what the daemons said last."""

    _testbed: ClassVar[Testbed | None] = None
    daemons: ClassVar[dict[str, Daemon]] = {}
    daemon_class: ClassVar[type[Daemon]] = Daemon
    shape: ClassVar[dict[str, Any]] = {}

    @classmethod
    def settings(cls, name: str) -> str:
        """Return what a cluster's configuration has beside the usual; it begins within ``[hosting]``."""
        return ""

    def setUp(self) -> None:
        """Make the clusters before the first step."""
        cls = type(self)
        if cls._testbed is None:
            require_clusters()
            cls._testbed = Testbed(3, nodes=True, **cls.shape)
            atexit.register(cls._testbed.stop)
            cls._testbed.start()
            cls.daemons = {}
            for number, name in enumerate(NAMES, 1):
                cls.daemons[name] = cls.daemon_class(cls._testbed[number], name, extra=cls.settings(name))
                cls.daemons[name].start()

    def run(self, result: TestResult | None = None) -> TestResult | None:
        """Run one step; when it fails, show what the daemons said."""
        before = failures(result)
        done: TestResult | None = super().run(result)
        if failures(result) > before:
            for daemon in self.daemons.values():
                print(f"--- {daemon.name}", tail(daemon.log, 40), sep="\n")
        return done

    @property
    def rome(self) -> Cluster:
        """The cluster whose pods are offloaded."""
        return self.daemons["rome"].cluster

    def node(self, lender: str) -> dict[str, Any]:
        """Return rome's own virtual node of a lender."""
        return dict(self.rome.get("node", f"liqo-{lender}"))

    def ready(self, lender: str) -> bool:
        """Tell whether rome's own virtual node of a lender is Ready."""
        return condition(self.node(lender), "Ready") == "True"

    def is_absent(self, cluster: Cluster, *what: str) -> bool:
        """Tell whether an object is not there."""
        try:
            cluster.kubectl("get", *what)
        except CommandFailed as error:
            return "NotFound" in error.output
        return False

    def peer_up(self) -> None:
        """Have rome and each lender trust each other, and rome have a virtual node of each."""
        for one, two in permutations(NAMES, 2):
            if "rome" in (one, two):
                eventually(f"{one} sees {two}", partial(peer_of, self.daemons[one].cluster, two))
                self.daemons[one].liqodctl("trust", two, "--yes")
        for name in LENDERS:
            eventually(f"the node of {name} is Ready", partial(self.ready, name))

    def body(self, name: str, millicores: int, *, namespace: str = NAMESPACE, node: str = "") -> dict[str, Any]:
        """Return a pod of a size, for any node or for one."""
        spec = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
        made = pod(name, LOOP, namespace=namespace, **spec)
        requests = {"cpu": f"{millicores}m", "memory": "4Mi"}
        made["spec"]["containers"][0]["resources"] = {"requests": requests}
        return made

    def place(self, name: str, namespace: str = NAMESPACE) -> str:
        """Wait until a pod runs, and return the name of its node."""
        eventually(f"{name} runs", lambda: is_running(self.rome.get("pod", name, "-n", namespace)))
        return str(self.rome.get("pod", name, "-n", namespace)["spec"]["nodeName"])
