"""From the end of a dead leader's lease to what its successor does: the first write, and a pod that was made meanwhile.

    python -m benchmarks takeover [--pods 10000] [--repeat 3] [--cold] [--sandbox] [--json FILE]

Two real control planes with raised request rates and made-up (kwok) nodes at the lender; two daemons of the borrower on
one host. The one that leads is killed (``kill -9``), a Deployment of one pod is created, and what the API servers noted
(audit log) says what the successor did and when. The lease ends its duration after the last renewal. Then the killed
one is started again and stands by, until the next repetition. ``--cold``: no daemon watches while it stands by, to
compare. Needs root, but with ``--sandbox``: then the API servers are sandbox ones in processes, where 10,000 pods fit
on any machine and are there in minutes; they answer in another time than real ones: the two are not compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.figures.measure import spent, table
from benchmarks.figures.report import save_figures
from benchmarks.offloading.hold import PER_NODE, raise_pods
from benchmarks.offloading.offload import FAST, NAMESPACE, deployment, peer, precompile, settle
from benchmarks.scale.points import replaced
from liqod.agent.account.names import LEASE
from liqod.model.names import SYSTEM_NAMESPACE
from tests.real.daemons import Daemon
from tests.real.path import eventually
from tests.testbed import build, system
from tests.testbed.cluster import Cluster
from tests.testbed.testbed import Testbed

PAGE: Final = Path(__file__).parents[2] / "docs/scale.md"
COLD: Final = "warm-standby = false\n"
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
REVIEWS: Final = ("selfsubject", "tokenreviews", "subjectaccessreviews")
"""What is created and stored nowhere."""
UNSTORED: Final = frozenset({"token"})
"""Subresources of which that is true as well: a process asks for a token of its own account now and again."""
PEAK: Final = "peak memory of the standby, MiB"
AT_REST: Final = "CPU of the standby at rest, % of a core"
WARM: Final = 20.0
"""Seconds for which a standby is left alone before the leader dies."""


def moment(text: str) -> float:
    """Return a date of Kubernetes as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def user(event: Mapping[str, Any]) -> str:
    """Return who asked, or in whose name."""
    return str((event.get("impersonatedUser") or event["user"]).get("username", ""))


def is_write(event: Mapping[str, Any]) -> bool:
    """Return whether a request changes what is stored, the daemon's own Leases apart.

    These are the one of who leads, and the one by which each process says that it runs: both are renewed whatever the
    daemon does. They are in its namespace; those of virtual nodes are not.
    """
    about = event.get("objectRef") or {}
    resource = about.get("resource", "")
    if event["verb"] not in WRITES or resource.startswith(REVIEWS) or about.get("subresource") in UNSTORED:
        return False
    return (resource, about.get("namespace")) != ("leases", SYSTEM_NAMESPACE)


def is_list(event: Mapping[str, Any]) -> bool:
    """Return whether a request is a list, streamed or not."""
    return event["verb"] == "list" or "sendInitialEvents=true" in event["requestURI"]


def first(events: Iterable[Mapping[str, Any]], holds: Callable[[Mapping[str, Any]], bool]) -> float:
    """Return when the first request of a kind arrived; LookupError without one. They are noted as they are answered."""
    times = [_arrived(event) for event in events if holds(event)]
    if not times:
        raise LookupError("there is no such request")
    return min(times)


def lease_of(home: Cluster) -> dict[str, Any]:
    """Return the spec of the lease."""
    return dict(home.get("lease", LEASE, "-n", SYSTEM_NAMESPACE)["spec"])


def take_over(testbed: Testbed, leader: Daemon, successor: Daemon, number: int) -> dict[str, float]:
    """Kill the leader; return the seconds from the end of its lease to each thing that its successor did."""
    home, lender = testbed[1], testbed[2]
    memory = spent(successor.pid)
    begins = [cluster.audit_end for cluster in (home, lender)]
    leader.kill()
    died = time.time()
    last = lease_of(home)
    ended = moment(last["renewTime"]) + last["leaseDurationSeconds"]
    name = f"after-{number}"
    home.apply(deployment(name, 1, {"liqo.io/type": "virtual-node"}))
    identity = f"{home.name}-{successor.identity}"
    eventually("the successor leads", lambda: lease_of(home)["holderIdentity"] == identity, 60, 0.1)
    acquired = moment(lease_of(home)["acquireTime"])
    home.kubectl("wait", "-n", "bench", f"deployment/{name}", "--for=condition=Available", "--timeout=120s")
    runs = time.time()
    time.sleep(5.0)
    at_home, there = (
        [event for event in cluster.audited(begin) if moment(event["requestReceivedTimestamp"]) > died]
        for cluster, begin in zip((home, lender), begins, strict=True)
    )
    ours = [event for event in at_home if user(event) == "system:serviceaccount:liqo-system:liqod"]
    borrowed = [event for event in there if user(event).endswith(":borrower")]
    found = figures(ours, borrowed, acquired=acquired, ended=ended)
    return {**found, "lease ends -> the new pod runs, s": runs - ended, PEAK: memory.peak_mib}


def figures(
    ours: Sequence[Mapping[str, Any]], borrowed: Sequence[Mapping[str, Any]], *, acquired: float, ended: float
) -> dict[str, float]:
    """Return the seconds from the end of a lease to what its next holder did, by its requests at home and at lenders.

    ``acquired`` is when it took the lease; LookupError where it did nothing.
    """
    lists = [event for event in (*ours, *borrowed) if is_list(event) and acquired <= _arrived(event)]
    made = ("create", "shadowpods")
    return {
        "lease ends -> it leads, s": acquired - ended,
        "lease ends -> its first write at home, s": first(ours, is_write) - ended,
        "lease ends -> its first ShadowPod, s": first(borrowed, lambda event: _about(event) == made) - ended,
        "lists after that": float(len(lists)),
        "lists of pods, ShadowPods and secrets": float(
            sum(_about(event)[1] in ("pods", "shadowpods", "secrets") for event in lists)
        ),
    }


def _arrived(event: Mapping[str, Any]) -> float:
    return moment(event["requestReceivedTimestamp"])


def _about(event: Mapping[str, Any]) -> tuple[str, str]:
    return event["verb"], (event.get("objectRef") or {}).get("resource", "")


def stand_by(daemon: Daemon) -> float:
    """Start a daemon beside one that leads, and leave it alone for a while; returns its CPU then, in percent."""
    said = len(daemon.log.read_text()) if daemon.log.exists() else 0
    daemon.start()
    eventually("the second daemon stands by", lambda: "standby: " in daemon.log.read_text()[said:], 60, 0.1)
    time.sleep(WARM / 2)
    before = spent(daemon.pid).cpu
    time.sleep(WARM / 2)
    return 100 * (spent(daemon.pid).cpu - before) / (WARM / 2)


def on_real_clusters(pods: int, repeat: int, *, cold: bool) -> dict[str, list[float]]:
    """Return the values of each figure, on real control planes."""
    system.require()
    build.ensure()
    precompile()
    found: dict[str, list[float]] = {}
    section = COLD if cold else ""
    with Testbed(2, nodes=False, kwok=max(1, pods // PER_NODE), qps=500, audit=True) as testbed:
        daemons, _ = peer(testbed, leader=section)
        home = testbed[1]
        pair = [daemons[0], Daemon(home, "rome", identity="two", extra=FAST, leader=section)]
        daemons.append(pair[1])
        home.apply(NAMESPACE)
        try:
            raise_pods(testbed, pods, 2400)
            settle(testbed)
            found.setdefault(AT_REST, []).append(stand_by(pair[1]))
            for number in range(repeat):
                leader, successor = pair
                noted(found, number, take_over(testbed, leader, successor, number))
                settle(testbed)
                stand_by(leader)
                pair.reverse()
        finally:
            for daemon in daemons:
                daemon.stop()
    return found


def noted(found: dict[str, list[float]], number: int, values: Mapping[str, float]) -> None:
    """Add the values of one repetition, and print them."""
    for what, value in values.items():
        found.setdefault(what, []).append(value)
        print(f"{number + 1}: {what}: {value:.2f}", flush=True)


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="standbys watch nothing")
    parser.add_argument("--sandbox", action="store_true", help="on sandbox servers, without root")
    parser.add_argument("--write", action="store_true", help="put the table of --sandbox into docs/scale.md")
    parser.add_argument("--json", type=Path, help="where the figures go (benchmarks/results/)")
    args = parser.parse_args()
    if args.sandbox:
        # It has the functions above in use.
        from benchmarks.scale import succession

        found = succession.measured(args.pods, args.repeat, cold=args.cold)
    else:
        found = on_real_clusters(args.pods, args.repeat, cold=args.cold)
    rows = [(what, statistics.median(values), min(values), max(values)) for what, values in found.items()]
    servers = "sandbox" if args.sandbox else "real"
    title = f"{args.pods} pods, {'cold' if args.cold else 'warm'} standby, {servers} servers"
    text = table([title, "median", "least", "most"], rows)
    print(text)
    about = {"pods": args.pods, "cold": args.cold, "servers": servers}
    print("figures:", save_figures("takeover", found, args.json, **about))
    if args.write and args.sandbox:
        PAGE.write_text(replaced(PAGE.read_text(), "takeover", text))


if __name__ == "__main__":
    main()
