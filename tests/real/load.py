"""Load between two clusters: a connection through the tunnel with data flowing, and a ledger of all pods."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.real.path import eventually, live_pods
from tests.real.test_network import inside_pod
from tests.testbed.cluster import Cluster
from tests.testbed.process import Process

STEADY: Final = Path(__file__).with_name("steady.py")
PORT: Final = 7000
SURELY: Final = 100
"""Lines that have to cross before and after what is done under load: two seconds of them."""
Ledger = dict[str, tuple[str, list[tuple[str, int, str]]]]


def ledger(cluster: Cluster, apps: Sequence[str]) -> Ledger:
    """Return, for each pod of some applications, its UID, and of its containers name, restarts and start."""
    return {
        f"{cluster.name}/{name}": (
            pod["metadata"]["uid"],
            [
                (one["name"], one["restartCount"], one["state"].get("running", {}).get("startedAt", "does not run"))
                for one in pod["status"].get("containerStatuses", [])
            ],
        )
        for app in apps
        for name, pod in live_pods(cluster, app).items()
    }


class Load:
    """A connection from a pod at home to one at the lender, and what the pods of some applications were before."""

    def __init__(self, home: Cluster, lender: Cluster, apps: Sequence[str]) -> None:
        self._clusters = (home, lender)
        self._apps = apps
        self._file = home.directory / "steady.json"
        self._processes: list[Process] = []
        self._before: Ledger = {}

    def start(self, client: str, server: str) -> None:
        """Connect a pod of one application at home to one of another at the lender."""
        home, lender = self._clusters
        (caller,) = live_pods(home, client).values()
        (called,) = live_pods(lender, server).values()
        (here,) = live_pods(home, server).values()
        words = [*inside_pod(lender, called), sys.executable, str(STEADY), "serve", str(PORT)]
        self._processes.append(lender.host.spawn("steady-serve", words))
        words = [*inside_pod(home, caller), sys.executable, str(STEADY), "call"]
        self._file.unlink(missing_ok=True)
        self._before = self.pods()
        where = [here["status"]["podIP"], str(PORT), str(self._file)]
        self._processes.append(home.host.spawn("steady-call", [*words, *where]))
        self.flows()

    def pods(self) -> Ledger:
        """Return the ledger of both clusters."""
        return {name: what for cluster in self._clusters for name, what in ledger(cluster, self._apps).items()}

    def seen(self) -> dict[str, Any]:
        """Return what the calling end has seen until now; LookupError while it has written nothing."""
        try:
            return dict(json.loads(self._file.read_text()))
        except FileNotFoundError:
            raise LookupError(f"nothing was sent yet: {self._processes[-1].tail()}") from None

    def flows(self) -> None:
        """Wait until lines that are sent from now on have come back. Raises AssertionError where they do not."""
        before = eventually("the connection is there", self.seen)["sent"]
        eventually("lines come back", lambda: self._is_beyond(before + SURELY), 240)

    def assert_unharmed(self) -> str:
        """Have the connection be the same one, and no pod restarted; returns what was counted, as a sentence."""
        self.flows()
        seen = self.seen()
        assert not seen["lost"], seen
        assert self._processes[-1].running, self._processes[-1].tail()
        now = self.pods()
        assert now == self._before, f"{self._before} became {now}"
        return (
            f"{len(now)} pods with UIDs and starts as before; one connection, {seen['back']} lines forth and back, "
            f"longest pause {seen['longest_pause']} s; {seen['datagrams'] - seen['answered']} of {seen['datagrams']} "
            "datagrams without an answer"
        )

    def stop(self) -> None:
        """End the connection."""
        for process in reversed(self._processes):
            process.stop()
        self._processes.clear()

    def _is_beyond(self, count: int) -> bool:
        seen = self.seen()
        assert not seen["lost"], seen
        return bool(seen["back"] > count)
