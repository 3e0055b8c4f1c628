"""Prometheus' own tool on the alert rules: ``make nightly ARGS=alerts``; it needs promtool, Debian's ``prometheus``."""

from __future__ import annotations

import shutil
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.packaging.test_monitoring import MONITORING


class AlertRuleTests(SynchronousTestCase):
    """The alert rules, evaluated by Prometheus."""

    def test_alerts_fire_and_resolve(self) -> None:
        """Prometheus' own tool finds rules and jobs correct, and its unit tests of the rules pass."""
        tool = shutil.which("promtool")
        require("" if tool else "promtool (Debian: prometheus) is needed")
        for arguments in (
            ["check", "rules", "alerts.yaml"],
            ["test", "rules", "alerts_test.yaml"],
            ["check", "config", "--syntax-only", "prometheus.yaml"],
        ):
            done = subprocess.run([str(tool), *arguments], cwd=MONITORING, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
