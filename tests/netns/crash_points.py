"""Inside of a host: changes its network as the fabric would, and is killed at random points of that.

Arguments: how many times, and a seed. Each time a child process plans and applies, or removes, and gets SIGKILL after a
random part of the time that this takes; then either another one completes the work and settles, or removal alone must
leave what was before. Says what happened as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from liqod.fabric.kernel import Output, apply, observe
from liqod.fabric.key import generate
from liqod.fabric.model import INWARD, Desired, End, Link, Overlay, Pair
from liqod.fabric.overlay import VNI
from liqod.fabric.plan import plan, removal
from liqod.model.ids import ClusterID
from tests.netns.hosts import DUMP, network

T = TypeVar("T")
DEVICE = "liqod"


class PlainKernel:
    """This host's kernel, without a reactor."""

    async def run(self, argv: Sequence[str], stdin: str = "") -> Output:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        return Output(done.returncode, done.stdout, done.stderr)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("it waited")


def wanted() -> Desired:
    """Return three peers, IPv4 and IPv6, closed, and an overlay."""
    key = generate()
    links = tuple(
        Link(
            peer=ClusterID(f"peer-{n}"),
            public_key=generate().public,
            endpoint=f"10.98.0.{100 + n}:5871",
            remote=(network(f"10.{n}.0.0/16"), network(f"fd00:{n}::/48"), network(f"10.64.{16 * n}.0/20")),
            local=(Pair(network("10.201.0.0/16"), network("10.71.0.0/16")),),
            gateway=Pair(network("10.70.0.1/32"), network("10.74.0.1/32")),
            mtu=1380,
            pods=frozenset({"10.201.0.5"}),
        )
        for n in (1, 2, 3)
    )
    ends = (End("10.98.0.50", (network("10.201.1.0/24"), network("10.98.0.50/32"))),)
    return Desired(
        device=DEVICE,
        create=("setsid", "--fork", "wireguard-go", DEVICE),
        listen_port=5871,
        probe_port=5872,
        public_key=key.public,
        private_key=key.private,
        mtu=1420,
        addresses=(network("10.70.0.1/32"),),
        links=links,
        overlay=Overlay("liqodx", VNI, 5876, "10.98.0.1", 1450, ends, INWARD, DEVICE),
    )


async def converge(desired: Desired) -> int:
    """Do what the daemon does in one turn; returns the number of steps."""
    kernel = PlainKernel()
    steps = plan(desired, await observe(kernel, DEVICE), time.time())
    await apply(kernel, steps)
    return len(steps)


async def remove() -> None:
    """Do what uninstalling does."""
    kernel = PlainKernel()
    await apply(kernel, removal(DEVICE, await observe(kernel, DEVICE)))


def dump() -> str:
    """Return all of this host's network state."""
    return "\n".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in DUMP)


def killed(work: Coroutine[Any, Any, Any], after: float) -> None:
    """Run work in a child and kill that after so many seconds; what it had started comes to its own end."""
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            finish(work)
        finally:
            os._exit(0)
    work.close()
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _orphans():
        time.sleep(0.02)


def _orphans() -> bool:
    """Tell whether programs still run that the dead child had started; a running tunnel is none of them."""
    pids = subprocess.run(["ip", "netns", "pids", sys.argv[3]], capture_output=True, text=True, check=True).stdout
    for pid in pids.split():
        try:
            with open(f"/proc/{pid}/comm") as file:
                name = file.read().strip()
        except OSError:
            continue
        if name in ("ip", "wg", "nft", "bridge", "sysctl", "setsid"):
            return True
        if name == "wireguard-go" and not os.path.exists(f"/run/wireguard/{DEVICE}.sock"):
            return True
    return False


def main(count: str, seed: str, _: str) -> None:
    """Crash so many times."""
    chance = random.Random(int(seed))
    desired = wanted()
    before = dump()
    started = time.monotonic()
    finish(converge(desired))
    whole = time.monotonic() - started
    settled = finish(converge(desired))
    full = dump()
    started = time.monotonic()
    finish(remove())
    removing = time.monotonic() - started
    bad: list[str] = []
    if dump() != before:
        bad.append("removal without any crash")
    for number in range(int(count)):
        after = chance.random() * whole
        if number % 3 == 2:
            # Killed while removing.
            finish(converge(desired))
            after = chance.random() * removing
            killed(remove(), after)
        else:
            killed(converge(desired), after)
        if number % 2:
            finish(converge(desired))
            if finish(converge(desired)):
                bad.append(f"{number}: not settled after a crash at {after:.3f} s")
        finish(remove())
        if (now := dump()) != before:
            bad.append(
                f"{number}: left after a crash at {after:.3f} s: {set(now.splitlines()) ^ set(before.splitlines())}"
            )
    print(json.dumps({"bad": bad, "settled": settled, "changed": full != before, "seconds": whole}))


if __name__ == "__main__":
    main(*sys.argv[1:])
