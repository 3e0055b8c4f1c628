"""One cluster's discovery in a process of its own: prints what changes, one JSON line each.

Arguments: cluster ID, cluster name, seconds between looks at our own addresses.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from pathlib import Path

from twisted.internet import asyncioreactor

asyncioreactor.install()

import attrs  # noqa: E402
from twisted.internet import reactor  # noqa: E402
from twisted.internet.task import LoopingCall  # noqa: E402

from liqod.config import schema  # noqa: E402
from liqod.discovery import mdns  # noqa: E402
from liqod.discovery.service import Announcement, Candidate, Discovery  # noqa: E402

STEP = 0.01


def say(**fields: object) -> None:
    """Print a line with the time, which all processes of a machine share."""
    print(json.dumps({"at": time.monotonic(), **fields}), flush=True)


def main(cluster_id: str, name: str, interval: str) -> None:
    """Run until SIGTERM."""
    vars(mdns)["CHECK_INTERVAL"] = float(interval)
    lag = 0.0
    expected = 0.0

    def measure() -> None:
        nonlocal lag, expected
        now = time.monotonic()
        if expected:
            lag = max(lag, now - expected)
        expected = now + STEP

    # The time of the processor, not of the clock: what else the machine does is not our delay.
    worst = 0.0
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal worst
        began = time.thread_time()
        run(handle)
        worst = max(worst, time.thread_time() - began)

    setattr(asyncio.Handle, "_run", timed)  # noqa: B010

    def changed(candidates: tuple[Candidate, ...]) -> None:
        say(candidates=[attrs.asdict(candidate) for candidate in candidates])

    def report() -> None:
        # Not ru_maxrss: a child inherits its parent's peak over exec, which would hide the growth.
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        say(lag=lag, turn=worst, rss=pages * resource.getpagesize() // 1024)

    me = Announcement(cluster_id, name, "sha256:" + "0" * 64, 5872)
    discovery = Discovery(schema.DiscoverySettings(), me, reactor, changed)
    reactor.addSystemEventTrigger("before", "shutdown", discovery.stopService)
    reactor.callWhenRunning(say, started=True)
    LoopingCall(measure).start(STEP)
    LoopingCall(report).start(0.5)
    discovery.startService()
    reactor.run()
    say(stopped=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
