"""Inside of a host: changes its network as the fabric would, and is killed at random points of that.

Arguments: how many times, and a seed. Each time a child process plans and applies, or removes, and gets SIGKILL before
an operation on the kernel, or while one is under way: first before each of all operations, in random order, then in the
midst of some. Then either another one completes the work and settles, or removal alone must leave what
was before. Says what happened as JSON.
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
from functools import partial
from typing import Any, TypeVar

from liqod.fabric.agent.kernel.host import ProgramOutput, apply, observe
from liqod.fabric.agent.kernel.model import INWARD, DesiredKernel, Overlay
from liqod.fabric.agent.kernel.plan import plan, removal
from liqod.fabric.agent.key import generate
from liqod.fabric.state.network import VNI, ExportedAddress, Link, Netmap, Vtep
from liqod.model.ids import ClusterID
from tests.netns.hosts import DUMP, network

T = TypeVar("T")
DEVICE = "liqod"


class PlainKernel:
    """This host's kernel, without a reactor."""

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
        return ProgramOutput(done.returncode, done.stdout, done.stderr)


class DyingKernel(PlainKernel):
    """The same, for a process that ends at once at an operation: before it, or so many seconds after it began."""

    def __init__(self, operation: int, late: float | None) -> None:
        self._left = operation
        self._late = late

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        if self._left == 0:
            if self._late is not None:
                begun = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
                assert begun.stdin is not None
                begun.stdin.write(stdin)
                begun.stdin.close()
                time.sleep(self._late)
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1
        return await super().run(argv, stdin)


def finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("it waited")


def wanted() -> DesiredKernel:
    """Return three peers, IPv4 and IPv6, closed, with exports of both, and an overlay."""
    key = generate()
    ports = frozenset({("tcp", 80)})
    links = tuple(
        Link(
            peer=ClusterID(f"peer-{n}"),
            public_key=generate().public,
            endpoint=f"10.98.0.{100 + n}:5871",
            remote=(network(f"10.{n}.0.0/16"), network(f"fd00:{n}::/48"), network(f"10.64.{16 * n}.0/20")),
            local=(Netmap(network("10.201.0.0/16"), network("10.71.0.0/16")),),
            gateway=Netmap(network("10.70.0.1/32"), network("10.74.0.1/32")),
            mtu=1380,
            pods=frozenset({"10.201.0.5"}),
            external=Netmap(network("10.70.0.0/20"), network("10.74.0.0/20")),
            exports=(
                ExportedAddress("10.74.0.7", "10.98.0.7", ports),
                ExportedAddress("fd00:74::7", "fd00:98::7", ports),
            ),
            six=Netmap(network("fd00:70::/112"), network("fd00:74::/112")),
        )
        for n in (1, 2, 3)
    )
    ends = (Vtep("10.98.0.50", (network("10.201.1.0/24"), network("10.98.0.50/32"))),)
    return DesiredKernel(
        device=DEVICE,
        create=("setsid", "--fork", "wireguard-go", DEVICE),
        listen_port=5871,
        probe_port=5872,
        public_key=key.public,
        private_key=key.private,
        mtu=1420,
        addresses=(network("10.70.0.1/32"), network("fd00:70::1/128")),
        links=links,
        overlay=Overlay("liqodx", VNI, 5876, "10.98.0.1", 1450, ends, INWARD, DEVICE),
    )


async def converge(desired: DesiredKernel, kernel: PlainKernel | None = None) -> int:
    """Do what the daemon does in one turn; returns the number of steps."""
    steps = plan(desired, await observe(PlainKernel(), DEVICE), time.time())
    await apply(kernel or PlainKernel(), steps)
    return len(steps)


async def remove(kernel: PlainKernel | None = None) -> int:
    """Do what uninstalling does; returns the number of steps."""
    steps = removal(DEVICE, await observe(PlainKernel(), DEVICE))
    await apply(kernel or PlainKernel(), steps)
    return len(steps)


def dump() -> str:
    """Return all of this host's network state."""
    return "\n".join(subprocess.run(command, capture_output=True, text=True, check=True).stdout for command in DUMP)


def killed(work: Coroutine[Any, Any, Any]) -> bool:
    """Run work in a child that kills itself, and tell whether it did; what it had started comes to its own end."""
    child = os.fork()
    if child == 0:
        os.setsid()
        try:
            finish(work)
        finally:
            os._exit(0)
    work.close()
    _, status = os.waitpid(child, 0)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _orphans():
        time.sleep(0.02)
    return os.WIFSIGNALED(status)


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
    operations = {"changing": finish(converge(desired))}
    settled = finish(converge(desired))
    full = dump()
    operations["removing"] = finish(remove())
    bad: list[str] = []
    if dump() != before:
        bad.append("removal without any crash")
    every = [(what, at) for what, number in operations.items() for at in range(number)]
    chance.shuffle(every)
    points: list[tuple[str, int, float | None]] = [(what, at, None) for what, at in every]
    while len(points) < int(count):
        points.append((*chance.choice(every), chance.random() * 0.02))
    for number, (what, at, late) in enumerate(points[: int(count)]):
        if what == "removing":
            finish(converge(desired))
        work = remove if what == "removing" else partial(converge, desired)
        where = f"{what}, operation {at}" + ("" if late is None else f", {late:.3f} s later")
        if not killed(work(DyingKernel(at, late))):
            bad.append(f"{where}: it was not killed")
        if number % 2:
            finish(converge(desired))
            if finish(converge(desired)):
                bad.append(f"{where}: not settled after that")
        finish(remove())
        if (now := dump()) != before:
            bad.append(f"{where}: left after that: {set(now.splitlines()) ^ set(before.splitlines())}")
    said = {"bad": bad, "settled": settled, "changed": full != before, "operations": len(every)}
    print(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
