"""A rolling update of twenty offloaded pods under load, from both clusters: no request fails."""

from __future__ import annotations

import time
from functools import partial

from tests.real.path import NAMESPACE, eventually
from tests.real.programs import traffic
from tests.real.programs.base import LONG, ProgramTests
from tests.real.programs.traffic import SEEN, WEB
from tests.real.programs.workloads import VIRTUAL

COUNT = 20
HERE, THERE = "visitor-here", "visitor-there"
SURGE = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 5}}


class RollingUpdateTests(ProgramTests):
    """Steps in the order of their numbers."""

    packages = ("bash", "coreutils")

    def counts(self, name: str) -> tuple[int, int, str]:
        """Return how many requests of a visitor were answered, how many failed, and why the first one did."""
        seen = self.seen(name, SEEN)
        return int(seen["answered"]), int(seen["failed"]), str(seen["first"])

    def test_01_twenty_pods(self) -> None:
        """Twenty pods run at milan behind one service, and a visitor in each cluster is answered by all of them."""
        self.begin()
        self.home.apply(traffic.web(COUNT, strategy=SURGE, minReadySeconds=2))
        address = self.serve(WEB, traffic.PORT)
        pods = self.at_milan(WEB, COUNT)
        url = f"http://{address}:{traffic.PORT}/"
        self.home.apply(traffic.load(HERE, url, self.at_home), traffic.load(THERE, url, VIRTUAL))
        self.at_rome(HERE)
        self.at_milan(THERE)

        def by_all(name: str) -> bool:
            return {text.split()[-1] for text in self.seen(name, SEEN)["by"]} >= set(pods)

        for name in (HERE, THERE):
            eventually(f"all answer {name}", partial(by_all, name), LONG)

    def test_02_update(self) -> None:
        """All twenty are replaced, five more at a time; none of thousands of requests fails."""
        before = set(self.uids(WEB))
        begin = {name: self.counts(name)[0] for name in (HERE, THERE)}
        started = time.monotonic()
        self.home.apply(traffic.web(COUNT, version="2", strategy=SURGE, minReadySeconds=2))
        words = ("rollout", "status", "-n", NAMESPACE, f"deployment/{WEB}", "--timeout=600s")
        self.home.kubectl(*words, timeout=620)
        pods = self.at_milan(WEB, COUNT)
        took = time.monotonic() - started
        self.assertFalse(before & set(pods))
        for name in (HERE, THERE):
            answered, failed, first = self.counts(name)
            print(f"\n{name}: {answered - begin[name]} requests in {took:.0f} s, {failed} failed {first}")
            self.assertEqual((failed, first), (0, ""), name)
            self.assertGreater(answered - begin[name], 500)

    def test_03_back(self) -> None:
        """The same with the daemon of each cluster killed on the way: no request fails either."""
        self.home.kubectl("rollout", "undo", "-n", NAMESPACE, f"deployment/{WEB}")
        for daemon in (self.rome, self.milan):
            time.sleep(10.0)
            daemon.kill()
            daemon.start()
        words = ("rollout", "status", "-n", NAMESPACE, f"deployment/{WEB}", "--timeout=600s")
        self.home.kubectl(*words, timeout=620)
        self.at_milan(WEB, COUNT)
        for name in (HERE, THERE):
            answered, failed, first = self.counts(name)
            self.assertEqual((failed, first), (0, ""), f"{name}: {answered} answered")
