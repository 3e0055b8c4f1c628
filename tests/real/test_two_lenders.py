"""Two lenders of one borrower, with the real scheduler: labels, selectors, weights, and lenders that lend no more."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Final

from liqod.model.objects import quantity
from tests.real.lenders import LENDERS, LendersTests
from tests.real.path import NAMESPACE, enabled_namespace, eventually, is_running, peer_of

LABELS: Final[dict[str, dict[str, str]]] = {
    "rome": {"region": "south", "provider": "private"},
    "milan": {"region": "north", "provider": "cloud"},
    "paris": {"region": "west", "provider": "cloud"},
}
PART: Final = 0.4
"""Of what the heavier lender offers, what a pod requests: two fit, the third does not."""
SMALL: Final = 5
"""Millicores of a pod that fits wherever there is any room."""
SELECTED: Final = "selected"
"""The namespace that goes to one of the two."""


class TwoLendersTests(LendersTests):
    """Rome borrows from milan and paris, which offer alike. The tests are steps."""

    @classmethod
    def settings(cls, name: str) -> str:
        """Return what a cluster lends, by which labels, and to namespaces of which names."""
        labels = ", ".join(f'{key} = "{value}"' for key, value in LABELS[name].items())
        return f'\nnamespace-names = ["{SELECTED}"]\n\n[sharing]\npercentage = 80\nlabels = {{{labels}}}\n'

    def make(self, *names: str) -> list[str]:
        """Make pods one after the other, each as large as a part; return the nodes that they got."""
        offered = quantity.parse(self.node("milan")["status"]["allocatable"]["cpu"])
        nodes = []
        for name in names:
            self.rome.apply(self.body(name, int(float(offered) * 1000 * PART)))
            nodes.append(self.place(name))
        return nodes

    def offload(self, namespace: str, spec: dict[str, Any]) -> None:
        """Say how a namespace is offloaded."""
        record = {
            "apiVersion": "offloading.liqo.io/v1beta1",
            "kind": "NamespaceOffloading",
            "metadata": {"name": "offloading", "namespace": namespace},
            "spec": spec,
        }
        self.rome.apply(enabled_namespace(namespace), record)

        def known() -> bool:
            found = self.rome.get("nsof", "offloading", "-n", namespace)
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        eventually("the record is known", known)

    def weigh(self, **weights: int) -> None:
        """Give lenders their weights, by the name of their cluster."""
        peers = [
            {"cluster": peer_of(self.rome, name)["metadata"]["name"], "weight": weight}
            for name, weight in weights.items()
        ]
        self.offload(NAMESPACE, {"spillover": {"mode": "HomeFirst", "peers": peers}})

    def lend(self, change: str) -> None:
        """Change milan's record of rome."""
        milan = self.daemons["milan"].cluster
        rome = peer_of(milan, "rome")["metadata"]["name"]
        milan.kubectl("patch", "fc", rome, "--type=merge", "-p", change)

    def test_01_peers(self) -> None:
        """Rome has a virtual node of each lender."""
        self.peer_up()

    def test_02_labels_of_clusters(self) -> None:
        """What a cluster's settings call it is on its virtual node, and no label of another one."""
        for name in LENDERS:
            labels = self.node(name)["metadata"]["labels"]
            self.assertEqual({key: labels.get(key) for key in LABELS[name]}, LABELS[name])

    def test_03_selected_by_labels(self) -> None:
        """A namespace whose selector fits one lender is made there, by its own name, and not at the other one."""
        wanted = [
            {"key": "region", "operator": "In", "values": ["north"]},
            {"key": "provider", "operator": "In", "values": ["cloud"]},
        ]
        spec = {
            "namespaceMappingStrategy": "EnforceSameName",
            "podOffloadingStrategy": "Remote",
            "clusterSelector": {"nodeSelectorTerms": [{"matchExpressions": wanted}]},
        }
        self.offload(SELECTED, spec)
        self.rome.apply(self.body("there", SMALL, namespace=SELECTED))
        self.assertEqual(self.place("there", SELECTED), "liqo-milan")
        namespace = self.daemons["milan"].cluster.get("namespace", SELECTED)
        rome = peer_of(self.daemons["milan"].cluster, "rome")["metadata"]["name"]
        self.assertEqual(namespace["metadata"]["labels"]["liqo.io/remote-cluster-id"], rome)
        self.assertTrue(self.is_absent(self.daemons["paris"].cluster, "namespace", SELECTED))

    def test_04_selected_no_more(self) -> None:
        """Without record and label the lender's namespace goes, with all that was in it."""
        self.rome.kubectl("label", "namespace", SELECTED, "liqo.io/enabled-")
        self.rome.kubectl("delete", "nsof", "offloading", "-n", SELECTED)
        self.rome.kubectl("delete", "pod", "there", "-n", SELECTED, "--ignore-not-found", "--timeout=120s", timeout=130)
        milan = self.daemons["milan"].cluster
        eventually("milan's namespace is gone", lambda: self.is_absent(milan, "namespace", SELECTED))

    def test_05_the_heavier_one_first(self) -> None:
        """Two pods go to milan, though paris is empty; the third, for which milan has no room, goes to paris.

        Rome's own node is cordoned, so that pods have to leave.
        """
        self.rome.kubectl("cordon", self.rome.node_name)
        self.weigh(milan=80, paris=20)
        self.assertEqual(self.make("one", "two", "three"), ["liqo-milan", "liqo-milan", "liqo-paris"])

    def test_06_other_weights(self) -> None:
        """With the weights exchanged new pods go to paris, though milan is empty, and back; what runs stays."""
        self.rome.kubectl("delete", "pod", "-n", NAMESPACE, "one", "two", "three", "--timeout=120s", timeout=130)
        self.weigh(milan=20, paris=80)
        self.assertEqual(self.make("four", "five"), ["liqo-paris", "liqo-paris"])
        self.weigh(milan=80, paris=20)
        self.assertEqual(self.make("six"), ["liqo-milan"])
        self.assertEqual([self.place(name) for name in ("four", "five")], ["liqo-paris", "liqo-paris"])

    def test_07_no_more_is_lent(self) -> None:
        """A lender that lends nothing more keeps the pods that it has; a new one waits until there is room again."""
        self.lend('{"spec": {"sharing": {"percentage": 0}}}')
        before = self.rome.get("pod", "six", "-n", NAMESPACE)["metadata"]["uid"]
        requested = next(
            one["resources"]["requests"]["cpu"]
            for one in self.rome.get("pod", "six", "-n", NAMESPACE)["spec"]["containers"]
        )

        def shrunk() -> bool:
            offered = quantity.parse(self.node("milan")["status"]["allocatable"]["cpu"])
            return bool(offered <= quantity.parse(requested))

        eventually("milan offers what rome has, and no more", shrunk)
        self.rome.apply(self.body("seven", SMALL, node="liqo-milan"))
        for _ in range(10):
            time.sleep(1.0)
            waiting = self.rome.get("pod", "seven", "-n", NAMESPACE)
            self.assertEqual((waiting["status"]["phase"], waiting["spec"].get("nodeName")), ("Pending", None))
        running = self.rome.get("pod", "six", "-n", NAMESPACE)
        self.assertTrue(is_running(running))
        self.assertEqual(running["metadata"]["uid"], before)
        self.lend('{"spec": {"sharing": {"percentage": null}}}')
        self.assertEqual(self.place("seven"), "liqo-milan")

    def test_08_taken_back(self) -> None:
        """A lender that lends to the peer no more is drained: its node goes, and what ran there; paris is untouched."""
        uids = [self.rome.get("pod", name, "-n", NAMESPACE)["metadata"]["uid"] for name in ("four", "five")]
        self.lend('{"spec": {"incomingPeering": "No"}}')
        eventually("milan's node is gone", lambda: self.is_absent(self.rome, "node", "liqo-milan"), 180)
        milan = self.daemons["milan"].cluster
        eventually("milan's pods are gone", lambda: not milan.get("shadowpods", "-A")["items"])
        self.assertEqual(
            [self.rome.get("pod", name, "-n", NAMESPACE)["metadata"]["uid"] for name in ("four", "five")], uids
        )
        self.lend('{"spec": {"incomingPeering": "Auto"}}')
        eventually("milan lends again", partial(self.ready, "milan"), 180)
