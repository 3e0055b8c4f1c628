"""What a new user sees in the first ten minutes, on two real clusters and a terminal of 80 columns and 24 rows.

The hosts are Debians with systemd and the package, and the first commands are those of the README. The transcript is
docs/first-ten-minutes.md. With ``LIQOD_TRANSCRIPTS=1`` it is written; otherwise it has to be what is there already.
"""

from __future__ import annotations

import atexit
import hashlib
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from liqod.identity.certs import KeyPair, certify
from liqod.identity.store import to_secret
from liqod.model.ids import ClusterID
from liqod.model.records.rotation import IDENTITY_SECRET
from tests.environment import require
from tests.real.base import require_clusters
from tests.real.machines import Host
from tests.real.path import eventually, is_running, live_pods, node_ready, offloaded
from tests.real.readme import INSTALL, by_cluster, lines_of
from tests.real.terminal import on_terminal, plain
from tests.real.transcripts import Names, Step, page, settled
from tests.testbed import machine
from tests.testbed.image import BUSYBOX
from tests.testbed.testbed import Testbed

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "first-ten-minutes.md"
ROME: Final = "rome"
MILAN: Final = "milan"
IDS: Final = {ROME: "5e0d3c1a-8a6f-4c0e-9a67-2f1c5d7b9e01", MILAN: "b7a4f2d8-3c19-4e5b-8d02-6a9e1f0c4b35"}
CONFIGURATION: Final = """\
[cluster]
name = "{name}"
id = "{cluster_id}"

[leader]
identity = "{name}-1"

[network]
mode = "wireguard"

[sharing]
percentage = 100
limits = {{cpu = "1", memory = "1Gi"}}

[hosting]
image-pull-policy = "any"
"""
"""What is lent does not depend on the machine; the image is on the nodes, and no registry has it."""
SCRIPT: Final = "echo hello from $HOSTNAME; sleep 3600"
PODS: Final = 2
KUBECONFIG: Final = "KUBECONFIG=/etc/kubernetes/admin.conf"
NAMESPACE: Final = "shop"


def key_of(name: str) -> KeyPair:
    """Return the key that a cluster has in every run: the words that people compare are made of it."""
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"transcript {name}".encode()).digest())
    return certify(key, ClusterID(IDS[name]), datetime.now(UTC))


class User:
    """The administrator of one cluster, as root at a terminal of its host, which has the package."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.cluster = host.cluster

    def settle(self) -> None:
        """Have configuration, package and the cluster's key there before the first minute."""
        self.host.furnish()
        self.host.types(by_cluster(lines_of(INSTALL))[self.host.name][0])
        values = {"name": self.host.name, "cluster_id": IDS[self.host.name]}
        (self.host.debian.root / "etc/liqod/liqod.toml").write_text(CONFIGURATION.format(**values))
        meta = {"name": IDENTITY_SECRET, "namespace": "liqo-system"}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "liqo-system"}}
        self.cluster.apply(namespace, {**secret, "data": to_secret(key_of(self.host.name))})

    def types(self, line: str, *, answers: Sequence[tuple[str, str]] = (), timeout: float = 400.0) -> str:
        """Return what stays on the terminal of a line that is typed."""
        script = f"cd /root\nexport NO_COLOR=1 TERM=xterm LC_ALL=C.UTF-8 {KUBECONFIG}\n{line}"
        shown = on_terminal([*self.host.debian.entry(), "sh", "-c", script], timeout=timeout, answers=answers)
        assert shown.status == 0, f"{line}: {shown.status}: {shown.text}\n{self.host.journal()[-6000:]}"
        return plain(shown.text)


class TranscriptTests(SynchronousTestCase):
    """rome borrows from milan; each administrator acts on their own cluster."""

    _testbed: ClassVar[Testbed | None] = None
    users: ClassVar[dict[str, User]] = {}
    maxDiff = None

    def setUp(self) -> None:
        cls = TranscriptTests
        if cls._testbed is None:
            require(machine.missing())
            require_clusters()
            cls._testbed = Testbed(2, nodes=True, same_pod_cidr=True)
            atexit.register(cls._testbed.stop)
            cls._testbed.start()
            for number, name in enumerate((ROME, MILAN), 1):
                host = Host(name, cls._testbed[number])
                atexit.register(host.debian.stop)
                cls.users[name] = User(host)
                cls.users[name].settle()
        self.steps: list[Step] = []

    def show(self, name: str, line: str, text: str = "", *, answers: Sequence[tuple[str, str]] = ()) -> str:
        """Have a user type a line, and keep what it prints."""
        printed = self.users[name].types(line, answers=answers)
        self.steps.append(Step(name, line, settled(printed), text))
        return printed

    def until(self, what: str, done: Callable[[], Any]) -> None:
        """Wait as a user would who looks again."""
        eventually(what, done, 300)

    def test_ten_minutes(self) -> None:
        """From two bare clusters to pods that run in the other one and back; the page has it word for word."""
        self._set_up()
        for user in self.users.values():
            self.until("the virtual node is Ready", partial(node_ready, user.cluster))
        self.until("the tunnel is up", self._is_connected)
        self._offload()
        self._end()
        kept = [*IDS.values(), *(user.cluster.address for user in self.users.values())]
        made = page(DOCUMENT.read_text(), self.steps, Names(kept, {"/root": "~"}))
        if os.environ.get("LIQOD_TRANSCRIPTS"):
            DOCUMENT.write_text(made)
        self.assertEqual(made, DOCUMENT.read_text(), "LIQOD_TRANSCRIPTS=1 writes the page")

    def _set_up(self) -> None:
        lines = by_cluster(lines_of(INSTALL))
        yes = [("[y/N]", "y\n")]
        said = self.show(MILAN, lines[MILAN][-1], "## Set it up\n\nOn milan's host, first:", answers=yes)
        token = said.split()[-1]
        self.assertTrue(token.startswith("liqo1."), said)
        text = "On rome's host, with the token that was printed:"
        self.show(ROME, lines[ROME][-1].replace("TOKEN", token), text, answers=yes)

    def _offload(self) -> None:
        self.show(ROME, "liqodctl status", "## Borrow\n\nThe offer was accepted, and milan is a node:")
        self.show(ROME, "kubectl get nodes")
        self.show(ROME, f"kubectl create namespace {NAMESPACE}", "## Run pods there")
        self.show(ROME, f"liqodctl offload namespace {NAMESPACE} --placement Remote --wait")
        line = f"kubectl -n {NAMESPACE} create deployment web --image={BUSYBOX} --replicas={PODS} -- sh -c '{SCRIPT}'"
        self.show(ROME, line)
        self.until("the pods run", self._all_run)
        self.show(ROME, f"kubectl -n {NAMESPACE} get pods -o wide")
        name = min(live_pods(self.users[ROME].cluster, "web"))
        self.until("there is a log", lambda: "hello" in self.users[ROME].types(f"kubectl -n {NAMESPACE} logs {name}"))
        self.show(ROME, f"kubectl -n {NAMESPACE} logs {name}", "Logs come from the other cluster, as does a shell:")
        self.show(ROME, f"kubectl -n {NAMESPACE} exec {name} -- hostname")
        self.show(ROME, f"liqodctl explain {name} -n {NAMESPACE}", "Why is it where it is?")
        self.show(MILAN, "liqodctl status", "And milan's administrator? (PODS are those that milan runs at rome.)")
        self.show(MILAN, "kubectl get pods -A -l app=web")

    def _end(self) -> None:
        self.show(ROME, f"liqodctl unoffload namespace {NAMESPACE} --wait", "## Bring them home")
        self.until("nothing is at milan", lambda: not live_pods(self.users[MILAN].cluster, "web"))
        self.until("the pods run at home", self._all_at_home)
        self.show(ROME, f"kubectl -n {NAMESPACE} get pods -o wide")
        self.users[ROME].types(f"kubectl delete namespace {NAMESPACE} --timeout=120s", timeout=150.0)

    def _is_connected(self) -> bool:
        sides = [(self.users[name].cluster, other) for name, other in ((ROME, MILAN), (MILAN, ROME))]
        tunnels = [cluster.get("tunnelendpoint", IDS[other]).get("status", {}).get("phase") for cluster, other in sides]
        return tunnels == ["Connected", "Connected"]

    def _all_run(self) -> bool:
        rome, milan = (self.users[name].cluster for name in (ROME, MILAN))
        return offloaded(rome, milan, "web", PODS) is not None

    def _all_at_home(self) -> bool:
        """Return whether the pods run at home, and those that were away are no longer listed."""
        rome = self.users[ROME].cluster
        pods = rome.get("pods", "-n", NAMESPACE)["items"]
        return len(pods) == PODS and all(is_running(pod) for pod in pods) and len(live_pods(rome, "web")) == PODS
