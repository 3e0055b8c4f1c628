"""What walks on two real clusters have in common where rome lends from milan: making, finding and dropping objects."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from liqod.model.names import remote_namespace
from tests.real.manifests import pod
from tests.real.pair import PairTests
from tests.real.path import NAMESPACE, eventually, is_running, node_ready, peer_of, trust_each_other
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed

VIRTUAL = {"liqo.io/type": "virtual-node"}
LOOP = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"]
SETTINGS = """
[sharing]
percentage = 100

[reflection]
skip-labels = ["example.com/only-here"]
skip-annotations = ["example.com/only-here"]
"""


class Steps(PairTests):
    """The base of walks on rome and milan, where rome's pods go to milan."""

    configuration = SETTINGS

    @property
    def home(self) -> Cluster:
        """The cluster whose pods are offloaded."""
        return self.rome.cluster

    @property
    def lender(self) -> Cluster:
        """The cluster where they run."""
        return self.milan.cluster

    def remote(self, namespace: str = NAMESPACE) -> str:
        """Return the name of a namespace at the lender."""
        return remote_namespace(namespace, peer_of(self.lender, "rome")["metadata"]["name"])

    def here(self, kind: str, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        """Return an object at home."""
        return dict(self.home.get(kind, name, "-n", namespace))

    def there(self, kind: str, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        """Return its counterpart at the lender."""
        return dict(self.lender.get(kind, name, "-n", self.remote(namespace)))

    def is_absent(self, cluster: Cluster, kind: str, name: str, namespace: str = "") -> bool:
        """Tell whether an object is not there."""
        try:
            cluster.kubectl("get", kind, name, *(("-n", namespace) if namespace else ()))
        except CommandFailed as error:
            return "NotFound" in error.output
        return False

    def peer_up(self) -> None:
        """Have both trust each other, and rome's virtual node Ready."""
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", partial(node_ready, self.home))

    def make(self, name: str, command: list[str] | None = None, **more: Any) -> None:
        """Make a pod for the virtual node; ``labels`` and ``annotations`` go to its metadata."""
        annotations = more.pop("annotations", {})
        namespace = more.pop("namespace", NAMESPACE)
        body = pod(name, command or LOOP, namespace=namespace, **{"nodeSelector": VIRTUAL, **more})
        body["metadata"]["annotations"] = annotations
        self.home.apply(body)

    def runs(self, name: str, namespace: str = NAMESPACE) -> dict[str, Any]:
        """Wait until a pod is Running and Ready at home, and return it."""
        eventually(f"{name} runs", lambda: is_running(self.here("pod", name, namespace)))
        return self.here("pod", name, namespace)

    def drop(self, *what: str, namespace: str = NAMESPACE) -> None:
        """Delete objects at home, given as KIND/NAME."""
        self.home.kubectl("delete", "-n", namespace, *what, "--timeout=120s", timeout=130)

    def stays(self, what: str, holds: Callable[[], bool], seconds: float = 4.0) -> None:
        """Look again and again for some seconds, and fail as soon as it is otherwise."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.assertTrue(holds(), what)
            time.sleep(0.5)
