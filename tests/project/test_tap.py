"""``twistd liqod`` as an operator runs it: a real process, its status and what it prints."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.application.service import Service
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.tap import DaemonService

REACTOR: Any = reactor
ROOT = Path(__file__).resolve().parents[2]
START = "import sys; from twisted.scripts.twistd import run; sys.argv[0] = 'twistd'; run()"
"""What the script ``twistd`` runs, without depending on where it is installed."""
WITH_SIGHUP = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); {START}"
"""The same for a process to which SIGHUP means something, also where these tests run under nohup(1)."""
TWISTD = ("-n", "liqod", "--config")


class TwistdTests(TestCase):
    timeout = 60

    def write(self, text: str) -> str:
        path = Path(self.mktemp()).absolute()
        path.write_text(text)
        return str(path)

    async def run_twistd(self, *arguments: str, reactor: str = "") -> tuple[str, str, int]:
        environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "PYTHONPATH": str(ROOT)}
        twistd = ["--nodaemon", "--pidfile=", *([f"--reactor={reactor}"] if reactor else []), "liqod"]
        out, err, status = await getProcessOutputAndValue(
            sys.executable, ["-c", START, *twistd, *arguments], env=environ, path=str(ROOT)
        )
        return out.decode(), err.decode(), status

    async def test_all_problems(self) -> None:
        """A wrong configuration ends with status 2, every problem and no traceback."""
        config = self.write('[peering]\nlisten = "5872"\nautojoin = 1\n[sharing]\npercentage = 200\n')
        out, err, status = await self.run_twistd("--config", config)
        self.assertEqual(status, 2, err)
        lines = err.splitlines()
        self.assertEqual(len(lines), 3, err)
        for line, setting in zip(lines, ("peering.autojoin", "sharing.percentage", "peering.listen"), strict=True):
            self.assertTrue(line.startswith(f"liqod: {setting} = "), line)
        self.assertNotIn("Traceback", out + err)

    async def test_missing_file(self) -> None:
        """A configuration that is not there is a sentence, too."""
        out, err, status = await self.run_twistd("--config", "/nonexistent/liqod.toml")
        self.assertEqual(status, 2)
        self.assertEqual(
            err, "liqod: /nonexistent/liqod.toml: no such file or directory; name the configuration with --config\n"
        )
        self.assertNotIn("Traceback", out)

    async def test_wrong_reactor(self) -> None:
        """Another reactor is refused with the command line to use."""
        out, err, status = await self.run_twistd("--config", self.write(""), reactor="epoll")
        self.assertEqual(status, 2, err)
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn("leave out --reactor: twistd -n liqod --config ", err)
        self.assertNotIn("Traceback", out + err)

    async def test_check(self) -> None:
        """--check says that the shipped configuration is good, under any reactor, and starts nothing."""
        out, err, status = await self.run_twistd(
            "--check", "--config", str(ROOT / "etc" / "liqod.toml"), reactor="epoll"
        )
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(out.endswith("liqod.toml: good\n"), out)

    async def test_check_reads_the_identity(self) -> None:
        """--check finds files under [identity] that hold nothing of what they should."""
        empty = self.write("")
        for setting in (f'ca = "{empty}"', f'key = "{empty}"\ncertificate = "{empty}"'):
            _, err, status = await self.run_twistd("--check", "--config", self.write(f"[identity]\n{setting}\n"))
            self.assertEqual(status, 2)
            self.assertTrue(err.startswith("liqod: ") and empty in err, err)

    async def test_help(self) -> None:
        """--help names the options and the default configuration."""
        out, _, status = await self.run_twistd("--help")
        self.assertEqual(status, 0)
        self.assertIn("--config=", out)
        self.assertIn("/etc/liqod/liqod.toml", out)
        self.assertIn("--check", out)

    async def test_version(self) -> None:
        """--version names liqod and its version."""
        out, err, status = await self.run_twistd("--version")
        self.assertEqual((out, err, status), (f"liqod {version('liqod')}\n", "", 0))

    async def test_light_plugin(self) -> None:
        """Listing twistd's commands imports nothing of the daemon."""
        program = (
            "import sys; from twisted.plugin import getPlugins; "
            "from twisted.application.service import IServiceMaker; "
            "names = [plugin.tapname for plugin in getPlugins(IServiceMaker)]; "
            "assert 'liqod' in names, names; "
            "print([name for name in sys.modules if name.startswith('liqod')])"
        )
        out, err, status = await getProcessOutputAndValue(sys.executable, ["-c", program], path=str(ROOT))
        self.assertEqual((out.strip(), status), (b"[]", 0), err)

    async def test_full_collection(self) -> None:
        """A full collection of a daemon that was made looks at next to nothing of what its modules are made of."""
        program = (
            "import gc; from twisted.internet import asyncioreactor; asyncioreactor.install(); from liqod import tap; "
            f"options = tap.Options(); options['config'] = {self.write('')!r}; service = tap.makeService(options); "
            "print(gc.get_threshold() == tap.COLLECTIONS, len(gc.get_objects()) * 20 < gc.get_freeze_count())"
        )
        out, err, status = await getProcessOutputAndValue(sys.executable, ["-c", program], path=str(ROOT))
        self.assertEqual((out.strip(), status), (b"True True", 0), err)

    async def test_lines_that_are_not_written(self) -> None:
        """What the level and the list of noise leave out takes nothing from the bounds, and is never reported."""
        config = self.write('[log]\nlevel = "warn"\nformat = "json"\n')
        program = (
            "from twisted.internet import asyncioreactor; asyncioreactor.install(); from liqod import tap; "
            "from twisted.application.service import Application; from twisted.logger import ILogObserver, Logger; "
            f"options = tap.Options(); options['config'] = {config!r}; options.parent = {{'nodaemon': True}}; "
            "application = Application('liqod'); tap.makeService(options).setServiceParent(application); "
            "part = Logger('liqod.part', observer=ILogObserver(application)); "
            "[(part.info('{peer}', peer=n), part.warn('x starting on 1')) for n in range(1100)]; part.warn('at last')"
        )
        out, err, status = await getProcessOutputAndValue(
            sys.executable, ["-c", program], env=os.environ | {"PYTHONPATH": str(ROOT)}, path=str(ROOT)
        )
        self.assertEqual(status, 0, err)
        self.assertEqual([json.loads(line)["message"] for line in out.splitlines()], ["at last"])


class StopTests(SynchronousTestCase):
    def test_the_last_report(self) -> None:
        """What was left out of the log is reported when all parts have stopped, once."""
        ended: Deferred[None] = Deferred()
        reports: list[str] = []
        daemon = DaemonService(None, partial(reports.append, "reported"))
        part = Service()
        part.stopService = lambda: ended  # type: ignore[method-assign]
        part.setServiceParent(daemon)
        daemon.startService()
        stopping = daemon.stopService()
        self.assertEqual(reports, [])
        ended.callback(None)
        self.successResultOf(stopping)
        self.assertEqual(reports, ["reported"])


class LivesTests(TestCase):
    timeout = 60

    def prepare(self) -> tuple[socket.socket, dict[str, str], Path]:
        """Return a service manager's socket, the environment of a daemon, and its configuration for a new cluster."""
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        kubeconfig = Path(self.mktemp()).absolute()
        kubeconfig.write_text(cluster.kubeconfig())
        config = Path(self.mktemp()).absolute()
        config.write_text(
            f'[kubernetes]\nkubeconfig = "{kubeconfig}"\n[discovery]\nmdns = false\n[metrics]\nlisten = ""\n'
            '[peering]\nlisten = "tcp:0:interface=127.0.0.1"\n[webhook]\nlisten = "tcp:0:interface=127.0.0.1"\n'
            '[network]\nmode = "none"\n'
        )
        systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(systemd.close)
        systemd.bind("")
        systemd.setblocking(False)
        environ = os.environ | {
            "NOTIFY_SOCKET": "@" + systemd.getsockname()[1:].decode(),
            "WATCHDOG_USEC": "600000",
            "PYTHONPATH": str(ROOT),
        }
        return systemd, environ, config

    async def test_reports_itself(self) -> None:
        """The real program on a cluster tells the service manager that it is ready, what it does, and that it stops."""
        systemd, environ, config = self.prepare()
        reported: list[str] = []
        with subprocess.Popen(
            [sys.executable, "-c", START, *TWISTD, str(config)],
            env=environ,
            cwd=config.parent,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                await self.until(lambda: _collect(systemd, reported), lambda: "STATUS=leading" in reported)
                await self.until(lambda: _collect(systemd, reported), lambda: reported.count("WATCHDOG=1") > 2)
            finally:
                process.send_signal(signal.SIGTERM)
            await self.until(lambda: _collect(systemd, reported), lambda: process.poll() is not None)
            assert process.stdout is not None
            log = process.stdout.read()
        self.assertIn("READY=1", reported)
        self.assertIn("STOPPING=1", reported)
        self.assertLess(reported.index("STATUS=leading"), reported.index("READY=1"))
        self.assertIn("this daemon leads as", log)
        self.assertNotIn("Traceback", log)
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertFalse((config.parent / "twistd.pid").exists(), "a PID file, in the foreground")

    async def test_json(self) -> None:
        """With ``format = "json"`` every line is an object, from the start to the end of the daemon, and none
        shows what repr shows.
        """
        systemd, environ, config = self.prepare()
        config.write_text(config.read_text() + '[log]\nformat = "json"\nlevel = "debug"\n')
        reported: list[str] = []
        out = config.with_suffix(".log")
        with (
            out.open("wb") as stream,
            subprocess.Popen(
                [sys.executable, "-c", START, *TWISTD, str(config)],
                env=environ,
                cwd=config.parent,
                stdout=stream,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            collect = partial(_collect, systemd, reported)
            try:
                await self.until(collect, partial(reported.__contains__, "READY=1"))
            finally:
                process.send_signal(signal.SIGTERM)
            await self.until(collect, lambda: process.poll() is not None)
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        for line in lines:
            self.assertEqual(list(line)[:4], ["time", "level", "component", "message"], line)
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
            self.assertNotRegex(json.dumps(line), r"0x[0-9a-f]{6}|<[a-z_]+[ .]|\(\w+='|\bb'", line)
        components = {line["component"].partition(".")[0] for line in lines}
        self.assertEqual(components, {"liqod", "twisted"})

    async def test_reloads(self) -> None:
        """SIGHUP: a wrong configuration changes nothing and is reported; a good one starts the same process again."""
        systemd, environ, config = self.prepare()
        good, reported = config.read_text(), list[str]()

        def look() -> None:
            _collect(systemd, reported)

        with subprocess.Popen(
            [sys.executable, "-c", WITH_SIGHUP, "--pidfile=reload.pid", *TWISTD, config.name],
            env=environ,
            cwd=config.parent,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                await self.until(look, lambda: "READY=1" in reported)
                for text, said in (
                    (f"{good}\n[sharing]\npercentage = 200\n", "STATUS=leading; the configuration is wrong"),
                    (good, "STATUS=leading"),
                ):
                    reported.clear()
                    config.write_text(text)
                    process.send_signal(signal.SIGHUP)
                    await self.until(look, lambda: "READY=1" in reported)
                    self.assertTrue([line for line in reported if line.startswith(said)], reported)
                    # The watchdog has its own clock.
                    first = next(line for line in reported if line != "WATCHDOG=1")
                    self.assertTrue(first.startswith("RELOADING=1\nMONOTONIC_USEC="), reported)
                self.assertNotIn("STATUS=the daemon is stopping", reported)
                reported.clear()
                config.write_text(f"{good}\n[sharing]\npercentage = 20\n")
                for _ in range(3):
                    process.send_signal(signal.SIGHUP)
                await self.until(look, lambda: "READY=1" in reported and "STATUS=leading" in reported)
                self.assertNotIn("STOPPING=1", reported)
                reported.clear()
                process.send_signal(signal.SIGHUP)
                await self.until(look, lambda: "READY=1" in reported)
                self.assertIsNone(process.poll())
            finally:
                process.send_signal(signal.SIGTERM)
            await self.until(look, lambda: process.poll() is not None)
            assert process.stdout is not None
            log = process.stdout.read()
        self.assertEqual(process.returncode, -signal.SIGTERM)
        self.assertIn("the daemon goes on as it was: sharing.percentage = 200", log)
        self.assertEqual(log.count("this daemon leads as"), 2, log)
        self.assertIn("the configuration was read again: nothing has changed", log)
        self.assertNotIn("Traceback", log)

    async def until(self, look: Callable[[], None], holds: Callable[[], bool]) -> None:
        deadline = REACTOR.seconds() + 30
        while True:
            look()
            if holds():
                return
            if REACTOR.seconds() > deadline:
                raise AssertionError("it did not happen in time")
            await deferLater(REACTOR, 0.05)


def _collect(systemd: socket.socket, reported: list[str]) -> None:
    while True:
        try:
            reported.append(systemd.recv(4096).decode())
        except BlockingIOError:
            return
