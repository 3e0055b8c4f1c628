"""Slices of two lenders as three virtual nodes of different size: one is removed under load, and the others stay."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tests.real.lenders import LENDERS, LendersTests
from tests.real.path import (
    NAMESPACE,
    condition,
    deployment,
    enabled_namespace,
    eventually,
    gone,
    live_pods,
    offloaded,
    peer_of,
)
from tests.testbed.cluster import Cluster

SYSTEM: Final = "liqo-system"
SLICE: Final = "resourceslices.sharing.liqo.io"
"""Kubernetes has a kind of the same name, for devices."""
TAINT: Final = "example.com/x"
LENDER_OF: Final = {"one": "milan", "two": "milan", "three": "paris"}
ANSWERS: Final = {
    "one": ("Granted", "", "100m"),
    "two": ("Reduced", "ClassLimit", "150m"),
    "three": ("Granted", "", "200m"),
}
"""Phase, reason and CPU of each slice."""
PODS: Final = 2
"""Pods on the node of each slice."""
SMALL: Final = 20
"""Millicores of such a pod."""
PATCH: Final[dict[str, Any]] = {
    "affinity": {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["three"]}]},
                }
            ]
        }
    }
}
"""What is particular to the pods of the third slice: nodes that they prefer at paris, of which there are none."""


class SliceTests(LendersTests):
    """Rome asks milan for two slices and paris for one. The tests are steps."""

    @classmethod
    def settings(cls, name: str) -> str:
        """Return what a cluster lends; milan has a class of small slices."""
        classes = ', small = {cpu = "150m"}' if name == "milan" else ""
        return f"\n[sharing]\npercentage = 80\nslice-classes = {{default = {{}}{classes}}}\n"

    def ask(self, *words: str) -> None:
        """Ask for a slice, or for another amount of it, as rome's administrator."""
        self.daemons["rome"].liqodctl("slice", "create", *words)

    def lender_of(self, name: str) -> Cluster:
        """Return the cluster that a slice is of."""
        return self.daemons[LENDER_OF[name]].cluster

    def answer(self, name: str) -> tuple[str, str, str]:
        """Return phase, reason and CPU of a slice."""
        status = self.rome.get(SLICE, name, "-n", SYSTEM).get("status", {})
        return status.get("phase", ""), status.get("reason", ""), status.get("resources", {}).get("cpu", "")

    def is_answered(self, name: str, *answer: str) -> bool:
        """Tell whether a slice has phase, reason and CPU."""
        self.assertEqual(self.answer(name), answer)
        return True

    def lent(self, lender: str) -> dict[str, str]:
        """Return the CPU of each slice of rome's that a lender has on record."""
        record = peer_of(self.daemons[lender].cluster, "rome")
        slices = (record["status"].get("lent") or {}).get("slices") or []
        return {one["name"]: one["resources"]["cpu"] for one in slices}

    def shows(self, name: str, cpu: str) -> bool:
        """Tell whether the node of a slice is Ready, with an amount."""
        node = self.rome.get("node", name)
        self.assertEqual((condition(node, "Ready"), node["status"].get("allocatable", {}).get("cpu")), ("True", cpu))
        return True

    def pods_of(self, name: str) -> list[dict[str, Any]]:
        """Return pods for the node of a slice."""
        made = [self.body(f"{name}-{number}", SMALL, node=name) for number in range(PODS)]
        for one in made:
            one["metadata"]["labels"] = {"app": name}
            one["spec"]["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
        return made

    def kept(self, *names: str) -> dict[str, list[tuple[str, str, int]]]:
        """Return the pods of slices, at home and at their lenders, with UIDs and restarts; and their nodes."""
        found: dict[str, list[tuple[str, str, int]]] = {}
        for name in names:
            node = self.rome.get("node", name)["metadata"]
            found[f"the node {name}"] = [(name, node["uid"], 0)]
            for cluster in (self.rome, self.lender_of(name)):
                found[f"{name} in {cluster.name}"] = sorted(map(_identity, live_pods(cluster, name).values()))
        return found

    def removed(self, name: str) -> None:
        """Wait until nothing is left of a slice: its node, its pods on both sides, and its record."""
        eventually(f"the node {name} is gone", partial(self.is_absent, self.rome, "node", name), 180)
        eventually("so are its pods", partial(gone, self.rome, self.lender_of(name), name))
        record = (SLICE, name, "-n", SYSTEM)
        eventually("and the record", partial(self.is_absent, self.rome, *record))
        self.assertNotIn(name, self.lent(LENDER_OF[name]))

    def test_01_peers(self) -> None:
        """Rome has a virtual node of each lender before it asks for anything."""
        self.peer_up()

    def test_02_three_slices(self) -> None:
        """Each is granted, or reduced to what its class has, is on record at its lender, and has a node of its size."""
        self.ask("milan", "--name", "one", "--amount", "cpu=100m", "--label", "pool=one")
        self.ask("milan", "--name", "two", "--class", "small", "--amount", "cpu=400m")
        # As a record, as git would have it.
        spec = {
            "providerClusterID": peer_of(self.rome, "paris")["metadata"]["name"],
            "resources": {"cpu": "200m"},
            "virtualNode": {"taints": [{"key": TAINT, "effect": "NoSchedule"}], "offloadingPatch": PATCH},
        }
        self.rome.apply(
            {
                "apiVersion": "sharing.liqo.io/v1alpha1",
                "kind": "ResourceSlice",
                "metadata": {"name": "three", "namespace": SYSTEM},
                "spec": spec,
            }
        )
        for name, answer in ANSWERS.items():
            eventually(f"{name} is answered", partial(self.is_answered, name, *answer))
            eventually(f"{name} has a node", partial(self.shows, name, answer[2]))
        self.assertEqual([self.lent(one) for one in LENDERS], [{"one": "100m", "two": "150m"}, {"three": "200m"}])
        self.assertEqual(self.rome.get("node", "one")["metadata"]["labels"]["pool"], "one")
        self.assertIn(TAINT, [one["key"] for one in self.rome.get("node", "three")["spec"]["taints"]])
        node = self.rome.get("virtualnode", "three", "-n", SYSTEM)
        self.assertEqual(node["spec"]["offloadingPatch"], PATCH)

    def test_03_pods_of_each(self) -> None:
        """Pods on the node of a slice run at its lender, with what the slice's patch says."""
        self.rome.apply(enabled_namespace(), *(pod for name in LENDER_OF for pod in self.pods_of(name)))
        for name in LENDER_OF:
            eventually(f"the pods of {name} run", partial(offloaded, self.rome, self.lender_of(name), name, PODS))
        wanted = PATCH["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        for pod in live_pods(self.lender_of("three"), "three").values():
            affinity = pod["spec"]["affinity"]["nodeAffinity"]
            self.assertEqual(affinity["preferredDuringSchedulingIgnoredDuringExecution"], wanted)

    def test_04_what_is_refused(self) -> None:
        """More than is offered gets no node; a change below what pods request takes nothing, a smaller one is made."""
        self.ask("milan", "--name", "huge", "--amount", "cpu=1000")
        eventually("it is too large", partial(self.is_answered, "huge", "Refused", "TooLarge", ""))
        self.assertTrue(self.is_absent(self.rome, "node", "huge"))
        self.daemons["rome"].liqodctl("slice", "remove", "huge")
        eventually("it is gone", partial(self.is_absent, self.rome, SLICE, "huge", "-n", SYSTEM))
        self.ask("milan", "--name", "one", "--amount", "cpu=30m")
        eventually("it keeps what it had", partial(self.is_answered, "one", "Refused", "InUse", "100m"))
        self.shows("one", "100m")
        self.ask("milan", "--name", "one", "--amount", "cpu=90m")
        eventually("it is smaller", partial(self.is_answered, "one", "Granted", "", "90m"))
        eventually("and so is its node", partial(self.shows, "one", "90m"))

    def test_05_one_is_removed_under_load(self) -> None:
        """Its pods and its node go, and milan has the amount back; pods and nodes of the others stay as they are.

        Meanwhile an application grows on each lender's own node.
        """
        kept = self.kept("one", "three")
        for lender in LENDERS:
            load = deployment(f"load-{lender}", 1)
            load["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": f"liqo-{lender}"}
            self.rome.apply(load)
        for lender in LENDERS:
            cluster = self.daemons[lender].cluster
            eventually(f"{lender} has load", partial(offloaded, self.rome, cluster, f"load-{lender}", 1))
        self.daemons["rome"].liqodctl("slice", "remove", "two")
        for lender in LENDERS:
            self.rome.kubectl("scale", "deployment", f"load-{lender}", "-n", NAMESPACE, "--replicas=4")
        self.removed("two")
        for lender in LENDERS:
            cluster = self.daemons[lender].cluster
            eventually(f"{lender} has more", partial(offloaded, self.rome, cluster, f"load-{lender}", 4))
        self.assertEqual(self.lent("milan"), {"one": "90m"})
        self.assertEqual(self.kept("one", "three"), kept)
        for name, cpu in (("one", "90m"), ("three", "200m")):
            self.is_answered(name, "Granted", "", cpu)
            self.shows(name, cpu)

    def test_06_the_daemon_is_killed_meanwhile(self) -> None:
        """The next one goes on with a removal: the record waits for it."""
        kept = self.kept("three")
        daemon = self.daemons["rome"]
        daemon.liqodctl("slice", "remove", "one")
        daemon.kill()
        daemon.start()
        self.removed("one")
        self.assertEqual((self.lent("milan"), self.lent("paris")), ({}, {"three": "200m"}))
        self.assertEqual(self.kept("three"), kept)


def _identity(pod: dict[str, Any]) -> tuple[str, str, int]:
    """Return name, UID and restarts of a pod."""
    restarts = sum(one["restartCount"] for one in pod["status"]["containerStatuses"])
    return pod["metadata"]["name"], pod["metadata"]["uid"], restarts
