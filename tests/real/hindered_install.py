"""Installations as pods that something is in the way of, on one real cluster: occupied ports, and an end in the middle.

The steps run in the order of their names; each begins and ends without anything of liqod in the cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import made_once, require_clusters
from tests.real.chart_install import CHART, IMAGE, KINDS, MORE, _image
from tests.real.manifests import pod
from tests.real.path import eventually
from tests.testbed import build, versions
from tests.testbed.cluster import Cluster
from tests.testbed.node import import_images
from tests.testbed.process import CommandFailed
from tests.testbed.testbed import Testbed

SYSTEM: Final = "liqo-system"
VALUES: Final = {"image.repository": IMAGE, "image.tag": "test", "image.pullPolicy": "Never", "clusterName": "rome"}
PATIENCE: Final = 90
"""Seconds that `up` waits for pods that do not become ready: they say why long before that on a slow machine, too."""


class HinderedTests(SynchronousTestCase):
    """A cluster with one node that has the image."""

    _testbed: ClassVar[Testbed | None] = None
    _before: ClassVar[set[str]] = set()

    def setUp(self) -> None:
        made_once(type(self), self._make)
        assert self._testbed is not None
        (self.rome,) = self._testbed.clusters
        self.addCleanup(self.tidy)

    def _make(self) -> None:
        require_clusters()
        build.ensure(("helm",))
        type(self)._testbed = testbed = Testbed(1, nodes=True)
        atexit.register(testbed.stop)
        testbed.start()
        import_images(testbed[1].host, _image(), "native")
        type(self)._before = objects(testbed[1])

    # Commands

    def liqodctl(self, *words: str) -> list[str]:
        """Return the command line of the checkout's liqodctl with an administrator's kubeconfig."""
        kubeconfig = f"--kubeconfig={self.rome.kubeconfig}"
        return [sys.executable, "-m", "liqod.cli", *words, "-o", "json", kubeconfig]

    def up(self, timeout: int = 240) -> list[str]:
        """Return the command line of `up --in-cluster`."""
        words = (f"--image={IMAGE}:test", "--local-image", "--name=rome", f"--timeout={timeout}", "--yes")
        return self.liqodctl("up", "--in-cluster", *words)

    def helm(self, *words: str) -> list[str]:
        """Return a command line of helm."""
        return [str(versions.program("helm")), "--kubeconfig", str(self.rome.kubeconfig), "-n", SYSTEM, *words]

    def install(self) -> list[str]:
        """Return the command line that installs the chart."""
        sets = [word for key, value in VALUES.items() for word in ("--set", f"{key}={value}")]
        return self.helm("install", "liqod", str(CHART), "--create-namespace", "--wait", "--timeout=5m", *sets)

    def ended_when(self, argv: Sequence[str], *there: str) -> None:
        """Run a program and kill it as soon as there is an object."""
        process = self.rome.spawn("hindered", argv)
        eventually(f"{' '.join(there)} is there", partial(self.rome.get, *there), pause=0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.stop(1.0)

    def refused(self, argv: Sequence[str], timeout: float = 400) -> str:
        """Run a program that fails, and return what it says."""
        with self.assertRaises(CommandFailed) as caught:
            self.rome.run(argv, timeout=timeout)
        return str(caught.exception)

    def tidy(self) -> None:
        """Remove what a step that failed has left: another one would find it in its way."""
        for argv in (self.helm("uninstall", "liqod", "--no-hooks"), self.liqodctl("down", "--in-cluster", "--yes")):
            with contextlib.suppress(CommandFailed):
                self.rome.run(argv, timeout=400)
        self.rome.kubectl("delete", "pod", "other", "--ignore-not-found", "--wait", timeout=60)
        self.rome.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found", "--timeout=120s", timeout=130)
        self.rome.kubectl("delete", "clusterrolebinding", "liqod-setup", "--ignore-not-found")

    # What there is

    def is_as_before(self) -> bool:
        """Have the cluster be without anything of liqod."""
        found = objects(self.rome)
        self.assertEqual((found - self._before, self._before - found), (set(), set()))
        return True

    def down(self) -> None:
        """Take back what `up` did; nothing is left."""
        self.rome.run(self.liqodctl("down", "--in-cluster", "--yes"), timeout=400)
        eventually("nothing is left", self.is_as_before, 60)

    def remove_release(self) -> None:
        """Remove what Helm installed, and the namespace, which it leaves; nothing else is left."""
        self.rome.run(self.helm("uninstall", "liqod", "--wait", "--timeout=4m"), timeout=400)
        self.rome.kubectl("delete", "namespace", SYSTEM, "--timeout=120s", timeout=130)
        eventually("nothing is left", self.is_as_before, 60)

    # The steps

    def test_01_port_of_a_program(self) -> None:
        """A program of the host has the port for peers: `up` waits and says so; when it is gone the next run works."""
        words = [sys.executable, "-m", "http.server", "5872", "--directory", str(self.rome.directory / "kubectl")]
        other = self.rome.host.spawn("other", words)
        try:
            said = self.refused(self.up(PATIENCE))
        finally:
            other.stop()
        self.assertIn("waiting for the pods to be ready", said)
        failure = json.loads(said[said.index("\n{") :])
        taken = "cannot listen on port 5872 for peering: address already in use"
        self.assertEqual(failure["message"].count(taken), 1, said)
        document = json.loads(self.rome.run(self.up(), timeout=400))
        # The daemon tries the port again by itself, and may have it by now.
        self.assertLessEqual({step["step"] for step in document["steps"] if step["state"] == "needed"}, {"ready"})
        self.down()

    def test_02_port_of_a_pod(self) -> None:
        """A pod has it as its own port of the host: the daemon is not scheduled, and `up` says why."""
        other = pod("other", ["sleep", "100000"])
        other["spec"]["containers"][0]["ports"] = [{"containerPort": 5872, "hostPort": 5872}]
        # One of a lower priority than the daemon's would be preempted.
        other["spec"]["priorityClassName"] = "system-node-critical"
        self.rome.apply(other)
        eventually("the other pod runs", self.other_runs)
        said = self.refused(self.up(PATIENCE // 3))
        self.assertIn("not scheduled", said)
        self.assertIn("free ports", said)
        self.rome.kubectl("delete", "pod", "other", "--wait", timeout=60)
        self.rome.run(self.up(), timeout=400)
        self.down()

    def other_runs(self) -> bool:
        """Tell whether the pod with the port runs."""
        return bool(self.rome.get("pod", "other")["status"].get("phase") == "Running")

    def test_03_up_is_killed(self) -> None:
        """`up` is killed among the records, and among the pods' objects: the next run goes on, `down` removes it."""
        for there in (("crd", "foreignclusters.discovery.liqo.io"), ("deployment", "liqod", "-n", SYSTEM)):
            self.ended_when(self.up(), *there)
            document: dict[str, Any] = json.loads(self.rome.run(self.up(), timeout=400))
            self.assertIn("needed", [step["state"] for step in document["steps"]])
            self.down()
            self.ended_when(self.up(), *there)
            self.down()

    def test_04_helm_is_killed(self) -> None:
        """Helm is killed while the job sets the cluster up, and while it waits for pods: the release counts as there;
        `helm uninstall` takes back what was done, and the next installation is whole.
        """
        for there in (("job", "liqod-setup-install", "-n", SYSTEM), ("deployment", "liqod", "-n", SYSTEM)):
            self.ended_when(self.install(), *there)
            self.assertIn("in use", self.refused(self.install()))
            self.remove_release()
            self.rome.run(self.install(), timeout=400)
            self.remove_release()


def objects(cluster: Cluster) -> set[str]:
    """Return what there is of the kinds that an installation makes, without what the cluster itself keeps."""
    found = cluster.get(f"{KINDS},{MORE},job,deployment,daemonset,service", "-A")["items"]
    names = {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in found}
    return {name for name in names if not name.startswith(("Lease kube-", "Secret kube-"))}
