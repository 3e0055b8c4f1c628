"""The demonstration runs as a user runs it, and leaves nothing behind."""

from __future__ import annotations

import glob
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from click.testing import CliRunner
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.cli.console.errors import CliError
from liqod.cli.setup import demo as demo_command
from liqod.demo.side import DemoCluster
from liqod.demo.story import Demo, DemoFailed
from liqod.kube.errors import AlreadyExists

ROOT = Path(__file__).resolve().parents[2]
SHOWN = ("FINGERPRINT WORDS", "one session, TLS 1.3", "liqo-milan", "shop-rome-", "milan-1", "nothing of it is left")
COMMAND = [sys.executable, "-m", "liqod.cli", "demo"]


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "COLUMNS": "180", "TMPDIR": tempfile.gettempdir()}


class Silent:
    """An audience that only remembers."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.notes: list[str] = []

    def begin(self, text: str) -> None:
        self.steps.append(text)

    def done(self, text: str, seconds: float) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    async def started(self, sides: tuple[DemoCluster, DemoCluster]) -> None:
        pass

    async def discovered(self, side: DemoCluster) -> None:
        pass

    async def status(self, side: DemoCluster) -> None:
        pass

    async def pods(self, home: DemoCluster, lender: DemoCluster) -> None:
        pass

    async def keep_running(self, sides: tuple[DemoCluster, DemoCluster]) -> None:
        pass


class FailureTests(SynchronousTestCase):
    """What may go otherwise than it should."""

    def test_a_record_without_a_session(self) -> None:
        """Where the record of the other cluster is there, but no session yet, it need not be added by hand."""
        waited: list[str] = []

        async def within(seconds: float, waiting: object, what: str) -> None:
            waited.append(what)
            if what == "mDNS":
                raise DemoFailed("a slow machine")

        async def add_peer(other: object) -> None:
            raise AlreadyExists(409, "AlreadyExists", "it was discovered")

        demo: Any = Demo.__new__(Demo)
        demo._audience, demo.patience, demo._within, demo._both = Silent(), 1.0, within, lambda _: None
        demo.rome, demo.milan = SimpleNamespace(add_peer=add_peer), None
        self.successResultOf(Deferred.fromCoroutine(demo._meet()))
        self.assertEqual(waited, ["mDNS", "the first contact"])

    def test_log(self) -> None:
        """The log is kept in a file that nobody else made, and nobody else reads."""
        place = Path(self.mktemp()).absolute()
        place.mkdir()
        (place / "liqod.log").write_text("what happened")
        (place / "mine").write_text("precious")
        (place / "liqod-demo.log").symlink_to(place / "mine")

        def fails(work: object) -> None:
            raise DemoFailed("it was slow")

        self.patch(tempfile, "tempdir", str(place))
        self.patch(demo_command, "run", fails)
        self.patch(demo_command, "_log_directory", lambda: nullcontext(place))
        error = CliRunner().invoke(demo_command.demo, []).exception
        assert isinstance(error, CliError), error
        self.assertEqual((place / "mine").read_text(), "precious")
        (kept,) = place.glob("liqod-demo-*.log")
        self.assertIn(str(kept), error.hint)
        self.assertEqual((kept.read_text(), kept.stat().st_mode & 0o077), ("what happened", 0))


class CommandTests(SynchronousTestCase):
    def test_runs(self) -> None:
        """liqodctl demo ends, shows pods of rome that run in milan, and leaves no file."""
        before = set(glob.glob(f"{tempfile.gettempdir()}/liqod-demo-*"))
        done = subprocess.run(
            COMMAND, capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=120, check=False
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for text in (
            "FINGERPRINT WORDS",
            "one session, TLS 1.3",
            "liqo-milan",
            "shop-rome-",
            "milan-1",
            "nothing of it is left",
        ):
            self.assertIn(text, done.stdout)
        self.assertNotIn("\x1b", done.stdout)
        self.assertEqual(done.stderr, "")
        self.assertLessEqual(set(glob.glob(f"{tempfile.gettempdir()}/liqod-demo-*")), before)

    def test_web(self) -> None:
        """With --web both clusters have a page, which shows the other one as soon as the demonstration has borrowed."""
        with subprocess.Popen(
            [*COMMAND, "--web"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=environment(),
        ) as process:
            try:
                assert process.stdout is not None
                pages = {}
                for line in process.stdout:
                    if "http://127.0.0.1:" in line:
                        name, url = line.split()
                        pages[name] = url
                    if "log:" in line:
                        break
                self.assertEqual(set(pages), {"rome", "milan"})
                for name, other in (("rome", "milan"), ("milan", "rome")):
                    with urllib.request.urlopen(pages[name], timeout=60) as answer:
                        shown = answer.read().decode()
                    self.assertIn(f"<h1>{name}</h1>", shown)
                    self.assertRegex(shown, f">{other}</a>")
            finally:
                process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            self.assertEqual(process.wait(60), 0, rest)

    def test_stays(self) -> None:
        """With --stay both clusters answer until Ctrl-C, and then everything goes."""
        with subprocess.Popen(
            [*COMMAND, "--stay"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=environment(),
        ) as process:
            try:
                assert process.stdout is not None
                kubeconfigs = []
                for line in process.stdout:
                    if "export KUBECONFIG=" in line:
                        kubeconfigs.append(line.split("=", 1)[1].split()[0])
                    if "log:" in line:
                        break
                self.assertEqual(len(kubeconfigs), 2)
                for kubeconfig, other in zip(kubeconfigs, ("milan", "rome"), strict=True):
                    shown = subprocess.run(
                        [sys.executable, "-m", "liqod.cli", "status", "--kubeconfig", kubeconfig],
                        capture_output=True, text=True, cwd=ROOT, env=environment(), timeout=60, check=False,
                    )  # fmt: skip
                    self.assertIn(other, shown.stdout, shown.stderr)
                    self.assertEqual(Path(kubeconfig).stat().st_mode & 0o077, 0)
            finally:
                process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            self.assertEqual(process.wait(60), 0, rest)
        self.assertFalse(Path(kubeconfigs[0]).parent.exists())


class InProcessTests(TestCase):
    timeout = 90

    async def test_all(self) -> None:
        """It runs in this process, all steps, and leaves the reactor clean."""
        audience = Silent()
        await Demo(cast(Any, reactor), audience).run()
        self.assertEqual(len(audience.steps), 8)
        self.assertTrue(any("words" in note for note in audience.notes))

    async def test_fails(self) -> None:
        """Where a step does not come about it says which, what the daemons say, and takes everything down."""
        demo = Demo(cast(Any, reactor), Silent())

        async def never(other: DemoCluster) -> None:
            """An administrator who compares words and then forgets to trust."""
            demo.patience = 3.0

        demo.milan.trust = never  # type: ignore[method-assign]
        try:
            await demo.run()
        except DemoFailed as error:
            self.assertIn("waiting for the session", str(error))
            self.assertIn("milan: leading", str(error))
        else:
            self.fail("it succeeded without trust")
