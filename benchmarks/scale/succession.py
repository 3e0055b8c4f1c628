"""A takeover on sandbox servers: two real daemons of one borrower, one of which is killed, and a lender's process.

What they did is read from what the API servers noted (``benchmarks.scale.noted``), by the functions of the benchmark on
real clusters.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from benchmarks.figures.measure import spent
from benchmarks.offloading import takeover
from benchmarks.offloading.latency import Caller
from benchmarks.offloading.offload import deployment, precompile
from benchmarks.peering import hub
from benchmarks.scale import kinds
from benchmarks.scale.lender_names import name_of
from benchmarks.scale.noted import events
from benchmarks.scale.stage import SANDBOX, Stage, lending, page_of
from liqod.agent.account.names import LEASE
from tests.testbed.process import Process

LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/liqo-system/leases"
IDENTITIES: Final = ("one", "two")
SETTLE: Final = 30.0
"""Seconds after which what a burst of pods has left is done."""


@define
class Pair:
    """The two daemons of the borrower, by their identities, on the API server of a kubeconfig."""

    directory: Path
    kubeconfig: Path
    cold: bool
    running: dict[str, Process] = field(factory=dict)
    _ports: dict[str, int] = field(factory=dict)

    def start(self, identity: str) -> Process:
        """Start a daemon; both listen at the same port for peers once they lead, each at its own for its pages."""
        port = self._ports.setdefault(identity, hub.PORTS["metrics"] if identity == IDENTITIES[0] else free_port())
        text = SANDBOX.format(
            kubeconfig=self.kubeconfig,
            identity=identity,
            leader=takeover.COLD if self.cold else "",
            peering=hub.PORTS["peering"],
            metrics=port,
        )
        self.running[identity] = hub.started(self.directory, text, identity)
        return self.running[identity]

    def stand_by(self, identity: str) -> float:
        """Start a daemon beside one that leads and leave it alone; returns its CPU then, in percent of a core."""
        log = self.directory / f"{identity}.log"
        said = len(log.read_text(errors="replace")) if log.exists() else 0
        daemon = self.start(identity)
        hub.until("it stands by", lambda: "standby: " in log.read_text(errors="replace")[said:], pause=0.1)
        time.sleep(takeover.WARM / 2)
        before = spent(daemon.pid).cpu
        time.sleep(takeover.WARM / 2)
        return 100 * (spent(daemon.pid).cpu - before) / (takeover.WARM / 2)

    def kill(self, identity: str) -> None:
        """End a daemon as a crash would."""
        daemon = self.running.pop(identity)
        os.kill(daemon.pid, signal.SIGKILL)
        daemon.stop(0.1)

    def stop(self) -> None:
        """End both."""
        for daemon in self.running.values():
            daemon.stop(5.0)


def free_port() -> int:
    """Return a port of loopback that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def lease(api: Caller) -> dict[str, Any]:
    """Return the spec of the lease."""
    spec: dict[str, Any] = json.loads(api.get(f"{LEASES}/{LEASE}"))["spec"]
    return spec


def take_over(stage: Stage, pair: Pair, identities: tuple[str, str], number: int) -> dict[str, float]:
    """Kill the first of two; return the seconds from the end of its lease to what the second one did."""
    leader, successor = identities
    files = [pair.directory / name for name in ("home.noted", "lender.noted")]
    begins = [file.stat().st_size for file in files]
    memory = spent(pair.running[successor].pid)
    pair.kill(leader)
    died = time.time()
    api = Caller(stage.home)
    last = lease(api)
    ended = takeover.moment(last["renewTime"]) + last["leaseDurationSeconds"]
    name = f"after-{number}"
    path = f"/apis/apps/v1/namespaces/{kinds.SPACE}/deployments"
    api.post(path, deployment(name, 1, {"liqo.io/type": "virtual-node"}))
    hub.until("the successor leads", lambda: lease(api)["holderIdentity"] == successor, pause=0.05)
    acquired = takeover.moment(lease(api)["acquireTime"])

    def runs() -> bool:
        status = json.loads(api.get(f"{path}/{name}")).get("status") or {}
        return bool(status.get("readyReplicas") == 1)

    hub.until("the new pod runs", runs, pause=0.05)
    ran = time.time()
    time.sleep(5.0)
    at_home, there = (
        [
            one
            for one in events(file, begin)
            if takeover.moment(one["requestReceivedTimestamp"]) > died and takeover.user(one).startswith("liqod")
        ]
        for file, begin in zip(files, begins, strict=True)
    )
    found = takeover.figures(at_home, there, acquired=acquired, ended=ended)
    return {**found, "lease ends -> the new pod runs, s": ran - ended, takeover.PEAK: memory.peak_mib}


def measured(pods: int, repeat: int, *, cold: bool) -> dict[str, list[float]]:
    """Return the values of each figure."""
    precompile()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="liqod-takeover-") as place, contextlib.ExitStack() as stack:
        directory = Path(place)
        hub.free_ports()
        home = stack.enter_context(hub.api_server(directory, str(directory / "home.noted")))
        pair = Pair(directory, home, cold)
        stack.callback(pair.stop)
        first = pair.start(IDENTITIES[0])
        hub.until("the first daemon is ready", lambda: not first.running or hub.ready())
        lender = stack.enter_context(lending(1, directory, directory / "lender.noted"))
        api = Caller(home)
        hub.until("the lender is Ready", lambda: hub.ready_peers(api) >= 1, pause=0.2)
        stage = Stage(
            place="sandbox",
            home=home,
            lenders=[(name_of(1), directory / name_of(1))],
            borrower_pid=first.pid,
            lender_pids=[lender.pid],
            pages=[partial(page_of, hub.PORTS["metrics"])],
        )
        kinds.namespace(stage)
        print(f"{pods} pods are Ready after {kinds.pods(stage, pods):.0f} s", flush=True)
        time.sleep(SETTLE)
        found[takeover.AT_REST] = [pair.stand_by(IDENTITIES[1])]
        for number in range(repeat):
            turn = IDENTITIES if number % 2 == 0 else (IDENTITIES[1], IDENTITIES[0])
            takeover.noted(found, number, take_over(stage, pair, turn, number))
            time.sleep(SETTLE)
            pair.stand_by(turn[0])
    return found
