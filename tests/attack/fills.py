"""Has one cluster fill another, one way after the other: ``python -m tests.attack.fills [WHAT...]``.

rome borrows from milan, on real nodes. As the borrower it writes what a tenant may write, with its own credential, and
its pods fill memory, disk and logs; as the lender milan writes statuses and events of rome's pods. What came of each is
kept in ``.cache/fills/<commit>``, so that a run that was interrupted goes on where it was; one that is named is tried
again. The table is ``benchmarks/results/fills.md``; the exit status is 0 where all was well.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import frozen

from benchmarks.figures.report import RESULTS
from liqod.model.names import HELD_WRITES_LABEL, ORIGIN_LABEL, remote_namespace, tenant_namespace
from tests.attack.fill_figures import MIB, Fill, judge, parse, table
from tests.nightly import state
from tests.real.daemons import Daemon
from tests.real.manifests import pod
from tests.real.path import (
    NAMESPACE,
    enabled_namespace,
    eventually,
    is_running,
    node_ready,
    peer_of,
    trust_each_other,
)
from tests.real.soak.sampling import reading
from tests.real.test_bad_input import is_ready
from tests.runner.execute import Outcome
from tests.runner.report import write_junit
from tests.runner.results import Result
from tests.runner.steps import CHECKOUT, Step
from tests.testbed import build, system
from tests.testbed.cluster import Cluster
from tests.testbed.process import CommandFailed
from tests.testbed.testbed import Testbed

TITLE: Final = "tests.attack.fills"
KEPT: Final = CHECKOUT / ".cache" / "fills"
TABLE: Final = RESULTS / "fills.md"
BOUND: Final = 32.0
"""MiB of records, and of config maps and secrets, that the lender grants."""
DISK: Final = 32.0
"""MiB of disk, and of memory, that a pod may use."""
LOGS: Final = 512.0
"""MiB of logs that half a CPU may write before a kubelet looks: every ten seconds, and what it knows may be as old.

It rotates logs, and evicts a pod that is over its limit of ephemeral storage, of which they are a part.
"""
STATUSES: Final = 64.0
"""MiB a minute that all statuses of a lender may be written with (docs/limits.md)."""
EVENTS: Final = 16.0
"""MiB of events in a minute that a namespace is not to take more than."""
WRITES: Final = 256.0
"""MiB that a borrower may write at once (docs/limits.md)."""
MINUTE: Final = 60.0
LENDERS: Final = f"""
tenant-contents = "{BOUND:.0f}Mi"
tenant-records = {{bytes = "{BOUND:.0f}Mi"}}

[sharing]
percentage = 100
"""
VIRTUAL: Final = {"liqo.io/type": "virtual-node"}
TARGET: Final = "target"
"""The pod of rome's whose status milan writes."""
_STORED: Final = re.compile(r"^apiserver_storage_size_bytes\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


@frozen
class Stored:
    """Objects that a borrower writes: their kind, the path of their group and version, the plural, bytes of each."""

    kind: str
    base: str
    plural: str
    size: int


STORED: Final = (
    Stored("secrets", "/api/v1", "secrets", 700_000),
    Stored("configmaps", "/api/v1", "configmaps", 700_000),
    Stored("shadowpods", "/apis/offloading.liqo.io/v1beta1", "shadowpods", 200_000),
    Stored("slices", "/apis/offloading.liqo.io/v1beta1", "shadowendpointslices", 100_000),
)


class Sides:
    """rome that borrows, and milan that lends."""

    def __init__(self, testbed: Testbed) -> None:
        self.rome = Daemon(testbed[1], "rome")
        self.milan = Daemon(testbed[2], "milan", extra=LENDERS)
        self.home, self.lender = self.rome.cluster, self.milan.cluster

    def open(self) -> None:
        """Start the daemons, and have a pod of rome's run at milan."""
        for daemon in (self.rome, self.milan):
            daemon.start()
        trust_each_other(self.rome, self.milan)
        eventually("the virtual node is Ready", lambda: node_ready(self.home), 300)
        self.home.apply(enabled_namespace())
        self.make(TARGET, "trap 'exit 0' TERM; while :; do sleep 1; done")
        eventually("a pod runs", lambda: is_running(self.here(TARGET)), 300)

    def close(self) -> None:
        """Stop the daemons."""
        for daemon in (self.rome, self.milan):
            daemon.stop()

    @property
    def rome_id(self) -> str:
        """The ID of the borrower."""
        return str(peer_of(self.lender, "rome")["metadata"]["name"])

    @property
    def space(self) -> str:
        """The namespace of rome's pods at milan."""
        return remote_namespace(NAMESPACE, self.rome_id)

    def make(self, name: str, script: str, **limits: str) -> None:
        """Make a pod for the virtual node, with limits for its container."""
        body = pod(name, ["sh", "-c", script], namespace=NAMESPACE, nodeSelector=VIRTUAL)
        body["spec"]["containers"][0]["resources"] = {
            "requests": {"cpu": "10m", "memory": "16Mi"},
            "limits": {key.replace("_", "-"): value for key, value in limits.items()},
        }
        self.home.apply(body)

    def here(self, name: str) -> dict[str, Any]:
        """Return a pod at home."""
        return dict(self.home.get("pod", name, "-n", NAMESPACE))

    def drop(self, name: str) -> None:
        """Delete a pod at home."""
        self.home.kubectl("delete", "pod", name, "-n", NAMESPACE, "--timeout=120s", timeout=130)

    def is_well(self) -> bool:
        """Have both daemons ready, and a new pod of rome's run at milan and go."""
        for daemon in (self.rome, self.milan):
            eventually(f"{daemon.name} is ready", partial(is_ready, daemon), 120)
        self.make("after", "trap 'exit 0' TERM; while :; do sleep 1; done")
        try:
            eventually("a new pod runs", lambda: is_running(self.here("after")), 120)
        except AssertionError:
            return False
        finally:
            self.drop("after")
        return True

    # Attempts

    def stored(self, what: Stored) -> Fill:
        """Write objects with the borrower's own credential until they are refused; then they are deleted."""
        given = self._credential()
        path = f"{what.base}/namespaces/{self.space}/{what.plural}"
        # Four times what is granted, if nothing stops it.
        most = int(4 * BOUND * MIB / what.size)
        task = {**given, "path": path, "most": most}
        more = {"kind": what.kind, "size": what.size, "labels": {ORIGIN_LABEL: self.rome_id}, "pause": 0.02}
        with Growth(self.milan) as growth:
            done = filled(self.home, {**task, **more, "seconds": 300.0})
        self._clear(what)
        return Fill(
            who="a borrower",
            what=what.plural,
            count=done["made"],
            kept=done["sent"] / MIB,
            bound=BOUND,
            stopped=done["stopped"],
            said=done["message"],
            taken=growth.stored,
            memory=growth.memory,
            seconds=growth.seconds,
            well=self.is_well(),
        )

    def rewrites(self) -> Fill:
        """Write another version of one secret with the borrower's own credential until that is refused."""
        size = 700_000
        labels = {ORIGIN_LABEL: self.rome_id}
        self.lender.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "again", "namespace": self.space, "labels": labels},
            }
        )
        path = f"/api/v1/namespaces/{self.space}/secrets/again"
        task = {**self._credential(), "path": path, "most": int(2 * WRITES * MIB / size)}
        more = {"kind": "rewrites", "size": size, "labels": labels, "pause": 0.0}
        with Growth(self.milan) as growth:
            done = filled(self.home, {**task, **more, "seconds": 300.0})
        self.lender.kubectl("delete", "secret", "again", "-n", self.space)
        eventually("it may write again", self._may_write, 700)
        return Fill(
            who="a borrower",
            what="rewrites",
            count=done["made"],
            kept=done["sent"] / MIB,
            bound=WRITES,
            stopped=done["stopped"],
            said=done["message"],
            taken=growth.stored,
            memory=growth.memory,
            seconds=growth.seconds,
            well=self.is_well(),
        )

    def _may_write(self) -> bool:
        return HELD_WRITES_LABEL not in self.lender.get("namespace", self.space)["metadata"]["labels"]

    def _credential(self) -> dict[str, Any]:
        """Return where the lender's API server is, and the borrower's token."""
        secret = self.home.get("secret", "liqo-credential", "-n", tenant_namespace(self._milan_id()))["data"]
        given = {key: base64.b64decode(value).decode() for key, value in secret.items()}
        url = urlsplit(given["api-url"])
        return {"host": url.hostname, "port": url.port or 443, "token": given["token"]}

    def _clear(self, what: Stored) -> None:
        names = [one["metadata"]["name"] for one in self.lender.get(what.plural, "-n", self.space)["items"]]
        if mine := [one for one in names if one.startswith("fill-")]:
            self.lender.kubectl("delete", what.plural, "-n", self.space, *mine, "--ignore-not-found", timeout=300)

    def _milan_id(self) -> str:
        return str(peer_of(self.home, "milan")["metadata"]["name"])

    def memory(self) -> Fill:
        """Have a pod take all memory that there is."""
        with Growth(self.milan) as growth:
            self.make("eats", "tail /dev/zero", memory=f"{DISK:.0f}Mi")
            said = eventually("its container was ended", lambda: _ended(self.here("eats")), 180)
        self.drop("eats")
        return self._of_pod("memory", DISK, said, growth)

    def disk(self) -> Fill:
        """Have a pod write files without end."""
        script = "i=0; while :; do dd if=/dev/zero of=/tmp/f$i bs=1M count=1 2>/dev/null; i=$((i+1)); sleep 1; done"
        return self._until_evicted("disk", "runtime", script, {})

    def logs(self) -> Fill:
        """Have a pod say what it can."""
        return self._until_evicted("logs", "pod-logs", f"while :; do echo {'x' * 1000}; done", {"cpu": "500m"})

    def _until_evicted(self, what: str, folder: str, script: str, limits: dict[str, str]) -> Fill:
        """Have a pod take more of the node's disk than its limit, until it is evicted."""
        largest = before = self._size(folder)

        def evicted() -> str:
            nonlocal largest
            largest = max(largest, self._size(folder))
            status = self.here(what)["status"]
            return f"{status.get('reason')}: {status.get('message')}" if status.get("phase") == "Failed" else ""

        with Growth(self.milan) as growth:
            self.make(what, script, ephemeral_storage=f"{DISK:.0f}Mi", **limits)
            said = eventually("it was evicted", evicted, 300, 1.0)
        self.drop(what)
        return self._of_pod(what, largest - before, said, growth)

    def _of_pod(self, what: str, kept: float, said: str, growth: Growth) -> Fill:
        return Fill(
            who="a borrower",
            what=what,
            count=1,
            kept=kept,
            bound=LOGS if what == "logs" else DISK,
            stopped=bool(said),
            said=said,
            # Its database has nothing to do with it: what it took is on the node.
            taken=kept,
            memory=growth.memory,
            seconds=growth.seconds,
            well=self.is_well(),
        )

    def _size(self, folder: str) -> float:
        """Return the MiB in a folder of the lender's node; files may go while they are counted."""
        said = self.lender.host.run(["sh", "-c", f"du -sk {self.lender.directory / folder} 2>/dev/null || true"])
        return int(said.split()[0]) / 1024 if said.split() else 0.0

    def statuses(self) -> Fill:
        """As the lender, write another large status of a pod of rome's all the time."""
        path = f"/api/v1/namespaces/{self.space}/pods/{TARGET}/status"
        return self._by_lender("statuses", {"kind": "status", "path": path, "labels": {}, "size": 100_000}, STATUSES)

    def events(self) -> Fill:
        """As the lender, write events about a pod of rome's all the time."""
        uid = self.lender.get("pod", TARGET, "-n", self.space)["metadata"]["uid"]
        about = {"name": TARGET, "namespace": self.space, "uid": uid}
        path = f"/api/v1/namespaces/{self.space}/events"
        return self._by_lender("events", {"kind": "events", "path": path, "labels": about, "size": 1000}, EVENTS)

    def _by_lender(self, what: str, more: dict[str, Any], bound: float) -> Fill:
        task = {"host": self.lender.address, "port": 6443, "certificate": _administrator(self.lender)}
        with Growth(self.rome) as growth:
            done = filled(self.lender, {**task, **more, "most": 100_000, "seconds": MINUTE, "pause": 0.02})
        return Fill(
            who="a lender",
            what=what,
            count=done["made"],
            # What it wrote is its own; what counts is what home's database took of it.
            kept=0.0,
            bound=bound,
            stopped=False,
            said=done["message"],
            taken=growth.stored,
            memory=growth.memory,
            seconds=growth.seconds,
            well=self.is_well(),
            paced=True,
        )

    def attempts(self) -> dict[str, Callable[[], Fill]]:
        """Return all attempts by their names."""
        others = (self.rewrites, self.memory, self.disk, self.logs, self.statuses, self.events)
        stored = {one.kind: partial(self.stored, one) for one in STORED}
        return {**stored, **{one.__name__: one for one in others}}


NAMES: Final = (*(one.kind for one in STORED), "rewrites", "memory", "disk", "logs", "statuses", "events")


class Growth:
    """What a cluster's database and its daemon grow by while a block runs, in MiB, and the seconds that it takes."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self.stored = self.memory = self.seconds = 0.0

    def __enter__(self) -> Growth:
        self._before = self._now()
        self._begin = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self.seconds = time.monotonic() - self._begin
        if error[0] is None:
            self.stored, self.memory = (now - old for now, old in zip(self._now(), self._before, strict=True))

    def _now(self) -> tuple[float, float]:
        found = _STORED.search(self._daemon.cluster.kubectl("get", "--raw=/metrics"))
        if found is None:
            raise LookupError("the API server does not say how large its database is")
        return float(found[1]) / MIB, reading(self._daemon).resident / 1024


def filled(cluster: Cluster, task: dict[str, Any]) -> dict[str, Any]:
    """Run ``filler`` on a cluster's host and return what it says."""
    file = cluster.directory / "filler.json"
    file.write_text(json.dumps(task))
    argv = ["env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-m", "tests.attack.filler", str(file)]
    done: dict[str, Any] = json.loads(cluster.run(argv, timeout=task["seconds"] + 120))
    return done


def _ended(body: dict[str, Any]) -> str:
    """Return why the container of a pod ended last, or nothing."""
    for one in body["status"].get("containerStatuses") or ():
        for state_of in (one.get("state") or {}, one.get("lastState") or {}):
            if ended := state_of.get("terminated"):
                return f"{ended.get('reason')}, {ended.get('exitCode')}"
    return ""


def _administrator(cluster: Cluster) -> str:
    """Return a file with the key of a cluster's administrator."""
    user = json.loads(cluster.kubeconfig.read_text())["users"][0]["user"]
    file = cluster.directory / "administrator.pem"
    parts = (user["client-key-data"], user["client-certificate-data"])
    file.write_bytes(b"".join(base64.b64decode(one) for one in parts))
    return str(file)


def main(argv: Sequence[str]) -> int:
    """Make the attempts that have no figures yet, write the table, and return 1 where something is wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m {TITLE}", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="WHAT", help=", ".join(NAMES))
    parser.add_argument("--junit", type=Path, help="write the results to this file as JUnit XML")
    args = parser.parse_args(argv)
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"nothing is called {', '.join(sorted(unknown))}")
    # An end by SIGTERM is as orderly as one by Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = KEPT / state()
    folder.mkdir(parents=True, exist_ok=True)
    chosen = args.names or list(NAMES)
    begin = time.monotonic()
    wrong = attempt([one for one in chosen if args.names or not (folder / f"{one}.json").exists()], folder)
    fills = dict(_kept(folder))
    head = f"Commit `{folder.name}`, {os.cpu_count()} processors; the lender grants {BOUND:.0f} MiB of each kind."
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(fills.values(), head))
    print(TABLE.read_text(), flush=True)
    wrong = {name: "; ".join(judge(one)) for name, one in fills.items() if name in chosen} | wrong
    if args.junit:
        results = [Result(f"{TITLE}.{name}", "failed" if text else "passed", 0.0, text) for name, text in wrong.items()]
        write_junit(args.junit, [Outcome(Step(TITLE, 0.0), time.monotonic() - begin, "", results)])
    return 1 if any(wrong.values()) or len(wrong) < len(chosen) else 0


def attempt(names: Sequence[str], folder: Path) -> dict[str, str]:
    """Make attempts on two new clusters and write what came of each; return why some could not be made."""
    broken: dict[str, str] = {}
    if not names:
        return broken
    system.require()
    build.ensure()
    with Testbed(2, nodes=True) as testbed:
        sides = Sides(testbed)
        try:
            sides.open()
            attempts = sides.attempts()
            for name in names:
                try:
                    found = attempts[name]()
                except (CommandFailed, AssertionError, LookupError, OSError, ValueError) as error:
                    broken[name] = f"it could not be tried: {error}"
                    print(f"{name}: {broken[name]}", flush=True)
                    continue
                (folder / f"{name}.json").write_text(found.text())
                print(f"{name}: {'; '.join(judge(found)) or 'good'}", flush=True)
        finally:
            sides.close()
    return broken


def _kept(folder: Path) -> Iterator[tuple[str, Fill]]:
    for file in sorted(folder.glob("*.json")):
        try:
            yield file.stem, parse(file.read_text())
        except (ValueError, TypeError):
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
