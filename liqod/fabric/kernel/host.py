"""The one way to the kernel: programs run with text on their standard input, and what they say is read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Protocol

import attrs
from twisted.internet.utils import getProcessOutputAndValue

from liqod.fabric.kernel import routes, vxlan, wireguard
from liqod.fabric.kernel.model import INWARD, TABLE, NodeObserved, Observed, Rules, SeenOverlay, SeenTable, Step
from liqod.fabric.kernel.rules import nftables
from liqod.flow.errors import Foreseen

DEADLINE: Final = 15.0
TOOLS: Final = {
    "ip": "iproute2",
    "bridge": "iproute2",
    "wg": "wireguard-tools",
    "nft": "nftables",
    "conntrack": "conntrack",
    "sysctl": "procps",
}
"""The programs that are needed, and the packages that bring them on Debian."""


class KernelError(Foreseen):
    """A command failed: its text tells which and what it said."""


@attrs.frozen
class Output:
    """What a program said, and how it ended."""

    code: int
    out: str
    err: str


class Kernel(Protocol):
    """Where commands are run."""

    async def run(self, argv: Sequence[str], stdin: str = "") -> Output:
        """Run a program to its end; raises KernelError only when it cannot be run at all."""


class HostKernel:
    """This host's kernel; ``prefix`` is put before every command line (to enter a network namespace, say)."""

    def __init__(self, reactor: Any, prefix: Sequence[str] = ()) -> None:
        self._reactor = reactor
        self._prefix = tuple(prefix)

    async def run(self, argv: Sequence[str], stdin: str = "") -> Output:
        program, *rest = (*self._prefix, *argv)
        try:
            running = getProcessOutputAndValue(
                program, rest, env=_environment(), reactor=self._reactor, stdinBytes=stdin.encode()
            )
        except FileNotFoundError:
            package = TOOLS.get(argv[0], "")
            what = f"install the package {package}" if package else "install it"
            raise KernelError(f"the program {argv[0]} is not installed; {what}") from None
        except OSError as error:
            raise KernelError(f"{argv[0]} cannot be run: {error.strerror or error}") from error
        running.addTimeout(DEADLINE, self._reactor)
        try:
            out, err, code = await running
        except Exception as error:
            # Twisted tells the end by a signal with a tuple instead of an exception.
            raise KernelError(f"{' '.join(argv)} did not end in order: {type(error).__name__}") from error
        return Output(code, out.decode(errors="replace"), err.decode(errors="replace"))


def _environment() -> dict[str, str]:
    path = os.environ.get("PATH", "")
    return {"PATH": f"{path}:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C"}


async def observe(kernel: Kernel, device: str) -> Observed:
    """Return what there is of the fabric on a host."""
    shown = await kernel.run(("ip", "-j", "-d", "addr", "show", "dev", device))
    link = routes.parse_device(shown.out) if shown.code == 0 else None
    tunnel = None
    if link is not None:
        tunnel = wireguard.parse_dump((await kernel.run(("wg", "show", device, "dump"))).out)
    policies, table = set(), {}
    rules = await _rules(kernel)
    for version, text in rules.items():
        if routes.has_policy(text):
            policies.add(version)
        # A table that never had a route does not exist: not an error.
        shown = await kernel.run(("ip", f"-{version}", "-j", "route", "show", "table", str(TABLE)))
        if shown.code == 0:
            table.update(routes.parse_routes(shown.out))
    over = await observe_overlay(kernel, vxlan.device_name(device))
    inward = await _table(kernel, rules, INWARD, device, over)
    return Observed(link, tunnel, frozenset(policies), table, await _nft(kernel), over, inward)


async def observe_node(kernel: Kernel, device: str) -> NodeObserved:
    """Return what there is of the fabric on a host that is no gateway; ``device`` is the overlay's."""
    over = await observe_overlay(kernel, device)
    outward = await _table(kernel, await _rules(kernel), TABLE, "", over)
    return NodeObserved(over, outward, await _nft(kernel))


async def observe_overlay(kernel: Kernel, device: str) -> SeenOverlay | None:
    """Return what there is of an overlay."""
    shown = await kernel.run(("ip", "-j", "-d", "addr", "show", "dev", device))
    if shown.code:
        return None
    hosts = await kernel.run(("bridge", "-j", "fdb", "show", "dev", device))
    near = [(await kernel.run(("ip", f"-{version}", "-j", "neigh", "show", "dev", device))).out for version in (4, 6)]
    loose = await kernel.run(("sysctl", "-n", f"net.ipv4.conf.{device}.rp_filter"))
    return vxlan.parse_overlay(shown.out, hosts.out, near, loose.out)


async def _rules(kernel: Kernel) -> dict[int, str]:
    return {version: (await checked(kernel, ("ip", f"-{version}", "-j", "rule"))).out for version in (4, 6)}


async def _table(
    kernel: Kernel, rules: dict[int, str], number: int, source: str, over: SeenOverlay | None
) -> SeenTable:
    shown = []
    # Its routes lead over the overlay, and go with its device.
    for version in (4, 6) if over is not None else ():
        listed = await kernel.run(("ip", f"-{version}", "-j", "route", "show", "table", str(number)))
        shown.append(listed.out if listed.code == 0 else "")
    return vxlan.parse_table(shown, rules, number, source)


async def _nft(kernel: Kernel) -> Rules | None:
    listed = await kernel.run(("nft", "-j", "list", "table", *nftables.NAME.split()))
    return nftables.parse_table(listed.out) if listed.code == 0 else None


async def apply(kernel: Kernel, steps: Sequence[Step]) -> None:
    """Carry a plan out, in order; the first failure ends it with a KernelError."""
    for step in steps:
        await checked(kernel, step.argv, step.stdin, step.harmless)


async def checked(kernel: Kernel, argv: Sequence[str], stdin: str = "", harmless: str = "") -> Output:
    """Run a command that has to succeed, or to fail with a text that has ``harmless`` in it."""
    output = await kernel.run(argv, stdin)
    if output.code and not (harmless and harmless in output.err):
        said = output.err.strip() or output.out.strip() or f"exit code {output.code}"
        raise KernelError(f"{' '.join(argv)} failed: {said}")
    return output
