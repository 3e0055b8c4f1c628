"""The page of attacks is the list of their tests."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.attack.page import attacks, selected, tests_of


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
