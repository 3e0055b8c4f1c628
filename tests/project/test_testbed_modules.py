"""Programs that test clusters have beside the usual ones: what they are built from, and what a test does without."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.trial.unittest import FailTest, SynchronousTestCase

from tests.real import base
from tests.testbed import build, modules
from tests.testbed.process import CommandFailed


class ModuleTests(SynchronousTestCase):
    """The ``go.mod`` of a program."""

    def test_text(self) -> None:
        """It requires one module, and names what stands for another one."""
        wanted = modules.Wanted("a.example/m", "v1", "a.example/m/cmd/p", {"a.example/m": "b.example/m v2"})
        text = wanted.text()
        self.assertIn("\nrequire a.example/m v1\n", text)
        self.assertIn("\ntool (\n\ta.example/m/cmd/p\n)\n", text)
        self.assertIn("\nreplace (\n\ta.example/m => b.example/m v2\n)\n", text)

    def test_own_packages(self) -> None:
        """Each program is a package of its own module, and what is replaced is that module."""
        for name, wanted in modules.PROGRAMS.items():
            with self.subTest(name=name):
                self.assertTrue(f"{wanted.package}/".startswith(f"{wanted.module}/"))
                self.assertTrue(set(wanted.replaced) <= {wanted.module})


class BuiltTests(SynchronousTestCase):
    """A module whose programs cannot be had."""

    def setUp(self) -> None:
        """Have builds that fail."""
        self.tried: list[str] = []
        self.fails = True
        self.patch(build, "ensure", self.ensure)
        self.patch(base, "_UNBUILT", {})

    def ensure(self, names: Sequence[str], version: str) -> None:
        """Note what is built, and fail."""
        self.tried += names
        if self.fails:
            raise CommandFailed(["go", "mod", "tidy"], 1, "the proxy refuses a.example/m")

    def test_it_fails(self) -> None:
        """Every step fails and none is skipped; it is tried once in a process."""
        for _ in range(2):
            with self.assertRaisesRegex(FailTest, "p cannot be had: .*the proxy refuses a.example/m"):
                base.require_built(["p"])
        self.assertEqual(self.tried, ["p"])

    def test_what_is_built(self) -> None:
        """What can be had is no reason for anything, whatever could not."""
        with self.assertRaises(FailTest):
            base.require_built(["p"])
        self.fails = False
        base.require_built(["q"])
        with self.assertRaises(FailTest):
            base.require_built(["p"])
        base.require_built(["p"], "1.30.14")
