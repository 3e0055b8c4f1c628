"""The page of attacks is the list of their tests."""

from __future__ import annotations

import importlib
import re
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.attack.page import attacks, selected, tests_of
from tests.runner.steps import CHECKOUT

CLOSED: Final = CHECKOUT / "docs" / "closed-holes.md"
NAME: Final = re.compile(r"`([a-z_0-9]+(?:\.\w+)+)`")


class AttacksTests(SynchronousTestCase):
    """What ``make attack`` runs."""

    def test_each_attack_has_a_test(self) -> None:
        """Each row of the page names a test that exists, and what it names can be run."""
        without = [one.text for one in attacks() if not any(map(tests_of, one.names))]
        self.assertEqual(without, [])
        self.assertGreater(len(selected(unit=True)), 100)

    def test_cases_run_on_both(self) -> None:
        """A case that is written once runs on the sandbox, and with the module on real clusters."""
        found = tests_of("hosting.isolation_cases.IsolationCase.test_what_is_of_others")
        sandbox = "tests.hosting.test_service.HostingOnTheSandboxTests.test_what_is_of_others"
        self.assertEqual(sorted(found), [sandbox, "tests.real.test_hosting"])


class ClosedHolesTests(SynchronousTestCase):
    """The page of the classes of holes that were closed."""

    def test_each_class_has_a_test(self) -> None:
        """Each row names tests, and all that is named exists."""
        rows = [line for line in CLOSED.read_text().splitlines() if line.startswith("| ") and "---" not in line][1:]
        self.assertGreater(len(rows), 20)
        for row in rows:
            names = NAME.findall(row)
            self.assertTrue(names, row)
            for name in names:
                self.assertTrue(tests_of(name), name)
                self.assertTrue(is_there(name), name)


def is_there(name: str) -> bool:
    """Return whether a module of the tests has what a name says."""
    parts = ["tests", *name.split(".")]
    count = next(n for n in range(len(parts), 0, -1) if (CHECKOUT.joinpath(*parts[:n]).with_suffix(".py")).is_file())
    found: object = importlib.import_module(".".join(parts[:count]))
    for part in parts[count:]:
        found = getattr(found, part, None)
    return found is not None
