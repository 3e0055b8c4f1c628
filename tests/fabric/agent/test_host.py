"""Plans carried out on a host in memory: settled by one, the same after any crash, nothing left at the end."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, cast

import attrs
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.error import ProcessDone, ProcessTerminated
from twisted.internet.interfaces import IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.config.schema import NetworkSettings
from liqod.fabric.agent.kernel import device as devices
from liqod.fabric.agent.kernel import host, userspace
from liqod.fabric.agent.kernel.device import PROBE_DEVICE, creation
from liqod.fabric.agent.kernel.host import HostKernel, KernelError, ProgramOutput, apply, observe, observe_node
from liqod.fabric.agent.kernel.model import INWARD, TABLE, DesiredKernel, Overlay
from liqod.fabric.agent.kernel.plan import plan
from liqod.fabric.agent.kernel.preflight import Lacks, Means, check_host, find_lacks
from liqod.fabric.state.network import ExportedAddress, Link, Netmap
from liqod.flow.clocks import Reactor
from liqod.model.ids import ClusterID
from liqod.model.records.network import Network
from tests.fabric.cases import NOW, HostCase
from tests.fabric.fake_kernel import FakeKernel, FakeLink, public_key

PEERS = 3
TUNNEL, AGENTS_TUNNEL = "liqod-tunnel@liqod.service", "liqod-network-tunnel@liqod.service"


def net(text: str) -> Network:
    return ipaddress.ip_network(text)


def link(number: int, *, pods: frozenset[str] | None = frozenset({"10.201.0.5"})) -> Link:
    """Return the link to one of several peers, with IPv4 and IPv6."""
    return Link(
        peer=ClusterID(f"peer-{number}"),
        public_key=public_key(f"peer {number}"),
        endpoint=f"192.0.2.{100 + number}:5871",
        remote=(net(f"10.{number}.0.0/16"), net(f"fd00:{number}::/48"), net(f"10.64.{16 * number}.0/20")),
        local=(Netmap(net("10.201.0.0/16"), net("10.71.0.0/16")), Netmap(net("fd00:ff::/48"), net("fd00:ff::/48"))),
        gateway=Netmap(net("10.70.0.1/32"), net("10.74.0.1/32")),
        mtu=1380,
        pods=pods,
        external=Netmap(net("10.70.0.0/20"), net("10.74.0.0/20")),
        exports=(
            ExportedAddress("10.74.0.7", "192.0.2.9", frozenset({("tcp", 80), ("udp", 53)})),
            ExportedAddress("10.74.0.8", "10.2.0.9"),
            ExportedAddress("fd00:74::7", "2001:db8::9", frozenset({("tcp", 80)})),
        ),
        six=Netmap(net("fd00:70::/112"), net("fd00:74::/112")),
    )


DESIRED = DesiredKernel(
    device="liqod",
    create=("ip", "link", "add", "dev", "liqod", "type", "wireguard"),
    listen_port=5871,
    probe_port=5872,
    public_key=public_key("ours"),
    private_key="ours",
    mtu=1420,
    addresses=(net("10.70.0.1/32"), net("fd00:70::1/128")),
    links=tuple(link(number) for number in range(1, PEERS + 1)),
)


OVERLAID = attrs.evolve(DESIRED, overlay=Overlay("liqodx", TABLE, 5876, "192.0.2.1", 1450, (), INWARD, "liqod"))


class Blind(FakeKernel):
    """A host where one command fails; all others are another's."""

    def __init__(self, kernel: FakeKernel, failing: Sequence[str], said: str) -> None:
        super().__init__()
        self._kernel, self._failing, self._said = kernel, tuple(failing), said

    async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
        self.commands.append(tuple(argv))
        return (
            ProgramOutput(1, "[", self._said) if tuple(argv) == self._failing else await self._kernel.run(argv, stdin)
        )


class HostTests(HostCase):
    """One host."""

    def test_one_plan_settles(self) -> None:
        """After one plan there is nothing to do, and another look changes nothing."""
        self.assertGreater(self.converge(DESIRED), 0)
        state = self.kernel.state()
        self.assertEqual(self.converge(DESIRED), 0)
        self.assertEqual(self.kernel.state(), state)

    def test_unknown_is_not_absent(self) -> None:
        """A look that fails otherwise than by what is not there ends the pass: nothing that is there is made again."""
        self.converge(OVERLAID)
        for look, device in ((observe, "liqod"), (observe_node, "liqodx")):
            self.kernel.commands.clear()
            self.successResultOf(Deferred.fromCoroutine(look(self.kernel, device)))
            commands = [argv for argv in self.kernel.commands if argv[0] != "sysctl"]
            self.assertGreater(len(commands), 8)
            for failing in commands:
                blind = Blind(self.kernel, failing, "RTNETLINK answers: Cannot allocate memory")
                failure = self.failureResultOf(Deferred.fromCoroutine(look(blind, device)), KernelError)
                self.assertIn("Cannot allocate memory", str(failure.value))

    def test_what_programs_say_of_absent_things(self) -> None:
        """Their words are known, those of neighbouring failures are not taken for them."""
        nft = ("nft", "-j", "list", "table", "inet", "liqod")
        device = ("ip", "-j", "-d", "addr", "show", "dev", "liqod")
        table = ("ip", "-6", "-j", "route", "show", "table", "18952")
        tunnel = ("wg", "show", "liqod", "dump")
        for argv, said, is_absent in (
            (device, 'Device "liqod" does not exist.', True),
            (device, 'Cannot find device "liqod"', True),
            (device, "Cannot open netlink socket: Too many open files", False),
            (device, 'Cannot open network namespace "x": No such file or directory', False),
            (table, "Error: ipv6: FIB table does not exist.\nDump terminated", True),
            (table, "RTNETLINK answers: Cannot allocate memory\nDump terminated", False),
            (nft, "Error: No such file or directory\nlist table inet liqod\n                ^^^^^", True),
            (nft, "Error: No such file or directory; did you mean table 'x' in family inet?", True),
            (nft, "Error: Could not process rule: No such file or directory", True),
            (nft, "Error: cache initialization failed: Operation not permitted", False),
            (nft, 'Cannot open network namespace "x": No such file or directory', False),
            (nft, "", False),
            (tunnel, "Unable to access interface: No such device", True),
            (tunnel, "Unable to access interface: Protocol not supported", True),
            (tunnel, "Unable to access interface: Operation not permitted", False),
        ):
            self.kernel = FakeKernel()
            self.kernel.links["liqod"] = FakeLink("wireguard")
            seen = Deferred.fromCoroutine(observe(Blind(self.kernel, argv, said), "liqod"))
            if is_absent:
                self.successResultOf(seen)
            else:
                self.failureResultOf(seen, KernelError)

    def test_every_change_settles_in_one_plan(self) -> None:
        """Peers that come, go, change key or pods: one plan each, and the same state as from nothing."""
        first, second, third = DESIRED.links
        turned = attrs.evolve(second, public_key=public_key("turned"))
        for links in (
            (first,),
            (first, second, third),
            (first, turned),
            (link(1, pods=frozenset()),),
            (),
            DESIRED.links,
        ):
            wanted = attrs.evolve(DESIRED, links=links)
            self.converge(wanted)
            self.assertEqual(self.converge(wanted), 0)
            is_starting = FakeKernel()
            self.kernel, used = is_starting, self.kernel
            self.converge(wanted)
            self.kernel = used
            self.assertEqual(self.kernel.state(), is_starting.state())

    def test_connections_are_not_translated_as_they_were(self) -> None:
        """A peer that went and came back, or sees us otherwise: the kernel forgets its connections, and no others."""
        mine, others = {("10.201.0.5", "10.1.0.9"), ("10.1.0.9", "10.71.0.5")}, {("10.201.0.5", "10.2.0.9")}
        first, *rest = DESIRED.links
        turned = attrs.evolve(first, local=(Netmap(net("10.201.0.0/16"), net("10.75.0.0/16")), first.local[1]))
        self.converge(DESIRED)
        self.kernel.flows = mine | others
        self.converge(attrs.evolve(DESIRED, links=tuple(rest)))
        self.converge(DESIRED)
        self.assertEqual(self.kernel.flows, others)
        self.kernel.flows = mine | others
        self.converge(DESIRED)
        self.assertEqual(self.kernel.flows, mine | others)
        self.converge(attrs.evolve(DESIRED, links=(turned, *rest)))
        self.assertEqual(self.kernel.flows, others)

    def test_connections_are_forgotten_after_a_crash_between_rules_and_that(self) -> None:
        """Wherever a change of translation was cut off, the next plan completes it."""
        first, *rest = DESIRED.links
        turned = attrs.evolve(first, local=(Netmap(net("10.201.0.0/16"), net("10.75.0.0/16")), first.local[1]))
        wanted = attrs.evolve(DESIRED, links=(turned, *rest))
        for done in range(8):
            self.kernel = FakeKernel()
            self.converge(DESIRED)
            self.kernel.flows = {("10.201.0.5", "10.1.0.9")}
            self.kernel.fail_after = done
            with self.assertRaises(self.failureException):
                self.converge(wanted)
            self.kernel.fail_after = None
            self.converge(wanted)
            self.assertEqual(self.kernel.flows, set(), f"after a crash at step {done}")

    def test_a_crash_anywhere_is_healed(self) -> None:
        """Whatever part of a plan was carried out, the next one makes the host what it should be."""
        self.converge(DESIRED)
        whole = self.kernel.state()
        for done in range(12):
            self.crash(done)
            self.converge(DESIRED)
            self.assertEqual(self.kernel.state(), whole, f"after a crash at step {done}")

    def test_removal_after_a_crash_anywhere_leaves_nothing(self) -> None:
        """However far a plan came, removal brings back the state before it."""
        for done in range(12):
            self.crash(done)
            self.remove()
            self.assertEqual(self.kernel.state(), self.before, f"after a crash at step {done}")

    def test_a_table_that_is_removed_during_a_pass(self) -> None:
        """The pass comes to its end, so that the next one sees what was lost, and makes it again."""
        run = self.kernel.run

        async def running(argv: Sequence[str], stdin: str = "") -> ProgramOutput:
            if argv[0] == "conntrack":
                self.kernel.tables.clear()
            return await run(argv, stdin)

        self.patch(self.kernel, "run", running)
        self.assertGreater(self.converge(DESIRED), 0)
        self.assertEqual(self.kernel.tables, {})
        self.patch(self.kernel, "run", run)
        self.converge(DESIRED)
        self.assertEqual(self.converge(DESIRED), 0)
        self.assertIn("inet liqod", self.kernel.tables)

    def crash(self, done: int) -> None:
        """Begin on a bare host and crash after so many steps."""
        self.kernel = FakeKernel()
        self.kernel.fail_after = done

        async def once() -> None:
            await apply(self.kernel, plan(DESIRED, await observe(self.kernel, "liqod"), NOW))

        try:
            self.successResultOf(Deferred.fromCoroutine(once()))
        except self.failureException:
            self.assertLess(done, 12)
        self.flushLoggedErrors()
        self.kernel.fail_after = None

    def test_the_kernels_own_wireguard_is_preferred(self) -> None:
        """Where the kernel knows WireGuard, it makes the device; the try leaves nothing."""
        made = self.successResultOf(Deferred.fromCoroutine(creation(self.kernel, "liqod", under_systemd=False)))
        self.assertEqual(made, DESIRED.create)
        self.assertEqual(self.kernel.state(), self.before)

    def test_a_host_without_ipv6(self) -> None:
        """It lacks nothing that a tunnel needs, and the check says what is left out."""
        self.kernel.has_six = False
        means = Means(find=lambda name: name, capable=lambda: True)
        work = check_host(self.kernel, NetworkSettings(), means, under_systemd=False)
        found = self.successResultOf(Deferred.fromCoroutine(work))
        self.assertEqual([one.hint for one in found if one.hint], [])
        self.assertEqual(len([one for one in found if "IPv6 is disabled on this host" in one.text]), 1)

    def test_what_an_earlier_try_left(self) -> None:
        """A device of a try whose process was killed is no reason against the kernel, and goes."""
        means = Means(find=lambda name: name, capable=lambda: True)
        for kind in ("wireguard", "vxlan"):
            self.kernel.links[PROBE_DEVICE] = FakeLink(kind)
            made = self.successResultOf(Deferred.fromCoroutine(creation(self.kernel, "liqod", under_systemd=False)))
            self.assertEqual((made, self.kernel.state()), (DESIRED.create, self.before))
            for settings in (NetworkSettings(), NetworkSettings(role="node")):
                self.kernel.links[PROBE_DEVICE] = FakeLink(kind)
                lacks = find_lacks(self.kernel, settings, means, under_systemd=False)
                self.assertEqual(self.successResultOf(Deferred.fromCoroutine(lacks)), Lacks())
                self.assertEqual(self.kernel.state(), self.before)

    def test_what_a_host_refuses_is_reported(self) -> None:
        """The failure names the command and what was said."""

        async def twice() -> None:
            await apply(self.kernel, plan(DESIRED, await observe(self.kernel, "nothing"), NOW)[:1] * 2)

        failure = self.failureResultOf(Deferred.fromCoroutine(twice()), KernelError)
        self.assertIn("ip link add dev liqod type wireguard failed: RTNETLINK answers: File exists", str(failure.value))


class SystemdTests(SynchronousTestCase):
    """Where the kernel knows no WireGuard and the daemon is a unit."""

    def making(self, installed: Mapping[str, str], own: str = "liqod") -> Deferred[tuple[str, ...]]:
        """Look for the command that makes the device, with units that run as some users, as the user ``own``."""

        class Host:
            async def run(self, argv: Sequence[str], stdin: str = "") -> ProgramOutput:
                if argv[:2] == ("systemctl", "show"):
                    user = installed.get(argv[-1])
                    state = "not-found" if user is None else "loaded"
                    return ProgramOutput(0, f"LoadState={state}\nUser={user or ''}\n", "")
                return ProgramOutput(2, "", "Error: Unknown device type.")

        self.patch(shutil, "which", lambda name, path="": f"/usr/bin/{name}")
        self.patch(devices, "own_user", lambda: own)
        return Deferred.fromCoroutine(creation(Host(), "liqod", under_systemd=True))

    def made(self, installed: Mapping[str, str], own: str = "liqod") -> tuple[str, ...]:
        """Return that command."""
        return self.successResultOf(self.making(installed, own))

    def test_the_tunnels_own_unit(self) -> None:
        """wireguard-go is started as the installed unit, else as one for this time; never as the daemon's child."""
        self.assertEqual(self.made({TUNNEL: "liqod"}), ("systemctl", "restart", TUNNEL))
        self.assertEqual(self.made({})[0], "systemd-run")

    def test_the_unit_of_the_same_user(self) -> None:
        """Of the package's units each process starts that of its own user, who alone opens the socket; root any."""
        both = {TUNNEL: "liqod", AGENTS_TUNNEL: "liqod-network"}
        for installed, own, unit in (
            (both, "liqod", TUNNEL),
            (both, "liqod-network", AGENTS_TUNNEL),
            ({TUNNEL: "liqod-network"}, "liqod-network", TUNNEL),
            ({TUNNEL: "liqod"}, "root", TUNNEL),
        ):
            self.assertEqual(self.made(installed, own), ("systemctl", "restart", unit), (installed, own))

    def test_the_unit_of_another_user(self) -> None:
        """A tunnel that this process could not reach is not started, and the reason says so."""
        for installed, own in (({TUNNEL: "liqod"}, "liqod-network"), ({TUNNEL: ""}, "liqod")):
            failure = self.failureResultOf(self.making(installed, own), KernelError)
            self.assertRegex(str(failure.value), f"{TUNNEL} runs as .*the user {own} of")

    def test_a_pod_beside_the_agent(self) -> None:
        """Where a pod runs wireguard-go for the device it is asked for it, and nothing is started here."""
        self.patch(userspace, "is_served", lambda device: device == "liqod")
        self.assertEqual(self.made({TUNNEL: "liqod"}), userspace.start_command("liqod"))


class StubbornHost(Clock):
    """A host with time of its own, whose programs end when the test says so, and not by being killed."""

    def __init__(self) -> None:
        super().__init__()
        self.started: list[tuple[ProcessProtocol, Any]] = []

    def spawnProcess(self, protocol: ProcessProtocol, *_: object, **__: object) -> None:
        transport = StubbornProgram()
        self.started.append((protocol, transport))
        protocol.makeConnection(transport)

    def end(self, number: int) -> None:
        """Let one of the programs end."""
        protocol, _ = self.started[number]
        reason = Failure(host_error(0))
        protocol.processExited(reason)
        protocol.processEnded(reason)


class StubbornProgram:
    """A program that waits inside the kernel."""

    def __init__(self) -> None:
        self.signals: list[str] = []

    def write(self, data: bytes) -> None: ...

    def closeStdin(self) -> None: ...

    def loseConnection(self) -> None: ...

    def signalProcess(self, signal: str) -> None:
        self.signals.append(signal)


def host_error(code: int) -> ProcessDone | ProcessTerminated:
    """Return what Twisted gives for an exit code."""
    return ProcessTerminated(code) if code else ProcessDone(0)


class StubbornTests(SynchronousTestCase):
    """A command that its killing does not end."""

    def setUp(self) -> None:
        self.host = StubbornHost()
        self.kernel = HostKernel(cast(Reactor, self.host))

    def ask(self, *words: str) -> Deferred[ProgramOutput]:
        """Begin to run a command."""
        return Deferred.fromCoroutine(self.kernel.run(words))

    def test_nothing_else_is_run(self) -> None:
        """Until it has ended no other command is started, and what is said is what happened."""
        first = self.ask("nft", "-f", "-")
        self.host.advance(host.DEADLINE)
        self.assertEqual(self.host.started[0][1].signals, ["KILL"])
        self.assertNoResult(first)
        self.host.advance(host.END)
        said = str(self.failureResultOf(first, KernelError).value)
        self.assertEqual(
            said,
            "nft -f - took longer than 15 s and was killed; it has not ended yet, and nothing else is run until it has",
        )
        second = self.ask("ip", "rule")
        self.host.advance(host.END)
        said = str(self.failureResultOf(second, KernelError).value)
        self.assertEqual(said, "ip rule was not run: nft -f - was killed, and has not ended yet")
        third = self.ask("ip", "rule")
        self.assertEqual(len(self.host.started), 1)
        self.host.end(0)
        self.assertEqual(len(self.host.started), 2)
        self.host.end(1)
        self.assertEqual(self.successResultOf(third).code, 0)

    def test_a_caller_that_is_cancelled(self) -> None:
        """A daemon that stops in the middle of a command kills it; nothing is run before that has ended."""
        first = self.ask("ip", "rule")
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.assertEqual(self.host.started[0][1].signals, ["KILL"])
        second = self.ask("ip", "rule")
        self.assertEqual(len(self.host.started), 1)
        self.host.end(0)
        self.assertEqual(len(self.host.started), 2)
        self.host.end(1)
        self.successResultOf(second)


class ProgramTests(TestCase):
    """Programs of this machine."""

    async def test_what_a_program_says(self) -> None:
        """Its exit code, both outputs, and what it was given to read."""
        kernel = HostKernel(cast(Reactor, reactor))
        got = await kernel.run(("sh", "-c", "cat; echo bad >&2; exit 3"), "given")
        self.assertEqual(got, ProgramOutput(3, "given", "bad\n"))

    async def test_a_program_that_the_user_does_not_find(self) -> None:
        """Those in /usr/sbin are run for a user in whose PATH it is not, as on Debian."""
        before = os.environ["PATH"]
        self.addCleanup(os.environ.__setitem__, "PATH", before)
        os.environ["PATH"] = "/nonexistent"
        got = await HostKernel(cast(Reactor, reactor)).run(("true",))
        self.assertEqual(got.code, 0)

    async def test_a_program_that_hangs_is_killed(self) -> None:
        """Once its failure is reported there is no such process any more."""
        started: list[int] = []
        spawn = cast(Reactor, reactor).spawnProcess

        def record(*args: Any, **named: Any) -> IProcessTransport:
            running = spawn(*args, **named)
            started.append(running.pid)
            return running

        self.patch(reactor, "spawnProcess", record)
        self.patch(host, "DEADLINE", 0.1)
        kernel = HostKernel(cast(Reactor, reactor))
        with self.assertRaisesRegex(KernelError, "^sleep 3600 took longer than 0.1 s and was killed$"):
            await kernel.run(("sleep", "3600"))
        for pid in started:
            self.assertRaises(ProcessLookupError, os.kill, pid, 0)
        self.assertEqual(len(started), 1)

    async def test_what_was_killed_by_others(self) -> None:
        """The failure names the signal."""
        kernel = HostKernel(cast(Reactor, reactor))
        with self.assertRaisesRegex(KernelError, "killed by signal 15"):
            await kernel.run(("sh", "-c", "kill -TERM $$"))
        with self.assertRaisesRegex(KernelError, "the program nothing-like-it is not installed"):
            await kernel.run(("nothing-like-it",))
