"""How many messages of the peer protocol are written and read in a second of CPU, on one core.

    python -m benchmarks codec [--seconds 1]

For each kind of message both ways are worked for so many seconds of this process's CPU, whatever else the machine does:
from an event to the bytes of its frame's payload, and back with every check of its fields. Needs no root.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from benchmarks.figures.measure import table
from liqod.model.records.offer import Offer
from liqod.wire.codec import decode, encode
from liqod.wire.events import Advertise, Event, Ping, Verdict
from liqod.wire.framing import FrameLimits


def rates(seconds: float) -> list[tuple[str, int, int, int]]:
    """Return for each kind of message: its name, its bytes, how many are written in a second of CPU, how many read."""
    offer = Offer(
        resources={"cpu": "12", "memory": "48Gi", "pods": "110", "nvidia.com/gpu": "2"},
        labels={"topology.kubernetes.io/region": "eu-south"},
        prices={"cpu": "0.05"},
        storage_classes=["fast", "slow"],
        ingress_classes=["nginx"],
        kubernetes_version="v1.36.1",
    )
    events: Sequence[Event] = (Ping(7), Verdict(1, 2, "Accepted", "Accepted"), Advertise(1, 2, 1800, offer))
    limits, found = FrameLimits(), []
    for event in events:
        payload = encode(event, limits)
        done = []
        for work in (lambda e=event: encode(e, limits), lambda p=payload: decode(p, limits)):
            count, end = 0, time.process_time() + seconds
            while time.process_time() < end:
                for _ in range(100):
                    work()
                count += 100
            done.append(round(count / seconds))
        found.append((type(event).__name__, len(payload), done[0], done[1]))
    return found


def codec(seconds: float = 1.0) -> str:
    """Return the table of docs/performance.md."""
    return table(("message", "bytes", "written/s", "read/s"), rates(seconds))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds of CPU for each figure")
    print(codec(parser.parse_args().seconds))


if __name__ == "__main__":
    main()
