"""What goes wrong around a daemon on a real cluster: it is one sentence, says what to do, and heals when mended."""

from __future__ import annotations

import atexit
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import ClassVar

from twisted.trial.unittest import SynchronousTestCase

from tests.real.base import require_clusters
from tests.real.daemons import Daemon
from tests.real.path import eventually, in_phase, peer_of, trust_each_other
from tests.testbed.process import CommandFailed, Process, tail
from tests.testbed.testbed import Testbed

ROOT = Path(__file__).resolve().parents[2]


def page(daemon: Daemon, path: str = "/readyz") -> str:
    """Return one of the daemon's pages, or nothing while it has none."""
    try:
        return daemon.cluster.run(["curl", "-s", f"http://127.0.0.1:5874{path}"])
    except CommandFailed:
        return ""


def is_ready(daemon: Daemon) -> bool:
    """Tell whether a daemon says that nothing is missing."""
    return (
        daemon.cluster.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://127.0.0.1:5874/readyz"])
        == "200"
    )


def refused(daemon: Daemon) -> dict[str, float]:
    """Return how often the daemon refused something, by reason."""
    found = re.findall(r'^liqod_refusals_total\{reason="(\w+)"\} ([0-9.]+)$', page(daemon, "/metrics"), re.MULTILINE)
    return {reason: float(count) for reason, count in found}


class Bad(SynchronousTestCase):
    """The base: two clusters without nodes, made once, and a daemon for each that a test starts."""

    _testbed: ClassVar[Testbed | None] = None
    rome: Daemon
    milan: Daemon

    def setUp(self) -> None:
        """Make the clusters before the first test, and make rome's right before each."""
        cls = Bad
        if cls._testbed is None:
            require_clusters()
            cls._testbed = Testbed(2, nodes=False)
            atexit.register(cls._testbed.stop)
            cls._testbed.start()
            cls.rome = Daemon(cls._testbed[1], "rome")
            cls.milan = Daemon(cls._testbed[2], "milan")
            for daemon in (cls.rome, cls.milan):
                daemon.install()
        self.configuration = self.rome.config.read_text()
        self.kubeconfig = self.rome.kubeconfig.read_text()
        self.addCleanup(self.rome.kubeconfig.write_text, self.kubeconfig)
        self.addCleanup(self.rome.config.write_text, self.configuration)
        self.rome.log.unlink(missing_ok=True)
        self.addCleanup(self.rome.stop)

    def python(self, name: str, *argv: str) -> Process:
        """Start a Python program beside rome's daemon, until the test ends."""
        process = self.rome.cluster.spawn(name, ["env", f"PYTHONPATH={ROOT}", sys.executable, *argv])
        self.addCleanup(process.stop, 1.0)
        return process

    def suffers(self, *words: str) -> None:
        """Wait until log and page say all of these words in one sentence, and see that it is said once."""

        def line(text: str) -> str:
            return next((one for one in text.splitlines() if all(word in one for word in words)), "")

        eventually(f"/readyz says {words}", lambda: line(page(self.rome)))
        log = self.rome.log.read_text()
        self.assertTrue(line(log), tail(self.rome.log, 20))
        self.assertNotIn("Traceback", log)
        self.assertFalse(is_ready(self.rome))

    def heals(self) -> None:
        """Wait until the daemon is ready, by itself and without complaint."""
        eventually("the daemon is ready", partial(is_ready, self.rome))
        self.assertNotIn("Traceback", self.rome.log.read_text())


class EnvironmentTests(Bad):
    """Each test breaks one thing that the daemon stands on, and mends it."""

    def test_no_api_server_and_a_wrong_clock(self) -> None:
        """Without an API server, and with one whose clock is far off, the daemon waits and says so."""
        directory = self.rome.cluster.directory
        skew = directory / "skew"
        skew.write_text("400")
        self.addCleanup(skew.unlink, missing_ok=True)
        self.rome.kubeconfig.write_text(self.kubeconfig.replace(":6443", ":7443"))
        self.rome.start()
        self.suffers("cannot reach the API server", ":7443", "check the network")
        self.python("front", "-m", "tests.real.front", str(directory), "7443")
        self.suffers("behind the API server's", "timedatectl")
        skew.unlink()
        self.heals()

    def test_wrong_credentials(self) -> None:
        """A token that the cluster does not know is distinguished from missing rights; a new one in the file is
        enough.
        """
        self.rome.kubeconfig.write_text(re.sub(r"token: .*", "token: nobody-knows-this", self.kubeconfig))
        self.rome.start()
        self.suffers("does not know the credentials", "liqodctl install")
        self.assertNotIn("nobody-knows-this", self.rome.log.read_text())
        self.rome.kubeconfig.write_text(self.kubeconfig)
        self.heals()

    def test_credentials_that_end(self) -> None:
        """Tokens end with the account's Secret; one that is written while the daemon runs is read from the file."""
        self.rome.start()
        self.heals()
        self.rome.cluster.kubectl("delete", "secret", "-n", "liqo-system", "liqod-account")
        eventually("the daemon is not ready", lambda: not is_ready(self.rome))
        self.rome.install()
        self.kubeconfig = self.rome.kubeconfig.read_text()
        self.addCleanup(self.rome.kubeconfig.write_text, self.kubeconfig)
        self.heals()

    def test_missing_rights(self) -> None:
        """An account without rights learns each one that is missing, and what gives it all of them."""
        self.rome.cluster.kubectl("delete", "clusterrolebinding", "liqod")
        self.addCleanup(self.rome.install)
        self.rome.start()
        self.suffers("the daemon may not", "liqodctl install", "liqo-system/liqod")
        self.assertIn("\nRightsMissing: the daemon may not list pods\n", page(self.rome))
        self.rome.install()
        self.heals()

    def test_missing_definitions(self) -> None:
        """Where the daemon does not manage definitions, it names the missing one and what installs it."""
        self.rome.cluster.kubectl("delete", "crd", "advertisements.sharing.liqo.io")
        self.addCleanup(self.rome.install)
        self.rome.config.write_text(self.configuration.replace("[kubernetes]", "[kubernetes]\nmanage-crds = false"))
        self.rome.start()
        self.suffers("advertisements.sharing.liqo.io", "liqodctl install", "manage-crds = true")
        self.rome.install()
        self.heals()

    def test_ports_in_use(self) -> None:
        """A port that another program has is named with its setting, for peers and for the webhook."""
        for port, words in (
            (5872, ("cannot listen on port 5872", "[peering] listen", "ss -ltnp")),
            (5873, ("webhook.listen", "5873", "ss -ltnp")),
        ):
            code = f"import socket, time; s = socket.create_server(('', {port})); time.sleep(600)"
            squatter = self.python(f"squatter-{port}", "-c", code)
            eventually("the port is taken", partial(self.is_taken, port))
            self.rome.start()
            self.suffers(*words)
            squatter.stop(1.0)
            self.heals()
            self.rome.stop()

    def is_taken(self, port: int) -> bool:
        """Tell whether something listens at a port of rome's host."""
        return bool(self.rome.cluster.run(["ss", "-Hltn", f"sport = :{port}"]).strip())


class CallerTests(Bad):
    """Bad callers on the peering port of a daemon that has a session."""

    def test_bad_callers(self) -> None:
        """Garbage, other protocols, huge, senseless and slow frames and unknown keys are refused, counted, and harm
        nobody.
        """
        shutil.copy(self.rome.kubeconfig, self.rome.directory / "kubeconfig.kept")
        self.addCleanup(self.milan.stop)
        for daemon in (self.rome, self.milan):
            daemon.start()
        trust_each_other(self.rome, self.milan)
        seen = partial(peer_of, self.rome.cluster, "milan")
        eventually("the peering is up", lambda: in_phase(seen, "Ready") or in_phase(seen, "Accepted"))

        def authenticated() -> dict[str, str]:
            return next(c for c in seen()["status"]["conditions"] if c["type"] == "Authenticated")

        before, counted = authenticated(), refused(self.rome)
        sessions = self.rome.log.read_text().count("session")
        for kind, reasons in (
            ("garbage", {"HandshakeFailed"}),
            ("alpn", {"HandshakeFailed", "NoCommonProtocol"}),
            ("bare", {"HandshakeFailed", "NoCertificate"}),
            ("oversized", {"FrameLength"}),
            ("nonsense", {"NotMsgpack", "NotAnEvent"}),
            ("unknown", {"TrustPending"}),
            ("slow", {"HandshakeTimeout"}),
        ):
            argv = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.real.intruder"]
            took = float(self.milan.cluster.run([*argv, self.rome.cluster.address, "5872", kind]))
            self.assertLess(took, 30.0, kind)
            eventually(f"{kind} is counted", partial(self.has_grown, counted, reasons))
            counted = refused(self.rome)
        self.assertEqual(authenticated(), before)
        self.assertTrue(is_ready(self.rome))
        self.assertIn('liqod_sessions{role="', page(self.rome, "/metrics"))
        log = self.rome.log.read_text()
        self.assertNotIn("Traceback", log)
        self.assertLess(log.count("session") - sessions, 10, tail(self.rome.log, 30))

    def has_grown(self, counted: dict[str, float], reasons: set[str]) -> bool:
        """Have rome count more refusals than before for one of some reasons."""
        now = refused(self.rome)
        grown = {reason for reason in now if now[reason] > counted.get(reason, 0.0)}
        self.assertTrue(grown & reasons, f"{grown}, not {reasons}")
        return True
