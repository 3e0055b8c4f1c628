"""Observes and changes the kernel by running ip, bridge, wg, nft, conntrack and sysctl."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

import attrs
from twisted.internet.defer import CancelledError, TimeoutError
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from liqod.fabric.agent.kernel import routes, vxlan, wireguard
from liqod.fabric.agent.kernel.model import (
    INWARD,
    TABLE,
    HostCommand,
    NftablesTable,
    ObservedKernel,
    ObservedNodeKernel,
    ObservedOverlay,
    ObservedTable,
    Policy,
    Route,
)
from liqod.fabric.agent.kernel.rules import nftables
from liqod.flow.clocks import Reactor
from liqod.flow.errors import ExpectedError
from liqod.flow.observe import Gate
from liqod.model.records.network import Network

DEADLINE = 15.0
"""Seconds after which a command is killed."""
END = 5.0
"""Seconds that a killed command has to end: one that waits inside the kernel ends only when that lets go of it."""
TOOLS: Final = {
    "ip": "iproute2",
    "bridge": "iproute2",
    "wg": "wireguard-tools",
    "nft": "nftables",
    "conntrack": "conntrack",
    "sysctl": "procps",
}
"""The programs that are needed, and the packages that have them on Debian."""
_ABSENT: Final = {
    "ip": re.compile(r'(Device ".*"|Error: ipv[46]: FIB table) does not exist\.|Cannot find device ".*"'),
    "nft": re.compile(r"Error: (Could not process rule: )?No such file or directory.*"),
    # Protocol: the kernel has no WireGuard, and no wireguard-go serves the device. Operation: it is of another kind.
    "wg": re.compile(r"Unable to access interface: (No such device|(Protocol|Operation) not supported)"),
}
"""Lines by which programs say that what they are to show does not exist; their exit codes are those of any failure."""


class KernelError(ExpectedError):
    """A command failed; the message has the command and its error output."""


@attrs.frozen
class ProgramOutput:
    """Exit code, standard output and standard error of a program."""

    code: int
    out: str
    err: str


class Kernel(Protocol):
    """Runs commands on a host."""

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        """Run a program to its end; raises KernelError only when it cannot be run at all, or is killed."""


class _Command(ProcessProtocol):
    """One running program: its input is written at once, its output kept until it has ended."""

    transport: IProcessTransport

    def __init__(self, words: str, stdin: bytes) -> None:
        self.words = words
        self.exited = Gate()
        self.closed = Gate()
        self.code: int | None = None
        self.signal: int | None = None
        self.out: list[bytes] = []
        self.err: list[bytes] = []
        self._stdin = stdin

    def connectionMade(self) -> None:
        self.transport.write(self._stdin)
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        self.out.append(data)

    def errReceived(self, data: bytes) -> None:
        self.err.append(data)

    def processExited(self, reason: Failure) -> None:
        ended = reason.value
        if isinstance(ended, (ProcessDone, ProcessTerminated)):
            self.code, self.signal = ended.exitCode, ended.signal
        self.exited.open()

    def processEnded(self, reason: Failure) -> None:
        self.closed.open()

    def kill(self) -> None:
        """Send SIGKILL, and stop reading output: nobody is left to use it."""
        # The programs of TOOLS start no others, so there is no group of processes to kill.
        with suppress(ProcessExitedAlready, OSError):
            self.transport.signalProcess("KILL")
        self.transport.loseConnection()


class HostKernel:
    """Runs commands on this host; ``prefix`` is put before each of them (``ip netns exec NAME``, say).

    A command that takes longer than ``DEADLINE`` is killed, as is one whose caller is cancelled. While a killed one has
    not ended none is run: it may still change the kernel, and what the next pass observed would not be so any more.
    """

    def __init__(self, reactor: Reactor, prefix: Sequence[str] = ()) -> None:
        self._reactor = reactor
        self._prefix = tuple(prefix)
        self._killed: list[_Command] = []

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        for earlier in list(self._killed):
            if not await self._has_ended(earlier):
                raise KernelError(f"{' '.join(argv)} was not run: {earlier.words} was killed, and has not ended yet")
        command = self._start(argv, stdin)
        try:
            await command.closed.wait().addTimeout(DEADLINE, self._reactor)
        except CancelledError:
            self._kill(command)
            raise
        except TimeoutError:
            if command.exited.is_open:
                what = f"{command.words} has ended, but a program that it started keeps its output open"
            else:
                what = f"{command.words} took longer than {DEADLINE:g} s and was killed"
            self._kill(command)
            if not await self._has_ended(command):
                what += "; it has not ended yet, and nothing else is run until it has"
            raise KernelError(what) from None
        if command.code is None:
            raise KernelError(f"{command.words} was killed by signal {command.signal}")
        out, err = (b"".join(parts).decode(errors="replace") for parts in (command.out, command.err))
        return ProgramOutput(command.code, out, err)

    def _start(self, argv: Sequence[str], stdin: str) -> _Command:
        command = _Command(" ".join(argv), stdin.encode())
        words, environ = (*self._prefix, *argv), _environment()
        # Twisted looks a name up in the PATH of this process (posix_spawnp(3)); that of a user has no /usr/sbin.
        program = shutil.which(words[0], path=environ["PATH"]) or words[0]
        try:
            self._reactor.spawnProcess(command, program, words, env=environ)
        except FileNotFoundError:
            package = TOOLS.get(argv[0], "")
            what = f"install the package {package}" if package else "install it"
            raise KernelError(f"the program {argv[0]} is not installed; {what}") from None
        except OSError as error:
            raise KernelError(f"{argv[0]} cannot be run: {error.strerror or error}") from error
        return command

    def _kill(self, command: _Command) -> None:
        self._killed.append(command)
        command.kill()

    async def _has_ended(self, command: _Command) -> bool:
        """Wait for the end of a killed command, ``END`` seconds at most; tells whether it has ended."""
        try:
            await command.exited.wait().addTimeout(END, self._reactor)
        except TimeoutError:
            return False
        if command in self._killed:
            self._killed.remove(command)
        return True


def _environment() -> dict[str, str]:
    path = os.environ.get("PATH", "")
    return {"PATH": f"{path}:/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C"}


async def observe(kernel: Kernel, device: str) -> ObservedKernel:
    """Return what a gateway's kernel has of our network; ``device`` is the tunnel's.

    Raises KernelError where any of it cannot be found out: what is unknown is not absent, and would be made again.
    """
    link = routes.parse_device(await _shown(kernel, ("ip", "-j", "-d", "addr", "show", "dev", device)))
    tunnel = None
    if link is not None:
        tunnel = wireguard.parse_dump(await _shown(kernel, ("wg", "show", device, "dump")))
    policies: set[Policy] = set()
    unmarked: set[Policy] = set()
    table: dict[Network, Route] = {}
    rules = await _rules(kernel)
    for version, text in rules.items():
        policies.update((version, priority) for priority in routes.rule_priorities(text, TABLE))
        unmarked.update((version, priority) for priority in routes.unmarked_priorities(text, TABLE))
        # A table that never had a route does not exist, which ip(8) reports as an error.
        shown = await _shown(kernel, ("ip", f"-{version}", "-j", "route", "show", "table", str(TABLE)))
        table.update(routes.parse_routes(shown))
    over = await observe_overlay(kernel, vxlan.device_name(device))
    inward = await _table(kernel, rules, INWARD, device, over)
    rules_of_ours = await _nft(kernel)
    return ObservedKernel(link, tunnel, frozenset(policies), table, rules_of_ours, over, inward, frozenset(unmarked))


async def has_six(kernel: Kernel) -> bool:
    """Return whether devices have IPv6 on a host: else it refuses their addresses, routes and neighbours of it.

    A new device has the setting of ``default``, which a change of ``all`` sets too (ip-sysctl.rst, disable_ipv6).
    """
    shown = await kernel.run(("sysctl", "-n", "net.ipv6.conf.default.disable_ipv6"))
    return shown.code == 0 and shown.out.strip() != "1"


async def is_forwarding(kernel: Kernel, device: str) -> bool:
    """Return whether a host forwards the packets of IPv4 that come out of a device; True where that is not known.

    ``net.ipv4.ip_forward`` sets all devices; the one that packets come from decides (ip-sysctl.rst, forwarding).
    """
    shown = await kernel.run(("sysctl", "-n", f"net.ipv4.conf.{device}.forwarding"))
    return shown.code != 0 or shown.out.strip() != "0"


async def observe_node(kernel: Kernel, device: str) -> ObservedNodeKernel:
    """Return what the kernel of a host that is no gateway has of our network; ``device`` is the overlay's.

    Raises KernelError as ``observe``.
    """
    over = await observe_overlay(kernel, device)
    outward = await _table(kernel, await _rules(kernel), TABLE, "", over)
    return ObservedNodeKernel(over, outward, await _nft(kernel))


async def observe_overlay(kernel: Kernel, device: str) -> ObservedOverlay | None:
    """Return the overlay device with its forwarding and neighbour entries; None where there is none."""
    shown = await _shown(kernel, ("ip", "-j", "-d", "addr", "show", "dev", device))
    if not shown:
        return None
    hosts = await checked(kernel, ("bridge", "-j", "fdb", "show", "dev", device))
    neighbours = [
        (await checked(kernel, ("ip", f"-{version}", "-j", "neigh", "show", "dev", device))).out for version in (4, 6)
    ]
    rp_filter = await kernel.run(("sysctl", "-n", f"net.ipv4.conf.{device}.rp_filter"))
    if rp_filter.out.strip() == "0":
        # The kernel takes the larger value of `all` and the device.
        rp_filter = await kernel.run(("sysctl", "-n", "net.ipv4.conf.all.rp_filter"))
    return vxlan.parse_overlay(shown, hosts.out, neighbours, rp_filter.out)


async def _rules(kernel: Kernel) -> dict[int, str]:
    # Without details ip(8) does not show where a rule comes from if that is the kernel, or is not said.
    return {version: (await checked(kernel, ("ip", f"-{version}", "-j", "-d", "rule"))).out for version in (4, 6)}


async def _table(
    kernel: Kernel, rules: dict[int, str], number: int, source: str, over: ObservedOverlay | None
) -> ObservedTable:
    # The kernel removes routes together with their device: without it there is nothing to list.
    shown = [
        await _shown(kernel, ("ip", f"-{version}", "-j", "route", "show", "table", str(number)))
        for version in ((4, 6) if over is not None else ())
    ]
    return vxlan.parse_table(shown, rules, number, source)


async def _nft(kernel: Kernel) -> NftablesTable | None:
    return nftables.parse_table(await _shown(kernel, ("nft", "-j", "list", "table", *nftables.NAME.split())))


async def _shown(kernel: Kernel, argv: Sequence[str]) -> str:
    """Return what a program shows, nothing where that does not exist; raises KernelError where it fails otherwise."""
    output = await kernel.run(argv)
    if output.code and any(_ABSENT[argv[0]].fullmatch(line.strip()) for line in output.err.splitlines()):
        return ""
    return _successful(argv, output).out


async def apply(kernel: Kernel, steps: Sequence[HostCommand]) -> None:
    """Run the commands of a plan in order; the first failure raises KernelError."""
    for step in steps:
        await checked(kernel, step.argv, step.stdin, step.harmless)


async def checked(kernel: Kernel, argv: Sequence[str], stdin: str = "", harmless: str = "") -> ProgramOutput:
    """Run a command that has to succeed, or to fail with an error output that contains ``harmless``."""
    output = await kernel.run(argv, stdin)
    return output if harmless and harmless in output.err else _successful(argv, output)


def _successful(argv: Sequence[str], output: ProgramOutput) -> ProgramOutput:
    if output.code:
        message = output.err.strip() or output.out.strip() or f"exit code {output.code}"
        raise KernelError(f"{' '.join(argv)} failed: {message}")
    return output
