"""Programs made with client-go run offloaded, against home's API server: an informer, leader election, kubectl."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.real.path import NAMESPACE, eventually, live_pods
from tests.real.programs.base import ProgramTests
from tests.real.programs.workloads import VIRTUAL, bare_pod, client, container, pod_spec, workload
from tests.testbed.process import CommandFailed

ACCOUNT, WATCHER, KUBECTL = "program", "watcher", "kubectl"
LEASE, INNER = "leadership", "inner"
ONE, TWO, HERE = "candidate-one", "candidate-two", "candidate-here"
SEEN = "/tmp/seen"


def rights() -> list[dict[str, Any]]:
    """Return the account of the programs, with rights in its namespace alone."""
    group = "rbac.authorization.k8s.io"
    meta = {"name": ACCOUNT, "namespace": NAMESPACE}
    every = ["get", "list", "watch", "create", "update", "patch", "delete"]
    rules = [
        {"apiGroups": [""], "resources": ["configmaps", "pods"], "verbs": every},
        {"apiGroups": ["apps"], "resources": ["deployments", "deployments/scale"], "verbs": every},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": every},
    ]
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
        },
    ]


def colour(name: str) -> dict[str, Any]:
    """Return a config map that is home's alone."""
    meta = {"name": "settings", "namespace": NAMESPACE, "annotations": {"liqo.io/skip-reflection": "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"colour": name}}


class ClientGoTests(ProgramTests):
    """Steps in the order of their numbers."""

    built = ("home-client", "kubectl")
    packages = ("bash", "coreutils")

    def program(self, name: str, *words: str, selector: dict[str, str] | None = None) -> dict[str, Any]:
        """Return a pod that runs a command of the client program with the account."""
        return bare_pod(name, pod_spec(client(*words), selector or VIRTUAL, serviceAccountName=ACCOUNT))

    def lines(self, pod: str) -> list[str]:
        """Return what a program has written down."""
        return self.run_in(pod, "sh", "-c", f"cat {SEEN} 2>/dev/null; true").splitlines()

    def shows(self, last: str) -> bool:
        """Tell whether the last value that the informer has shown is this one."""
        return self.lines(WATCHER)[-1] == last

    def holder(self) -> str:
        """Return who leads by the lease at home."""
        spec = self.here("lease", LEASE)["spec"]
        return str(spec.get("holderIdentity", ""))

    def leads(self, *names: str) -> bool:
        """Tell whether one of these leads, and says so itself."""
        holder = self.holder()
        return holder in names and self.lines(holder)[-1].startswith("leads ")

    def test_01_watch(self) -> None:
        """An informer at milan shows every change of an object at home, in order and once."""
        self.begin()
        self.home.apply(*rights(), colour("red"))
        eventually("the account", partial(self.home.get, "serviceaccount", ACCOUNT, "-n", NAMESPACE))
        self.home.apply(self.program(WATCHER, "watch", NAMESPACE, "settings", SEEN))
        self.at_milan(WATCHER)
        eventually("what there is", lambda: self.lines(WATCHER) == ["red"])
        wanted = ["red"]
        for number in range(20):
            self.home.apply(colour(f"c{number}"))
            wanted.append(f"c{number}")
            eventually("the change", lambda: self.lines(WATCHER) == wanted)

    def test_02_watch_through_failures(self) -> None:
        """The informer goes on after home's API server was away, and after either daemon was; nothing is missed."""
        before = len(self.lines(WATCHER))
        self.home.lose_control_plane()
        self.home.restore_control_plane(kubelet=True)
        self.home.apply(colour("after the restart"))
        eventually("the change", partial(self.shows, "after the restart"), 180)
        for daemon in (self.rome, self.milan):
            daemon.kill()
            self.home.apply(colour(f"without {daemon.name}"))
            # What runs in a pod is seen by home's daemon, which may be the one that is away.
            daemon.start()
            eventually("the change", partial(self.shows, f"without {daemon.name}"), 180)
        self.assertGreater(len(self.lines(WATCHER)), before)
        eventually("the tunnel", self.connected)

    def test_03_leader_election(self) -> None:
        """Of three candidates, two at milan and one at rome, one leads; when it goes another does."""
        candidates = {ONE: VIRTUAL, TWO: VIRTUAL, HERE: self.at_home}
        for name, selector in candidates.items():
            self.home.apply(self.program(name, "lead", NAMESPACE, LEASE, name, SEEN, selector=selector))
        for name in (ONE, TWO):
            self.at_milan(name)
        self.at_rome(HERE)
        left = list(candidates)
        while left:
            eventually("one leads", partial(self.leads, *left))
            first = self.holder()
            others = [name for name in left if name != first]
            self.assertFalse([name for name in others if self.leading(name)], "two lead at once")
            self.drop(f"pod/{first}")
            left.remove(first)

    def leading(self, name: str) -> bool:
        """Tell whether a candidate says of itself that it leads."""
        said = self.lines(name)
        return bool(said) and said[-1].startswith("leads ")

    def test_04_kubectl(self) -> None:
        """kubectl in a pod at milan makes, scales and deletes a Deployment at home, whose pods run at milan."""
        self.home.apply(bare_pod(KUBECTL, pod_spec(container("sleep 100000"), VIRTUAL, serviceAccountName=ACCOUNT)))
        self.at_milan(KUBECTL)
        text = json.dumps(workload("Deployment", INNER, pod_spec(container("sleep 100000"), VIRTUAL)))
        self.assertIn("created", self.run_in(KUBECTL, "kubectl", "apply", "-f", "-", input=text))
        self.at_milan(INNER)
        self.run_in(KUBECTL, "kubectl", "scale", f"deployment/{INNER}", "--replicas=3")
        pods = self.at_milan(INNER, 3)
        listed = self.run_in(KUBECTL, "kubectl", "get", "pods", "-l", f"app={INNER}", "-o", "name")
        self.assertEqual(set(listed.split()), {f"pod/{name}" for name in pods})
        self.run_in(KUBECTL, "kubectl", "delete", f"deployment/{INNER}", "--timeout=60s")
        eventually("its pods are gone", lambda: not live_pods(self.lender, INNER))

    def test_05_no_more_than_its_rights(self) -> None:
        """What the account may not do at home its pods at milan may not do either, and nothing at milan."""
        for words in (("secrets",), ("configmaps", "-n", "kube-system"), ("nodes",)):
            with self.assertRaises(CommandFailed) as failed:
                self.run_in(KUBECTL, "kubectl", "get", *words)
            self.assertIn("Forbidden", failed.exception.output.replace("forbidden", "Forbidden"))
        there = f"--server=https://{self.lender.address}:6443"
        with self.assertRaises(CommandFailed):
            self.run_in(KUBECTL, "kubectl", there, "--insecure-skip-tls-verify", "get", "configmaps", timeout=60)
