"""Which package may replace which: what the script says that dpkg runs first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

from deb import unknown  # noqa: E402 (the tools are scripts beside each other)


class ReplacedTests(SynchronousTestCase):
    def script(self, own: str) -> Path:
        """Return the script of a release."""
        text = (CHECKOUT / "packaging/deb/preinst").read_text()
        path = Path(self.mktemp())
        path.write_text(text.replace("@UNKNOWN@", unknown(own)).replace("@VERSION@", f"{own}-1"))
        path.chmod(0o755)
        return path.absolute()

    def test_refused(self) -> None:
        """A release does not replace one that is two minor releases or more later, nor what a removal left of one."""
        require("" if shutil.which("dpkg") else "dpkg is not installed")
        for own, arguments, status in (
            ("0.1.0", ("upgrade", "0.1.0-1", "0.1.0-1"), 0),
            ("0.1.0", ("upgrade", "0.2.9-1", "0.1.0-1"), 0),
            ("0.1.0", ("upgrade", "0.3.0-1", "0.1.0-1"), 1),
            ("0.1.0", ("upgrade", "1.0.0-1", "0.1.0-1"), 1),
            ("0.9.0", ("upgrade", "0.10.0-1", "0.9.0-1"), 0),
            ("0.9.0", ("upgrade", "0.11.0-1", "0.9.0-1"), 1),
            ("0.1.0", ("install",), 0),
            ("0.1.0", ("install", "0.2.9-1"), 0),
            ("0.1.0", ("install", "0.3.0-1"), 1),
            ("0.9.0", ("install", "0.11.0-1", "0.9.0-1"), 1),
            ("0.1.0", ("abort-upgrade", "0.3.0-1"), 0),
        ):
            done = subprocess.run([self.script(own), *arguments], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, status, (own, arguments, done.stderr))
            self.assertEqual("one minor release at a time" in done.stderr, bool(status))
            self.assertEqual("apt purge liqod" in done.stderr, bool(status) and arguments[0] == "install")
