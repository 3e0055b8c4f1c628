"""Floods a real daemon, one way after the other: ``python -m tests.attack.floods [KIND...] [--seconds 20]``.

rome lends to milan, from whose host the floods come, and to turin, which goes on asking by the relay meanwhile. What
was seen of each flood is kept in ``.cache/floods/<commit>``, so that a run that was interrupted goes on where it was; a
kind that is named is flooded again. The table is ``benchmarks/results/floods.md``; the exit status is 0 where all was
well.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.figures.measure import spent
from benchmarks.figures.report import RESULTS
from liqod.model.names import remote_namespace
from liqod.model.records.name_service import object_name
from tests.attack.flood_figures import Flood, judge, lag, parse, table
from tests.nightly import state
from tests.real.daemons import Daemon
from tests.real.path import (
    NAMESPACE,
    deployment,
    enabled_namespace,
    eventually,
    node_ready,
    peer_of,
    trust_each_other,
)
from tests.real.test_bad_input import is_ready, page, refused
from tests.runner.execute import Outcome
from tests.runner.report import write_junit
from tests.runner.results import Result
from tests.runner.steps import CHECKOUT, Step
from tests.testbed import build, system
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed, Process
from tests.testbed.testbed import Testbed

TITLE: Final = "tests.attack.floods"
KEPT: Final = CHECKOUT / ".cache" / "floods"
TABLE: Final = RESULTS / "floods.md"
FLOODS: Final = (
    ("handshakes", "ordinary"),
    ("handshakes", "costly"),
    ("frames", "greeting"),
    ("frames", "deep"),
    ("offers", "turns"),
    ("reviews", "tolerations"),
    ("reviews", "requirements"),
    ("reviews", "text"),
    ("kubelet", "tokens"),
    ("kubelet", "silent"),
    ("relay", "own"),
    ("relay", "denied"),
    ("dns", "new"),
    ("dns", "deep"),
)
"""Kinds and shapes, as ``flooder`` and ``shapes`` have them."""
PORTS: Final[Mapping[str, int]] = {"reviews": 5873, "kubelet": 5875}
PEERING: Final = 5872
PAUSE: Final = 0.05
"""Seconds between two samples."""
SPARE: Final = 60.0
"""Seconds beside its time in which a program ends."""
CONFIGURATION: Final = '\n[peering]\napi = "relay"\n'
LENDERS: Final = f"{CONFIGURATION}\n[names]\nenabled = true\n"
APP: Final = "steady"


class Stage:
    """Three clusters with a daemon each, of which rome is flooded."""

    def __init__(self, testbed: Testbed) -> None:
        names = ("rome", "milan", "turin")
        self.daemons = {
            name: Daemon(testbed[number], name, extra=LENDERS if name == "rome" else CONFIGURATION)
            for number, name in enumerate(names, 1)
        }
        self.rome, self.milan, self.turin = (self.daemons[name] for name in names)

    def open(self) -> None:
        """Start the daemons and have milan and turin borrow from rome."""
        for daemon in self.daemons.values():
            daemon.start()
        for borrower in (self.milan, self.turin):
            trust_each_other(self.rome, borrower)
            eventually(f"{borrower.name} has a virtual node", partial(node_ready, borrower.cluster), 300)
            borrower.cluster.apply(enabled_namespace(), deployment(APP, 1))
            eventually(f"a pod of {borrower.name} runs", partial(self._runs, borrower), 300)
        try:
            eventually("rome answers for names", lambda: self.name_server()[1], 180)
        except AssertionError as error:
            # The other floods do not need it, and that of questions says that it was not measured.
            print(error, flush=True)

    def _runs(self, borrower: Daemon) -> bool:
        """Tell whether a borrower's pod runs at rome, where the other's pods have the same label."""
        space = self.space(borrower)
        pods = self.rome.cluster.get("pods", "-n", space, "-l", f"app={APP}")["items"]
        return any(one["status"].get("phase") == "Running" for one in pods)

    def close(self) -> None:
        """Stop the daemons."""
        for daemon in self.daemons.values():
            daemon.stop()

    def id_of(self, borrower: Daemon) -> str:
        """Return the ID of a borrower's cluster."""
        return str(peer_of(self.rome.cluster, borrower.name)["metadata"]["name"])

    def space(self, borrower: Daemon) -> str:
        """Return the namespace of a borrower at rome."""
        return remote_namespace(NAMESPACE, self.id_of(borrower))

    def name_server(self) -> tuple[str, int]:
        """Return where rome answers milan's questions; port 0 where it does not yet."""
        words = (object_name(1), "-n", f"liqo-tenant-{self.id_of(self.milan)}")
        piece = self.rome.cluster.get("endpointslice", *words)
        (endpoint,), (port,) = piece["endpoints"][:1], piece["ports"][:1]
        ready = endpoint["conditions"].get("ready")
        return str(endpoint["addresses"][0]), int(port["port"]) if ready else 0

    def identity(self, daemon: Daemon) -> str:
        """Return a file with a daemon's own key."""
        secret = daemon.cluster.get("secret", "liqod-identity", "-n", "liqo-system")["data"]
        file = daemon.directory / "identity.pem"
        file.write_bytes(b"".join(base64.b64decode(secret[part]) for part in ("tls.key", "tls.crt")))
        return str(file)

    def task(self, kind: str, shape: str, seconds: float) -> dict[str, Any]:
        """Return what ``flooder`` is to do."""
        host, port = self.rome.cluster.address, PORTS.get(kind, PEERING)
        if kind == "dns":
            host, port = self.name_server()
            assert port, "rome does not answer for names"
        paths = {
            "reviews": "/mutate/pod",
            "kubelet": "/pods",
            "relay": f"/api/v1/namespaces/{self.space(self.milan) if shape == 'own' else 'kube-system'}/pods",
        }
        return {
            "kind": kind,
            "shape": shape,
            "host": host,
            "port": port,
            "seconds": seconds,
            "path": paths.get(kind, ""),
            "certificate": self.identity(self.milan),
            "cluster_id": self.id_of(self.milan),
        }

    def flood(self, kind: str, shape: str, seconds: float) -> Flood:
        """Flood rome once, and return what was seen before and meanwhile."""
        eventually("rome is at rest", partial(is_ready, self.rome), 300)
        task = self.task(kind, shape, seconds)
        if kind == "offers":
            # The flood is milan's one session.
            self.milan.stop()
        try:
            before, rest = self._observed(seconds, [])
            counted, led, page_before = refused(self.rome), self._lease(), page(self.rome, "/metrics")
            flooder = _Program(self.milan.cluster, "flooder", task)
            meanwhile, cpu = self._observed(seconds, [flooder])
            now, page_after = refused(self.rome), page(self.rome, "/metrics")
        finally:
            if kind == "offers":
                self.milan.start()
        grown = {reason: count - counted.get(reason, 0.0) for reason, count in now.items()}
        asked = meanwhile["peer"]
        return Flood(
            kind=kind,
            shape=shape,
            items=sum(int(line["items"]) for line in flooder.lines()),
            seconds=seconds,
            cpu=cpu,
            rest=rest,
            turns=tuple(line["took"] for line in meanwhile["health"]),
            lag=lag(page_before, page_after),
            before=tuple(line["took"] for line in before["peer"]),
            during=tuple(line["took"] for line in asked),
            lost=sum(line["code"] != 200 for line in asked),
            ready=all(line["code"] == 200 for line in meanwhile["ready"]) and bool(meanwhile["ready"]),
            leading=self._lease() == led,
            refused={reason: count for reason, count in grown.items() if count},
        )

    def _observed(self, seconds: float, beside: Sequence[_Program]) -> tuple[dict[str, list[dict[str, Any]]], float]:
        """Sample for so long; return the samples by what was asked, and the CPU seconds of rome's daemon."""
        local = {"host": "127.0.0.1", "port": 5874, "pause": PAUSE, "seconds": seconds}
        peer = {
            "host": self.rome.cluster.address,
            "port": PEERING,
            "tls": True,
            "certificate": self.identity(self.turin),
            "path": f"/api/v1/namespaces/{self.space(self.turin)}/pods",
            "pause": PAUSE,
            "seconds": seconds,
        }
        programs = {
            "health": _Program(self.rome.cluster, "sampler", {**local, "path": "/healthz"}),
            "ready": _Program(self.rome.cluster, "sampler", {**local, "path": "/readyz", "pause": 0.5}),
            "peer": _Program(self.turin.cluster, "sampler", peer),
        }
        begin = spent(self.rome.pid).cpu
        for program in (*beside, *programs.values()):
            program.start()
        try:
            time.sleep(seconds)
            cpu = spent(self.rome.pid).cpu - begin
            for program in (*programs.values(), *beside):
                program.end(SPARE)
        finally:
            for program in (*programs.values(), *beside):
                program.stop()
        return {name: program.lines() for name, program in programs.items()}, cpu

    def _lease(self) -> tuple[str, int]:
        """Return who leads rome, and how often that has changed."""
        spec = self.rome.cluster.get("lease", "liqod", "-n", "liqo-system")["spec"]
        return str(spec.get("holderIdentity", "")), int(spec.get("leaseTransitions", 0))


class _Program:
    """One of the programs of this package, in a cluster's network namespace, that prints lines of JSON."""

    _count = 0

    def __init__(self, cluster: Cluster, module: str, task: Mapping[str, Any]) -> None:
        _Program._count += 1
        self._cluster = cluster
        self._name = f"{module}-{_Program._count}"
        self._module = module
        self._file = cluster.directory / f"{self._name}.json"
        self._file.write_text(json.dumps(task))
        self._process: Process | None = None

    def start(self) -> None:
        """Start it."""
        argv = ["env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", f"tests.attack.{self._module}", str(self._file)]
        self._process = self._cluster.spawn(self._name, argv)

    def end(self, patience: float) -> None:
        """Wait until it ends; AssertionError where it failed or did not."""
        assert self._process is not None
        code = self._process.wait(patience)
        assert code == 0, f"{self._name} ended with {code}: {self._process.tail()}"

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process is not None:
            self._process.stop(1.0)

    def lines(self) -> list[dict[str, Any]]:
        """Return what it printed; lines that are none of its own are left out."""
        file = self._cluster.directory / f"{self._name}.log"
        text = file.read_text(errors="replace") if file.exists() else ""
        return [dict(json.loads(line)) for line in text.splitlines() if line.startswith("{")]


def main(argv: Sequence[str]) -> int:
    """Run the floods that have no figures yet, write the table, and return 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m {TITLE}", description=__doc__)
    kinds = sorted({kind for kind, _ in FLOODS})
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(kinds))
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each of them [20]")
    parser.add_argument("--junit", type=Path, help="write the results to this file as JUnit XML")
    args = parser.parse_args(argv)
    if unknown := set(args.kinds) - set(kinds):
        parser.error(f"no flood is called {', '.join(sorted(unknown))}")
    # An end by SIGTERM is as orderly as one by Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = KEPT / state()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [(kind, shape) for kind, shape in FLOODS if kind in args.kinds or not args.kinds]
    left = [one for one in chosen if args.kinds or not _file(folder, *one).exists()]
    begin = time.monotonic()
    broken: dict[str, str] = {}
    if left:
        system.require()
        build.ensure()
        with Testbed(3, nodes=False, kwok=1, dns=True) as testbed:
            stage = Stage(testbed)
            try:
                stage.open()
                for kind, shape in left:
                    print(f"{kind} ({shape}), {args.seconds:.0f} s", flush=True)
                    try:
                        flood = stage.flood(kind, shape, args.seconds)
                    except (CommandFailed, AssertionError, LookupError, OSError, ValueError) as error:
                        broken[f"{kind} ({shape})"] = f"it was not measured: {error}"
                        continue
                    _file(folder, kind, shape).write_text(flood.text())
                    print(f"{flood.name}: {'; '.join(judge(flood)) or 'good'}", flush=True)
                if "Traceback" in stage.rome.log.read_text():
                    broken["the log of rome"] = "it has a traceback"
            finally:
                stage.close()
    floods = list(_kept(folder))
    head = f"Commit `{folder.name}`, {os.cpu_count()} processors, with all clusters and programs on them."
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(floods, head))
    print(TABLE.read_text(), flush=True)
    wrong = {one.name: "; ".join(judge(one)) for one in floods if (one.kind, one.shape) in chosen} | broken
    if args.junit:
        results = [Result(f"{TITLE}.{name}", "failed" if text else "passed", 0.0, text) for name, text in wrong.items()]
        write_junit(args.junit, [Outcome(Step(TITLE, 0.0), time.monotonic() - begin, "", results)])
    return 1 if any(wrong.values()) or len(wrong) < len(chosen) else 0


def _file(folder: Path, kind: str, shape: str) -> Path:
    return folder / f"{kind}-{shape}.json"


def _kept(folder: Path) -> Iterator[Flood]:
    for file in sorted(folder.glob("*.json")):
        try:
            yield parse(file.read_text())
        except (ValueError, TypeError, KeyError):
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
