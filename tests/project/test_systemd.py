"""The unit file is one that systemd takes, and says what the daemon relies on."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from twisted.trial.unittest import SynchronousTestCase

from liqod.fabric.agent.kernel.device import UNITS as TUNNEL_UNITS
from liqod.kube.connection.cache_quota import OF_A_PEER
from liqod.model.objects import quantity
from tests.environment import require

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd" / "liqod.service"
TUNNEL = UNIT.with_name("liqod-tunnel@.service")
AGENTS_TUNNEL = UNIT.with_name("liqod-network-tunnel@.service")
NO_NETWORK = UNIT.with_name("liqod-no-network.conf")
PROCESSES = ("liqod", "liqod-control", "liqod-network", "liqod-names")
OPERATIONS = ROOT / "docs" / "operations.md"
MOST = {
    "liqod.service": 2.0,
    "liqod.service with liqod-no-network.conf": 1.4,
    "liqod-control.service": 1.4,
    "liqod-network.service": 1.9,
    "liqod-names.service": 1.4,
    "liqod-tunnel@.service": 1.9,
    "liqod-network-tunnel@.service": 1.9,
}
"""The exposure that each unit has at most: less than 1.5 without rights over the network, less than 2.0 with them; one
tenth more has the one that also reads homes, where its environment may be."""
BOUNDS = [
    "Ambient",
    "Capability",
    "NoNew",
    "Protect",
    "Private",
    "Device",
    "Restrict",
    "Lock",
    "SystemCall",
    "RemoveIPC",
]
"""How the settings begin that bound what a unit can do to its host."""


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze; skips the test where it is not installed."""
    program = shutil.which("systemd-analyze") or ""
    require("" if program else "systemd-analyze is not installed: as root, `make testbed` installs it")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60, check=False)


def complaints(source: Path, program: str, name: str, place: Path) -> list[str]:
    """Return what systemd says against a unit under a name; instead of its program there is one that is installed."""
    place.mkdir()
    unit = place.absolute() / name
    unit.write_text(source.read_text().replace(program, sys.executable))
    done = analyze("verify", str(unit))
    return [line for line in done.stderr.splitlines() if name.partition("@")[0] in line]


def exposure(name: str, place: Path) -> tuple[float, str]:
    """Return systemd's measure of what a unit could do to its host, and how it comes about.

    The name is that of a row of the documentation; a drop-in stands at the end of its unit, which means the same.
    """
    unit, _, dropin = name.partition(" with ")
    place.mkdir()
    file = place.absolute() / unit.replace("@", "@liqod")
    parts = [unit, *([dropin] if dropin else [])]
    file.write_text("\n".join(UNIT.with_name(part).read_text() for part in parts))
    done = analyze("security", "--offline=true", str(file))
    (found,) = re.findall(r"Overall exposure level for \S+: (\d+\.\d)", done.stdout)
    return float(found), done.stdout


def bounds(name: str) -> dict[str, int]:
    """Return the bounds of a unit by name: bytes, tasks."""
    lines = re.findall(r"^(\w+(?:Max|High))=(\S+)$", UNIT.with_name(f"{name}.service").read_text(), re.M)
    # systemd.resource-control(5): suffixes are to the base of 1024.
    return {key: int(quantity.parse(f"{value}i" if value[-1].isalpha() else value)) for key, value in lines}


class UnitTests(SynchronousTestCase):
    def setUp(self) -> None:
        # Not strict: a unit may have an option twice.
        self.parser = configparser.ConfigParser(interpolation=None, strict=False)
        self.parser.optionxform = str  # type: ignore[assignment,method-assign]
        self.parser.read(UNIT)
        self.service = self.parser["Service"]

    def test_notify(self) -> None:
        """The daemon reports itself: readiness, status, watchdog; it may wait for its API server without end."""
        self.assertEqual(self.service["Type"], "notify")
        self.assertGreater(int(self.service["WatchdogSec"]), 0)
        self.assertEqual(self.service["TimeoutStartSec"], "infinity")

    def test_command(self) -> None:
        """The command is the one that the daemon asks for."""
        self.assertTrue(self.service["ExecStart"].endswith("/twistd -n liqod --config /etc/liqod/liqod.toml"))

    def test_restart(self) -> None:
        """Failures are restarted, except for a configuration that cannot work."""
        self.assertEqual(self.service["Restart"], "on-failure")
        self.assertEqual(self.service["RestartPreventExitStatus"], "2")

    def test_reload(self) -> None:
        """A reload looks at the configuration that the daemon has, and sends SIGHUP if it is good."""
        for name in PROCESSES:
            text = UNIT.with_name(f"{name}.service").read_text()
            (command,) = re.findall(r"^ExecStart=(\S+) -n liqod (.*)$", text, re.M)
            look, hang_up = re.findall(r"^ExecReload=(.*)$", text, re.M)
            self.assertEqual(look, f"{command[0]} liqod --check {command[1]}")
            self.assertEqual(hang_up, """/bin/sh -c 'kill -HUP "$MAINPID"'""")
            self.assertNotIn("ExitStatus=SIG", text)

    def test_rights(self) -> None:
        """It runs as its own user, with the two capabilities it needs: to change the network, and to ping pods."""
        self.assertEqual(self.service["User"], "liqod")
        self.assertEqual(self.service["AmbientCapabilities"], "CAP_NET_ADMIN CAP_NET_RAW")
        self.assertEqual(self.service["CapabilityBoundingSet"], "CAP_NET_ADMIN CAP_NET_RAW")
        self.assertEqual(self.service["NoNewPrivileges"], "yes")
        self.assertEqual(self.service["ProtectSystem"], "strict")

    def test_verify(self) -> None:
        """systemd finds nothing wrong with the unit; its program is replaced by one that is installed here."""
        self.assertEqual(complaints(UNIT, "/opt/liqod/bin/twistd", "liqod.service", Path(self.mktemp())), [])


class BoundTests(SynchronousTestCase):
    """What a daemon may take of its host."""

    def test_every_process(self) -> None:
        """Memory, with a bound before it at which the daemon becomes slow, and threads with processes."""
        for name in PROCESSES:
            found = bounds(name)
            self.assertEqual(sorted(found), ["MemoryHigh", "MemoryMax", "TasksMax"], name)
            self.assertLess(found["MemoryHigh"], found["MemoryMax"], name)

    def test_no_peer_gets_there(self) -> None:
        """Where there are lenders: the daemon's own bound for the caches of one, with a new list of them, and four
        times what was measured with ten thousand pods.
        """
        page = (ROOT / "docs" / "performance.md").read_text()
        rows = re.findall(r"^\| peak memory of the borrower's daemon, .*$", page, re.M)
        measured = max(int(figure) for row in rows for figure in re.findall(r"(\d+) MiB", row)) << 20
        self.assertGreater(measured, 200 << 20)
        for name in ("liqod", "liqod-control"):
            found = bounds(name)
            self.assertGreater(found["MemoryHigh"], 2 * OF_A_PEER + measured, name)
            self.assertGreater(found["MemoryMax"], 2 * OF_A_PEER + 4 * measured, name)

    def test_in_a_pod_as_on_a_host(self) -> None:
        """The chart's limit is the unit's."""
        values = yaml.safe_load((ROOT / "packaging" / "chart" / "values.yaml").read_text())
        limit = values["resources"]["limits"]["memory"]
        self.assertEqual(int(quantity.parse(limit)), bounds("liqod-control")["MemoryMax"])


class TunnelUnitTests(SynchronousTestCase):
    """The units of wireguard-go."""

    def settings(self, unit: Path) -> list[tuple[str, str]]:
        """Return the settings of a unit, in their order."""
        return re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.M)

    def test_apart_from_the_daemon(self) -> None:
        """Each is the user's that reaches its socket, and bound to no other unit."""
        for unit, process in ((TUNNEL, "liqod"), (AGENTS_TUNNEL, "liqod-network")):
            found = self.settings(unit)
            user = dict(self.settings(UNIT.with_name(f"{process}.service")))["User"]
            for setting in (
                ("User", user),
                ("Group", user),
                ("RuntimeDirectory", "wireguard"),
                ("RuntimeDirectoryMode", "0700"),
                ("Restart", "no"),
                ("DeviceAllow", "/dev/net/tun rw"),
                ("CapabilityBoundingSet", "CAP_NET_ADMIN"),
            ):
                self.assertIn(setting, found, unit.name)
            self.assertEqual([key for key, _ in found if key in ("Requires", "BindsTo", "PartOf", "Conflicts")], [])

    def test_control_reads_no_key(self) -> None:
        """The agent's tunnel is not control's user's, and that user starts none while control runs."""
        control = dict(self.settings(UNIT.with_name("liqod-control.service")))
        self.assertNotEqual(dict(self.settings(AGENTS_TUNNEL))["User"], control["User"])
        self.assertEqual(dict(self.settings(TUNNEL))["User"], control["User"])
        missing = dict(self.settings(TUNNEL))["AssertPathExists"]
        self.assertIn(missing.removeprefix("!/run/"), control["RuntimeDirectory"].split())
        alone = dict(self.settings(UNIT))["RuntimeDirectory"].split()
        self.assertNotIn(missing.removeprefix("!/run/"), alone)

    def test_bounded_alike(self) -> None:
        """They differ in the user, and in when they start."""
        apart = ("User", "Group", "AssertPathExists")
        first, other = [[one for one in self.settings(unit) if one[0] not in apart] for unit in (TUNNEL, AGENTS_TUNNEL)]
        self.assertEqual(first, other)

    def test_it_is_the_one_that_the_daemon_starts(self) -> None:
        """The names agree, in the units, in the rule that allows each to its own user, and in the code."""
        text = TUNNEL.with_name("liqod-tunnel.rules").read_text()
        rules = dict(re.findall(r'^ +"([\w-]+)": /\^([\w-]+)@', text, re.M))
        units = {dict(self.settings(unit))["User"]: unit.name.partition("@")[0] for unit in (TUNNEL, AGENTS_TUNNEL)}
        self.assertEqual(rules, units)
        self.assertEqual(set(TUNNEL_UNITS), set(units.values()))
        (verbs,) = re.findall(r'\[(.*)\]\.indexOf\(action\.lookup\("verb"\)\)', text)
        # One that hangs is not started by starting it.
        self.assertEqual(verbs, '"start", "restart"')

    def test_verify(self) -> None:
        """systemd finds nothing wrong with the units; their program is replaced by one that is installed here."""
        for unit in (TUNNEL, AGENTS_TUNNEL):
            name = unit.name.replace("@", "@liqod")
            said = complaints(unit, "/usr/bin/wireguard-go", name, Path(self.mktemp()))
            self.assertEqual(said, [], name)


class ExposureTests(SynchronousTestCase):
    """systemd's own measure of what each unit could do to its host."""

    def test_every_unit(self) -> None:
        """Each unit of the package stays low, as the page for operators has it."""
        units = {unit.name for unit in UNIT.parent.glob("*.service")}
        self.assertEqual(units, {name.partition(" with ")[0] for name in MOST})
        row = re.compile(r"^\| `([\w@.-]+)`( with `([\w.-]+)`)? \| (\d\.\d) \|", re.M)
        listed = {
            f"{unit}{f' with {dropin}' if dropin else ''}": float(figure)
            for unit, _, dropin, figure in row.findall(OPERATIONS.read_text())
        }
        self.assertEqual(listed.keys(), MOST.keys())
        for name, most in MOST.items():
            found, why = exposure(name, Path(self.mktemp()))
            self.assertLessEqual(found, most, why)
            # Releases of systemd know more or fewer settings.
            self.assertAlmostEqual(found, listed[name], delta=0.21, msg=f"{name}: {why}")

    def test_a_unit_that_may_more(self) -> None:
        """A unit without one of its bounds is seen."""
        before, _ = exposure("liqod-control.service", Path(self.mktemp()))
        place = Path(self.mktemp())
        place.mkdir()
        file = place.absolute() / "liqod-control.service"
        file.write_text(UNIT.with_name(file.name).read_text().replace("PrivateUsers=yes\n", ""))
        (after,) = re.findall(r"level for \S+: (\d+\.\d)", analyze("security", "--offline=true", str(file)).stdout)
        self.assertGreater(float(after), before)


class NoNetworkTests(SynchronousTestCase):
    """The drop-in for a daemon that leaves the network to others."""

    def test_what_control_has(self) -> None:
        """With it the unit has each bound that the one of control has, which has no right over the network either."""
        parsed = {}
        for name in ("liqod-control.service", "liqod.service", NO_NETWORK.name):
            text = UNIT.with_name(name).read_text()
            parsed[name] = re.findall(r"^(\w+)=(.*)$", text, re.M)
        bounds_of_control = [one for one in parsed["liqod-control.service"] if one[0].startswith(tuple(BOUNDS))]
        both = dict([*parsed["liqod.service"], *parsed[NO_NETWORK.name]])
        for key, value in bounds_of_control:
            if key != "SystemCallFilter":
                self.assertEqual(both.get(key), value, key)
        self.assertEqual((both["AmbientCapabilities"], both["CapabilityBoundingSet"]), ("", ""))
        refused = {word for key, value in [*parsed["liqod.service"], *parsed[NO_NETWORK.name]]
                   if key == "SystemCallFilter" and value.startswith("~") for word in value[1:].split()}  # fmt: skip
        self.assertEqual(refused, {"@resources", "@privileged"})

    def test_documented(self) -> None:
        """The page for operators has it as it is."""
        settings = [line for line in NO_NETWORK.read_text().splitlines() if not line.startswith("#")]
        self.assertIn("\n".join(f"    {line}" for line in settings), OPERATIONS.read_text())

    def test_verify(self) -> None:
        """systemd finds nothing wrong with the unit that has it."""
        place = Path(self.mktemp())
        place.mkdir()
        both = place / "source"
        both.write_text(f"{UNIT.read_text()}\n{NO_NETWORK.read_text()}")
        said = complaints(both, "/opt/liqod/bin/twistd", "liqod.service", place / "units")
        self.assertEqual(said, [])


class SplitUnitTests(SynchronousTestCase):
    """The units of a daemon that is split into control and the network agent."""

    def test_verify(self) -> None:
        """systemd finds nothing wrong with the units."""
        for name in ("liqod-network", "liqod-control", "liqod-names"):
            unit, place = UNIT.with_name(f"{name}.service"), Path(self.mktemp())
            self.assertEqual(complaints(unit, "/opt/liqod/bin/twistd", unit.name, place), [])
