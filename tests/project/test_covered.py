"""How the unit tests are measured: in every process, counted by package, and held to a floor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.covered import Share, environment, floor_of_settings, read, report, shares, whole
from tests.runner.steps import CHECKOUT

FILES = {
    "liqod/tap.py": {"covered_lines": 3, "num_statements": 4},
    "liqod/kube/requests.py": {"covered_lines": 5, "num_statements": 10, "covered_branches": 1, "num_branches": 2},
    "liqod/kube/cache/store.py": {"covered_lines": 4, "num_statements": 8},
    "liqod/wire/__init__.py": {"covered_lines": 0, "num_statements": 0},
}
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import liqod.model.text'], check=True, cwd='/')"


class CountedTests(SynchronousTestCase):
    """What becomes of the numbers of files."""

    def test_by_package(self) -> None:
        """Files count with their lines and branches for the package that is directly below ``liqod``, worst first."""
        self.assertEqual(shares(FILES), [Share("liqod.kube", 10, 20), Share("liqod", 3, 4), Share("liqod.wire", 0, 0)])
        self.assertEqual([one.percent for one in shares(FILES)], [50.0, 75.0, 100.0])
        self.assertEqual(whole(shares(FILES)), Share("total", 13, 24))

    def test_floor(self) -> None:
        """Below the floor it fails and names the setting; at the floor it does not."""
        found = [Share("liqod.kube", 17, 20)]
        lines, status = report(found, 85.0)
        self.assertEqual((lines[-1], status), ("total        85.0 %  17 of 20", 0))
        lines, status = report(found, 85.1)
        self.assertEqual(status, 1)
        self.assertIn("fail_under in setup.cfg", lines[-1])

    def test_nothing(self) -> None:
        """A run that measured nothing is no success, whatever the floor."""
        self.assertEqual(report([], 0.0)[1], 1)

    def test_there_is_a_floor(self) -> None:
        """The settings name one that means something."""
        self.assertGreaterEqual(floor_of_settings(), 50.0)
        self.assertLess(floor_of_settings(), 100.0)


class MeasuredTests(SynchronousTestCase):
    """Processes that are measured."""

    def test_child_of_a_child(self) -> None:
        """What a process runs that another one started, elsewhere, counts; what nobody imports counts as not run."""
        place = Path(self.mktemp()).absolute()
        place.mkdir()
        environ = environment(place) | {"PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run(
            [sys.executable, "-c", CHILD], cwd=CHECKOUT, env=environ, capture_output=True, text=True, check=False
        )
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        found = read(place)
        self.assertGreater(found["liqod/model/text.py"]["covered_lines"], 0)
        self.assertEqual(found["liqod/tap.py"]["covered_lines"], 0)
        self.assertGreater(found["liqod/tap.py"]["num_statements"], 0)

    def test_nothing_is_there(self) -> None:
        """Where no process wrote anything there are no files."""
        place = Path(self.mktemp()).absolute()
        place.mkdir()
        self.assertEqual(read(place), {})
