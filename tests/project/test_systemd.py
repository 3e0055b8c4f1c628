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

from liqod.fabric.agent.kernel.device import UNIT as TUNNEL_UNIT
from liqod.kube.connection.cache_quota import OF_A_PEER
from liqod.model.objects import quantity
from tests.environment import require

ROOT = Path(__file__).resolve().parents[2]
UNIT = ROOT / "systemd" / "liqod.service"
TUNNEL = UNIT.with_name("liqod-tunnel@.service")
PROCESSES = ("liqod", "liqod-control", "liqod-network", "liqod-names")


def complaints(source: Path, program: str, name: str, place: Path) -> list[str]:
    """Return what systemd says against a unit under a name; instead of its program there is one that is installed."""
    analyze = shutil.which("systemd-analyze") or ""
    require("" if analyze else "systemd-analyze is not installed: as root, `make testbed` installs it")
    place.mkdir()
    unit = place.absolute() / name
    unit.write_text(source.read_text().replace(program, sys.executable))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    return [line for line in done.stderr.splitlines() if name.partition("@")[0] in line]


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
    """The unit of wireguard-go."""

    def setUp(self) -> None:
        self.parser = configparser.ConfigParser(interpolation=None)
        self.parser.optionxform = str  # type: ignore[assignment,method-assign]
        self.parser.read(TUNNEL)
        self.service = self.parser["Service"]

    def test_apart_from_the_daemon(self) -> None:
        """It is the same user's, so that the daemon reaches its socket, and bound to no other unit."""
        self.assertEqual(self.service["User"], "liqod")
        self.assertEqual(self.service["RuntimeDirectory"], "wireguard")
        self.assertEqual(self.service["Restart"], "no")
        self.assertEqual(self.service["DeviceAllow"], "/dev/net/tun rw")
        self.assertNotIn("liqod.service", TUNNEL.read_text())
        self.assertEqual(self.service["CapabilityBoundingSet"], "CAP_NET_ADMIN")

    def test_it_is_the_one_that_the_daemon_starts(self) -> None:
        """The names agree, in the unit, in the rule that allows it, and in the code."""
        self.assertTrue(TUNNEL.name.startswith(f"{TUNNEL_UNIT}@"))
        self.assertIn(f"/^{TUNNEL_UNIT}@", TUNNEL.with_name("liqod-tunnel.rules").read_text())

    def test_verify(self) -> None:
        """systemd finds nothing wrong with the unit; its program is replaced by one that is installed here."""
        said = complaints(TUNNEL, "/usr/bin/wireguard-go", "liqod-tunnel@liqod.service", Path(self.mktemp()))
        self.assertEqual(said, [])


class SplitUnitTests(SynchronousTestCase):
    """The units of a daemon that is split into control and the network agent."""

    def test_exposure(self) -> None:
        """systemd's own measure of what a service could do to its host stays low."""
        analyze = shutil.which("systemd-analyze") or ""
        require("" if analyze else "systemd-analyze is not installed: as root, `make testbed` installs it")
        for name, most in (("liqod-network", 2.0), ("liqod-control", 1.5), ("liqod-names", 1.5)):
            unit = UNIT.with_name(f"{name}.service")
            command = [analyze, "security", "--offline=true", str(unit)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            (found,) = re.findall(r"Overall exposure level for \S+: (\d+\.\d)", done.stdout)
            self.assertLess(float(found), most, done.stdout)

    def test_verify(self) -> None:
        """systemd finds nothing wrong with the units."""
        for name in ("liqod-network", "liqod-control", "liqod-names"):
            unit, place = UNIT.with_name(f"{name}.service"), Path(self.mktemp())
            self.assertEqual(complaints(unit, "/opt/liqod/bin/twistd", unit.name, place), [])
