"""``liqodctl drain`` and ``kubectl drain`` of a virtual node keep to a PodDisruptionBudget."""

from __future__ import annotations

import threading
from typing import Any

from tests.real.path import NAMESPACE, condition, eventually, is_running, live_pods
from tests.real.programs import traffic
from tests.real.programs.base import LONG, ProgramTests
from tests.real.programs.traffic import WEB
from tests.testbed.process import CommandFailed

COUNT = 4
FEWEST = 3
PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {
            "weight": 100,
            "preference": {"matchExpressions": [{"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]}]},
        }
    ]
}


class Watching(threading.Thread):
    """Counts the pods that are Ready, again and again; ``fewest`` is the smallest number, ``failures`` why it ended."""

    def __init__(self, test: DisruptionBudgetTests) -> None:
        super().__init__(daemon=True)
        self._test = test
        self._end = threading.Event()
        self.fewest = COUNT

    def run(self) -> None:
        """Count until asked to end."""
        while not self._end.wait(0.2):
            try:
                self.fewest = min(self.fewest, self._test.ready())
            except (CommandFailed, LookupError, OSError):
                continue

    def end(self) -> int:
        """Count no more, and return the smallest number."""
        self._end.set()
        self.join()
        return self.fewest


class DisruptionBudgetTests(ProgramTests):
    """Steps in the order of their numbers; the pods would rather run at milan, and may run at rome."""

    packages = ("bash", "coreutils")

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return the web servers at home."""
        return live_pods(self.home, WEB)

    def ready(self) -> int:
        """Return how many of the pods at home, those that are about to end as well, are Ready."""
        found = self.home.get("pods", "-n", NAMESPACE, "-l", f"app={WEB}")["items"]
        return sum(is_running(one) and not one["metadata"].get("deletionTimestamp") for one in found)

    def at(self, node: str) -> int:
        """Return how many of the pods run on a node."""
        return sum(one["spec"].get("nodeName") == node and is_running(one) for one in self.pods().values())

    def budget(self, fewest: int) -> None:
        """Say how many pods have to be there, and wait until that counts."""
        spec = {"minAvailable": fewest, "selector": {"matchLabels": {"app": WEB}}}
        meta = {"name": WEB, "namespace": NAMESPACE}
        self.home.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})

        def counted() -> bool:
            status = self.here("pdb", WEB)["status"]
            return bool(status["desiredHealthy"] == fewest and status["currentHealthy"] == COUNT)

        eventually("the budget counts", counted)

    def test_01_pods(self) -> None:
        """Four pods run at milan."""
        self.begin()
        made = traffic.web(COUNT)
        spec = made["spec"]["template"]["spec"]
        del spec["nodeSelector"]
        spec["affinity"] = {"nodeAffinity": PREFERRED}
        self.home.kubectl("cordon", self.home.node_name)
        self.home.apply(made)
        self.at_milan(WEB, COUNT)
        self.home.kubectl("uncordon", self.home.node_name)

    def test_02_nothing_may_go(self) -> None:
        """Where the budget lets none go, the drain ends at its timeout with an error, and no pod was touched."""
        self.budget(COUNT)
        before = {name: one["metadata"]["uid"] for name, one in self.pods().items()}
        with self.assertRaises(CommandFailed) as failed:
            self.rome.liqodctl("drain", "milan", "--timeout", "10")
        self.assertIn(WEB, failed.exception.output)
        self.assertEqual({name: one["metadata"]["uid"] for name, one in self.pods().items()}, before)
        self.assertEqual(self.ready(), COUNT)
        self.assertTrue(self.home.get("node", "liqo-milan")["spec"].get("unschedulable"))

    def test_03_one_after_the_other(self) -> None:
        """Where one may be missing, never more is, and all of them end up at rome."""
        self.budget(FEWEST)
        watching = Watching(self)
        watching.start()
        try:
            self.rome.liqodctl("drain", "milan", "--timeout", "500", timeout=520)
            eventually("all run at rome", lambda: self.at(self.home.node_name) == COUNT, LONG)
        finally:
            fewest = watching.end()
        self.assertGreaterEqual(fewest, FEWEST)
        eventually("none is left at milan", lambda: live_pods(self.lender, WEB) == {}, LONG)

    def test_04_kubectl(self) -> None:
        """``kubectl drain`` of the virtual node does the same."""
        self.rome.liqodctl("uncordon", "milan")
        self.home.kubectl("cordon", self.home.node_name)
        self.home.kubectl("rollout", "restart", "-n", NAMESPACE, f"deployment/{WEB}")
        eventually("all run at milan", lambda: self.at("liqo-milan") == len(self.pods()) == COUNT, LONG)
        self.home.kubectl("uncordon", self.home.node_name)
        self.budget(FEWEST)
        watching = Watching(self)
        watching.start()
        try:
            self.home.kubectl("drain", "liqo-milan", "--ignore-daemonsets", "--timeout=500s", timeout=520)
            eventually("all run at rome", lambda: self.at(self.home.node_name) == COUNT, LONG)
        finally:
            fewest = watching.end()
        self.assertGreaterEqual(fewest, FEWEST)
        self.rome.liqodctl("uncordon", "milan")

    def test_05_the_budget_at_milan(self) -> None:
        """Budgets are home's: milan has none of it, and the pods' conditions say at home that they were Ready."""
        found = self.lender.get("pdb", "-A")["items"]
        self.assertEqual([one["metadata"]["name"] for one in found if one["metadata"]["name"] == WEB], [])
        self.assertTrue(all(condition(one, "Ready") == "True" for one in self.pods().values()))
