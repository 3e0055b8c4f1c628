"""The README's way by Helm, word for word: from two bare clusters to a pod of the one that runs in the other.

On the usual Kubernetes and on the oldest. Seconds are printed and kept in ``.cache/chart/figures.txt``.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

from liqod.webhook.placement import TOLERATION
from tests.real import readme
from tests.real.chart.base import MILAN, REGISTRY, ROME, ChartCase, eventually, keep_figure, stopwatch
from tests.real.manifests import pod
from tests.real.path import is_running, node_ready, virtual_node
from tests.testbed import versions

SHOP: Final = "shop"
APP: Final = "web"


class UsualTests(ChartCase):
    """On the usual Kubernetes."""

    def lines(self) -> tuple[str, str, str]:
        """Return the README's lines: install, make a token, use it."""
        install, token, peer = readme.joined(readme.lines_of(readme.BY_HELM))
        self.assertTrue(install.startswith("helm install liqod packaging/chart "), install)
        self.assertTrue(token.endswith(f"# {MILAN}"), token)
        self.assertIn(f"# {ROME}", peer)
        self.assertIn(f"clusterName={MILAN}", install)
        return install.replace("REGISTRY", REGISTRY), token, peer

    def at_peer(self) -> list[dict[str, Any]]:
        """Return the pods that rome has on its virtual node and that run."""
        name = virtual_node(self.rome)["metadata"]["name"]
        found = self.rome.get("pods", "-n", SHOP, "-l", f"app={APP}")["items"]
        return [one for one in found if one["spec"].get("nodeName") == name and is_running(one)]

    def test_01_first_pod(self) -> None:
        """The README's lines, of which its placeholders alone are filled in, end in a pod that runs at milan."""
        install, make, use = self.lines()
        seconds = stopwatch()
        self.types(self.milan, install)
        token = self.types(self.milan, make).splitlines()[-1]
        self.types(self.rome, install.replace(f"clusterName={MILAN}", f"clusterName={ROME}"))
        self.types(self.rome, use.replace("TOKEN", token))
        peered = seconds()
        look, nodes, *others = readme.lines_of(readme.BORROW)
        eventually("the virtual node", lambda: node_ready(self.rome))
        self.assertIn(MILAN, self.types(self.rome, look))
        self.assertIn("liqo-milan", self.types(self.rome, nodes))
        lent = seconds()
        for line in others:
            self.types(self.rome, line)
        eventually("a pod runs at milan", self.at_peer)
        text = f"{seconds():.0f} s from the first command to a pod that runs ({peered:.0f} peered, {lent:.0f} node)"
        keep_figure(f"helm, Kubernetes {self.rome.version}", text)

    def test_02_what_let_it_in(self) -> None:
        """On the oldest Kubernetes no policy of the API server lets pods in, and the webhook does, at its Service."""
        (hook, *_) = self.rome.get("mutatingwebhookconfiguration", "liqod")["webhooks"]
        self.assertEqual(hook["clientConfig"]["service"]["name"], "liqod-webhook")
        self.assertNotIn("url", hook["clientConfig"])
        has_policies = "mutatingadmissionpolicies" in self.rome.kubectl("api-resources", "-o", "name")
        self.assertEqual(has_policies, versions.minor(self.rome.version) >= (1, 36))
        # What the API server answers without storing it has passed the webhook, and nothing that comes afterwards.
        asked = json.dumps(pod("asked", ["sleep", "1"], namespace=SHOP))
        made = json.loads(self.rome.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", input=asked))
        for one in (made, *self.at_peer()):
            self.assertIn(TOLERATION, one["spec"]["tolerations"])

    def test_03_it_is_at_milan(self) -> None:
        """The pod that rome shows is one that milan's kubelet runs."""
        self.addCleanup(self.close)
        shown = {one["metadata"]["name"] for one in self.at_peer()}
        run = {one["metadata"]["name"] for one in self.milan.get("pods", "-A", "-l", f"app={APP}")["items"]}
        self.assertLessEqual(shown, run)
        self.assertTrue(shown)


class OldestTests(UsualTests):
    """On the oldest that is supported."""

    release: ClassVar[str] = "1.30"
