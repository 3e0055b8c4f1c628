"""A virtual node that holds many pods: idle cost, memory, and how long a restart takes until all of it works again.

    python -m benchmarks hold [--pods 10000] [--rest 60]

Two real control planes with raised request rates, made-up (kwok) nodes at the lender, everything on this machine. Full
operation after a restart means: the daemon is ready and a pod created after it began runs at the lender. Made-up nodes
run pods that have no token yet; so when the tokens of all of them were there is measured as well. Needs root.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from benchmarks.figures.measure import api_requests, table
from benchmarks.offloading.offload import Reading, deployment, peer, precompile, read, settle
from tests.real.daemons import Daemon
from tests.real.path import eventually
from tests.testbed import build, system
from tests.testbed.testbed import Testbed

PER_NODE = 2500
"""Pods for each made-up node; they have room for as many as anybody asks for, but their lists grow."""


def raise_pods(testbed: Testbed, pods: int, timeout: float) -> tuple[float, float]:
    """Offload a Deployment of so many pods; returns the seconds until all are Ready, and until all have their token."""
    home = testbed[1]
    before = secrets_made(testbed)
    begin = time.monotonic()
    home.apply(deployment("many", pods, {"liqo.io/type": "virtual-node"}))
    wanted = f"--for=jsonpath={{.status.readyReplicas}}={pods}"
    home.kubectl("wait", "-n", "bench", "deployment/many", wanted, f"--timeout={timeout:.0f}s", timeout=timeout + 20)
    all_ready = time.monotonic() - begin
    eventually("all tokens are there", lambda: secrets_made(testbed) - before >= pods, timeout, 2.0)
    return all_ready, time.monotonic() - begin


def secrets_made(testbed: Testbed) -> int:
    """Return how many secrets were made at the lender so far; each pod's token is in one."""
    return api_requests(testbed[2].kubectl("get", "--raw=/metrics"))["POST", "secrets"]


def rest(testbed: Testbed, seconds: float) -> tuple[dict[str, float], Reading]:
    """Let everything rest; returns the daemons' CPU in percent of a core, and the reading at the end."""
    settle(testbed)
    before = read(testbed)
    time.sleep(seconds)
    after = read(testbed)
    percent = {
        name: 100 * (value - before.cpu.get(name, 0.0)) / seconds
        for name, value in after.cpu.items()
        if name.endswith("/liqod")
    }
    return percent, after


def restart(testbed: Testbed, daemon: Daemon, number: int) -> dict[str, float]:
    """Kill a daemon and start it again; returns the seconds until it is ready and until a new pod runs remotely."""
    home = testbed[1]
    said = daemon.log.read_text().count("liqod is ready")
    daemon.kill()
    begin = time.monotonic()
    daemon.start()
    name = f"after-{number}"
    home.apply(deployment(name, 1, {"liqo.io/type": "virtual-node"}))
    eventually("the daemon is ready", lambda: daemon.log.read_text().count("liqod is ready") > said, 120, 0.02)
    ready = time.monotonic() - begin
    home.kubectl("wait", "-n", "bench", f"deployment/{name}", "--for=condition=Available", "--timeout=120s")
    return {"ready": ready, "a new pod runs": time.monotonic() - begin}


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=10000)
    parser.add_argument("--rest", type=float, default=60.0)
    args = parser.parse_args()
    system.require()
    build.ensure()
    precompile()
    rows: list[tuple[str, Any]] = []
    with Testbed(2, nodes=False, kwok=max(1, args.pods // PER_NODE), qps=500) as testbed:
        daemons, _ = peer(testbed)
        labels = {"liqo.io/enabled": "true"}
        testbed[1].apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bench", "labels": labels}})
        try:
            ready, tokens = raise_pods(testbed, args.pods, 2400)
            rows += [(f"{args.pods} pods all Ready, s", ready), ("all of their tokens are there, s", tokens)]
            percent, after = rest(testbed, args.rest)
            rows += [(f"idle CPU of {name}, % of a core", value) for name, value in percent.items()]
            rows += [(f"peak memory of {name}, MiB", v) for name, v in after.peak.items() if name.endswith("/liqod")]
            for number, daemon in enumerate(daemons):
                for what, seconds in restart(testbed, daemon, number).items():
                    rows.append((f"{daemon.name} restarted: {what}, s", seconds))
            uids = testbed[1].kubectl("get", "pods", "-n", "bench", "-l", "app=many", "-o", "json", timeout=300)
            restarts = sum(
                status["restartCount"]
                for pod in json.loads(uids)["items"]
                for status in pod["status"].get("containerStatuses", ())
            )
            rows.append(("restarts of containers seen at home", restarts))
        finally:
            for daemon in daemons:
                daemon.stop()
    print(table(["what", "figure"], rows))


if __name__ == "__main__":
    main()
