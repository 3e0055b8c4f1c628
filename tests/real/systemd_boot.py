"""The Debian package on a real Debian with a real systemd, in a container: installation, service, watchdog, removal.

The machine is a bare Debian that boots here; the cluster that its daemon leads is a sandbox in this process.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import FailTest, SynchronousTestCase, TestCase

from tests.environment import require
from tests.real.figures import keep
from tests.testbed import machine, system
from tests.testbed.machine import Machine

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

import deb_policy  # noqa: E402 (the tools are scripts beside each other)

REACTOR: Any = reactor
CONFIGURATION = (
    '[discovery]\nmdns = false\n[metrics]\nlisten = ""\n[peering]\nlisten = "tcp:0:interface=127.0.0.1"\n'
    '[webhook]\nlisten = "tcp:0:interface=127.0.0.1"\n[kubelet]\nlisten = "tcp:0:interface=127.0.0.1"\n'
    'node-address = "127.0.0.1"\n'
)
CEILING = 90.0
MADE_OF = ("liqod", "packaging", "systemd", "etc", "twisted", "setup.cfg", "pyproject.toml", "README.md")
"""What the package is made of."""
WEDGE = "import signal; signal.signal(signal.SIGUSR2, lambda *_: __import__('time').sleep(3600))\n"
"""A line of a .pth file, which Python runs as it starts: by a signal the main thread, that of the reactor, sleeps."""
NEEDED = {"cluster", "kubeconfig", "service", "ready"}
LEFT_BEHIND = ("./var/lib/dpkg", "./var/cache", "./var/log", "./root", "./proc", "./run", "./tmp", "./var/tmp")
"""Where the machine itself writes when packages come and go."""

RUNNING = (*LEFT_BEHIND, "./var/lib/private", "./var/lib/systemd", "./opt/liqod/lib")
"""Where a running machine writes by itself, and where Python keeps what it compiles."""


def package(release: str = "", *, compression: str = "xz") -> Path:
    """Return the package, built once for what it is made of; ``release``: with another version than this checkout's."""
    place = CHECKOUT / ".cache/packages" / _sources() / f"{release or 'own'}-{compression}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=place.parent))
        words = [sys.executable, str(CHECKOUT / "packaging/tools/deb.py"), "--output", str(scratch)]
        words += [f"--compression={compression}", *([f"--release={release}"] if release else [])]
        environment = os.environ | {"PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        scratch.rename(place)
    (built,) = place.glob("*.deb")
    return built


def _sources() -> str:
    """Return a name for what the package is made of, as it is in the checkout."""
    words = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *MADE_OF]
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")
    found = hashlib.sha256(platform.python_version().encode())
    for name in sorted(filter(None, names)):
        if (file := CHECKOUT / name).is_file():
            found.update(name.encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def prepared() -> Machine:
    """Return a machine with the package in /root, not booted; skips the test where that is impossible."""
    require("" if os.geteuid() == 0 else "booting a machine needs root")
    require(machine.missing())
    built = package()
    debian = Machine.create(Path(tempfile.mkdtemp()) / "root")
    shutil.copy(built, debian.root / "var/tmp/liqod.deb")
    return debian


NO_PYTHON = r"liqod: python3\.\d+, which this package was built for, is not installed"


def remove_interpreter(debian: Machine) -> None:
    """Have the interpreter of the package be gone, as after an upgrade of the distribution."""
    interpreter = debian.root / "opt/liqod/bin/python3"
    interpreter.unlink()
    interpreter.symlink_to("/usr/bin/python3.0")


class PackageTests(SynchronousTestCase):
    """What dpkg does with the package."""

    def setUp(self) -> None:
        self.debian = prepared()
        self.addCleanup(self.debian.stop)

    def listing(self) -> set[str]:
        """Return path, mode, owner and target of everything in the machine."""
        words = ["find", ".", "-printf", "%p %M %u %l\n"]
        found = subprocess.run(words, cwd=self.debian.root, check=True, capture_output=True, text=True).stdout
        return {line for line in found.splitlines() if not line.startswith(LEFT_BEHIND)}

    def test_life(self) -> None:
        """Installed it runs and is not enabled; an upgrade keeps the configuration; purged it leaves but its user."""
        # The machine's users are files that it changes: not their content, only that they are there, is compared.
        self.debian.chroot("systemd-sysusers", "--inline", "u other -")
        before = self.listing()
        self.debian.chroot("dpkg", "--install", "/var/tmp/liqod.deb")
        installed = self.listing()
        for program in ("liqodctl", "kubectl-liqod"):
            self.assertRegex(self.debian.chroot(program, "--version"), r"^liqodctl \d")
        self.assertRegex(self.debian.chroot("/opt/liqod/bin/twistd", "liqod", "--version"), r"^liqod \d")
        enabled = self.debian.root / "etc/systemd/system/multi-user.target.wants/liqod.service"
        self.assertFalse(enabled.is_symlink(), "the installation enabled the service")
        self.assertIn("liqod:x:", (self.debian.root / "etc/passwd").read_text())
        configuration = self.debian.root / "etc/liqod/liqod.toml"
        configuration.write_text(CONFIGURATION)
        self.debian.chroot("dpkg", "--force-confdef", "--install", "/var/tmp/liqod.deb")
        self.assertEqual(configuration.read_text(), CONFIGURATION)
        self.assertEqual(self.listing(), installed)
        (self.debian.root / "etc/liqod/kubeconfig").touch()
        self.debian.chroot("dpkg", "--remove", "liqod")
        self.assertEqual(configuration.read_text(), CONFIGURATION)
        self.assertEqual(list((self.debian.root / "etc/liqod").iterdir()).count(configuration), 1)
        self.debian.chroot("dpkg", "--purge", "liqod")
        # dpkg removes a directory that it shares with a package and that is empty.
        self.assertEqual({line for line in self.listing() ^ before if not line.startswith("./opt ")}, set())

    def test_policy(self) -> None:
        """Debian's policy has nothing against the whole package, as far as it is looked for here."""
        tree = Path(tempfile.mkdtemp()) / "tree"
        self.addCleanup(shutil.rmtree, tree.parent)
        subprocess.run(["dpkg-deb", "--raw-extract", str(package()), str(tree)], check=True)
        self.assertEqual(deb_policy.problems(tree), [])

    def test_lintian(self) -> None:
        """Nor has lintian, but for what the overrides of the package give a reason for; it is installed for this."""
        try:
            system.install({"lintian": "lintian"})
        except system.Missing as error:
            raise FailTest(f"without lintian nothing is shown: {error}") from None
        words = ["lintian", "--allow-root", "--fail-on=error"]
        done = subprocess.run([*words, str(package())], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_interpreter_is_gone(self) -> None:
        """Where the Python that it was built for is gone, the command and the daemon say which and what to do."""
        self.debian.chroot("dpkg", "--install", "/var/tmp/liqod.deb")
        remove_interpreter(self.debian)
        for program, status in (("liqodctl", 1), ("/opt/liqod/bin/twistd", 2)):
            with self.assertRaises(AssertionError) as caught:
                self.debian.chroot(program, "--version")
            self.assertRegex(str(caught.exception), NO_PYTHON)
            self.assertIn(f" --version: {status}: ", str(caught.exception))


class ServiceTests(TestCase):
    """The service under systemd."""

    timeout = 600

    async def setUp(self) -> None:  # type: ignore[override]
        self.debian = await deferToThread(prepared)
        self.addCleanup(lambda: deferToThread(self.debian.stop))
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        await deferToThread(self.debian.chroot, "dpkg", "--install", "/var/tmp/liqod.deb")
        (self.debian.root / "etc/liqod/liqod.toml").write_text(CONFIGURATION)
        kubeconfig = self.debian.root / "etc/liqod/kubeconfig"
        kubeconfig.write_text(cluster.kubeconfig())
        kubeconfig.chmod(0o640)
        await deferToThread(self.debian.chroot, "chgrp", "liqod", "/etc/liqod/kubeconfig")
        # Half a minute is right for a daemon, and long for a test.
        short = self.debian.root / "etc/systemd/system/liqod.service.d/short.conf"
        short.parent.mkdir()
        short.write_text("[Service]\nWatchdogSec=5\n")
        (site,) = (self.debian.root / "opt/liqod/lib").glob("python3*/site-packages")
        (site / "wedge.pth").write_text(WEDGE)
        await deferToThread(self.debian.boot)

    async def run_in(self, *words: str) -> str:
        """Run a program in the machine, while the cluster goes on in this process."""
        return await deferToThread(self.debian.run, *words, ok=False)

    async def show(self, name: str) -> str:
        """Return a property of the service."""
        return (await self.run_in("systemctl", "show", "--value", f"--property={name}", "liqod.service")).strip()

    async def until(self, name: str, holds: Callable[[str], bool]) -> str:
        """Wait until a property of the service is as wanted; returns it."""
        deadline = REACTOR.seconds() + CEILING
        while not holds(value := await self.show(name)):
            if REACTOR.seconds() > deadline:
                raise AssertionError(
                    f"{name} is {value!r}:\n{await self.run_in('journalctl', '--no-pager', '-u', 'liqod')}"
                )
            await deferLater(REACTOR, 0.3)
        return value

    async def test_service(self) -> None:
        """It becomes ready, says what it does, is restarted where it hangs, restarts, stops; the journal is clean."""
        self.assertEqual(await self.show("ActiveState"), "inactive")
        # `enable --now` returns when the daemon has reported that it is ready.
        await deferToThread(self.debian.run, "systemctl", "enable", "--now", "liqod.service")
        self.assertEqual((await self.show("ActiveState"), await self.show("SubState")), ("active", "running"))
        await self.until("StatusText", lambda text: text.startswith("leading"))
        first = await self.show("MainPID")
        self.assertEqual((await self.run_in("ps", "-o", "user=", "-p", first)).strip(), "liqod")

        # A process that lives, and whose reactor does not turn.
        await self.run_in("kill", "-USR2", first)
        await deferLater(REACTOR, 1.0)
        self.assertEqual((await self.run_in("ps", "-o", "stat=", "-p", first)).strip()[:1], "S")
        self.assertEqual(await self.show("MainPID"), first)
        await self.until("NRestarts", lambda count: count == "1")
        second = await self.until("MainPID", lambda pid: pid not in ("0", first))
        await self.until("StatusText", lambda text: text.startswith("leading"))

        await deferToThread(self.debian.run, "systemctl", "restart", "liqod.service")
        await self.until("MainPID", lambda pid: pid not in ("0", first, second))
        await self.until("StatusText", lambda text: text.startswith("leading"))

        await deferToThread(self.debian.run, "systemctl", "stop", "liqod.service")
        self.assertEqual((await self.show("ActiveState"), await self.show("Result")), ("inactive", "success"))
        journal = await self.run_in("journalctl", "--no-pager", "--output=cat", "--unit=liqod.service")
        self.assertIn("this daemon leads as", journal)
        self.assertIn("Watchdog timeout", journal)
        for unwanted in ("Traceback", "plugin cache", "Permission denied"):
            self.assertNotIn(unwanted, journal)
        self.assertEqual(
            re.findall(r"(?m)^(?:<\d>|\d{4}-\d\d-\d\d).*$", journal), [], "the journal has the time itself"
        )
        listed = await self.run_in(
            "journalctl", "--no-pager", "--output=cat", "--unit=liqod.service", "--priority=info..info"
        )
        self.assertIn("this daemon leads as", listed)

    async def test_wrong_configuration(self) -> None:
        """A wrong configuration is reported once, with what is wrong, and not tried again."""
        (self.debian.root / "etc/liqod/liqod.toml").write_text("[peering]\nautojoin = 1\n")
        await self.run_in("systemctl", "start", "liqod.service")
        await self.until("ActiveState", lambda state: state == "failed")
        self.assertEqual((await self.show("ExecMainStatus"), await self.show("NRestarts")), ("2", "0"))
        journal = await self.run_in("journalctl", "--no-pager", "--output=cat", "--unit=liqod.service")
        self.assertIn("peering.autojoin", journal)

    async def test_interpreter_is_gone(self) -> None:
        """Without the Python of the package the service fails once, with a sentence in its journal."""
        remove_interpreter(self.debian)
        await self.run_in("systemctl", "start", "liqod.service")
        await self.until("ActiveState", lambda state: state == "failed")
        self.assertEqual((await self.show("ExecMainStatus"), await self.show("NRestarts")), ("2", "0"))
        journal = await self.run_in("journalctl", "--no-pager", "--output=cat", "--unit=liqod.service")
        self.assertRegex(journal, NO_PYTHON)

    async def test_reload(self) -> None:
        """A changed configuration is used by the same process; a wrong one fails the reload, and the daemon goes on."""
        configuration = self.debian.root / "etc/liqod/liqod.toml"
        await deferToThread(self.debian.run, "systemctl", "start", "liqod.service")
        await self.until("StatusText", lambda text: text.startswith("leading"))
        first = await self.show("MainPID")
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
        metrics = f'listen = "tcp:{port}:interface=127.0.0.1"'
        configuration.write_text(CONFIGURATION.replace('[metrics]\nlisten = ""', f"[metrics]\n{metrics}"))
        await deferToThread(self.debian.run, "systemctl", "reload", "liqod.service")
        # With systemd 252 `reload` returns while the unit is still reloading.
        await self.until("ActiveState", lambda state: state == "active")
        self.assertEqual(await self.show("MainPID"), first)
        await self.until("StatusText", lambda text: text.startswith("leading"))
        _, writer = await Deferred.fromFuture(asyncio.ensure_future(asyncio.open_connection("127.0.0.1", port)))
        writer.close()

        configuration.write_text("[peering]\nautojoin = 1\n")
        with self.assertRaises(AssertionError):
            await deferToThread(self.debian.run, "systemctl", "reload", "liqod.service")
        journal = await self.run_in("journalctl", "--no-pager", "--output=cat", "--unit=liqod.service")
        self.assertIn("peering.autojoin", journal)
        self.assertEqual((await self.show("ActiveState"), await self.show("MainPID")), ("active", first))
        await self.until("StatusText", lambda text: text.startswith("leading"))
        self.assertEqual(await self.show("NRestarts"), "0")


class UpTests(TestCase):
    """`liqodctl up` and `down` on a bare Debian with liqod's package, and a bare cluster."""

    timeout = 600

    async def setUp(self) -> None:  # type: ignore[override]
        self.debian = await deferToThread(prepared)
        self.addCleanup(lambda: deferToThread(self.debian.stop))
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        await deferToThread(self.debian.chroot, "dpkg", "--install", "/var/tmp/liqod.deb")
        (self.debian.root / "etc/liqod/liqod.toml").write_text(CONFIGURATION)
        (self.debian.root / "var/tmp/admin").write_text(self.cluster.kubeconfig())
        await deferToThread(self.debian.boot)

    async def liqodctl(self, *words: str) -> dict[str, Any]:
        """Run a command in the machine; returns its document."""
        words = ("liqodctl", *words, "--kubeconfig=/var/tmp/admin", "--output=json")
        found: dict[str, Any] = json.loads(await deferToThread(self.debian.run, *words))
        return found

    def found(self) -> tuple[set[str], set[str]]:
        """Return the files of liqod and units on the host, and everything in the cluster but events."""
        root = self.debian.root
        places = ("etc/liqod", "etc/systemd/system", "var/lib", "usr/local")
        files = {str(path.relative_to(root)) for place in places for path in (root / place).rglob("*")}
        files = {file for file in files if not file.startswith(("var/lib/systemd", "var/lib/private"))}
        store = self.cluster.store
        objects = {
            f"{kind} {stored.object['metadata'].get('namespace', '')}/{stored.object['metadata']['name']}"
            for kind in store.resources()
            for stored in store.items(kind)
            if stored.object.get("kind") != "Event"
        }
        return files, objects

    async def test_up_and_down(self) -> None:
        """`up` makes an enabled and ready service, a second run finds it so, `down` leaves what was before."""
        before = self.found()
        document = await self.liqodctl("up", "--yes")
        self.assertEqual({step["step"] for step in document["steps"] if step["state"] == "needed"}, NEEDED)
        self.assertEqual(len(document["words"].split("-")), 10)
        for question in ("is-active", "is-enabled"):
            await deferToThread(self.debian.run, "systemctl", question, "liqod.service")
        again = await self.liqodctl("up")
        self.assertEqual({step["state"] for step in again["steps"]}, {"done"})
        await deferToThread(self.debian.run, "systemctl", "stop", "liqod.service")
        partly = await self.liqodctl("up", "--yes")
        self.assertEqual({step["step"] for step in partly["steps"] if step["state"] == "needed"}, {"service", "ready"})
        self.assertTrue((await self.liqodctl("down", "--yes"))["done"])
        self.assertEqual(self.found(), before)


class HostInstallTests(TestCase):
    """`liqodctl install --host` and `uninstall --host` where no package is installed, and the service ran between."""

    timeout = 600

    async def setUp(self) -> None:  # type: ignore[override]
        self.debian = await deferToThread(prepared)
        self.addCleanup(lambda: deferToThread(self.debian.stop))
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        # The environment alone, as pip makes it: nothing that dpkg knows of.
        unpacked = self.debian.root / "var/tmp/unpacked"
        await deferToThread(self.debian.chroot, "dpkg-deb", "--extract", "/var/tmp/liqod.deb", "/var/tmp/unpacked")
        shutil.move(unpacked / "opt/liqod", self.debian.root / "opt/liqod")
        shutil.rmtree(unpacked)
        (self.debian.root / "var/tmp/admin").write_text(self.cluster.kubeconfig())
        self.debian.chroot("systemd-sysusers", "--inline", "u other -")
        await deferToThread(self.debian.boot)

    def listing(self) -> set[str]:
        """Return path, mode, owner and target of everything in the machine but what it writes by itself."""
        words = ["find", ".", "-xdev", "-printf", "%p %M %u %l\n"]
        found = subprocess.run(words, cwd=self.debian.root, check=True, capture_output=True, text=True).stdout
        return {line for line in found.splitlines() if not line.startswith(RUNNING)}

    async def test_before_and_after(self) -> None:
        """After the service ran and was removed every file is as it was; what was removed is printed, and kept."""
        liqodctl = "/opt/liqod/bin/liqodctl"
        before = self.listing()
        await deferToThread(self.debian.run, liqodctl, "install", "--host")
        # Ports of the test's own, without a change of the configuration, which would be kept.
        own = self.debian.root / "etc/systemd/system/liqod.service.d/own.conf"
        own.parent.mkdir()
        (self.debian.root / "var/tmp/own.toml").write_text(CONFIGURATION)
        command = "/opt/liqod/bin/twistd -n liqod --config /var/tmp/own.toml"
        own.write_text(f"[Service]\nPrivateTmp=no\nExecStart=\nExecStart={command}\n")
        kubeconfig = ("--daemon-kubeconfig", "/etc/liqod/kubeconfig", "--kubeconfig", "/var/tmp/admin")
        await deferToThread(self.debian.run, liqodctl, "install", *kubeconfig)
        await deferToThread(self.debian.run, "systemctl", "daemon-reload")
        await deferToThread(self.debian.run, "systemctl", "enable", "--now", "liqod.service")
        written = self.listing() - before
        self.assertTrue(any(line.startswith("./var/lib/liqod/") for line in written), written)
        await deferToThread(self.debian.run, "systemctl", "disable", "--now", "liqod.service")
        shutil.rmtree(own.parent)
        (self.debian.root / "var/tmp/own.toml").unlink()
        said = await deferToThread(self.debian.run, liqodctl, "uninstall", "--host")
        self.assertIn("removed /var/lib/liqod\n", said)
        self.assertEqual(self.listing() ^ before, set())
        keep("systemd", f"uninstall --host: {len(before)} files before and after, {len(written)} more between:")
        for line in sorted(written):
            keep("systemd", line)
