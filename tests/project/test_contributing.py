"""CONTRIBUTING.md says of each module of liqod, in "Where do I find, or put", what is found there."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.project.test_architecture import CHECKOUT, python_files

HEADING = "## Where do I find, or put"
NAMED = re.compile(r"`(liqod/[\w/]*(?:\.py)?)`")


def rows() -> list[str]:
    """Return the rows of the table."""
    text = (CHECKOUT / "CONTRIBUTING.md").read_text().partition(HEADING)[2].partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")][1:]


def is_named(module: Path, named: set[str]) -> bool:
    """Return whether a module, or a folder that it is in, is named."""
    place = module.relative_to(CHECKOUT)
    return str(place) in named or any(f"{folder}/" in named for folder in place.parents)


class ContributingTests(SynchronousTestCase):
    """The table is complete."""

    def setUp(self) -> None:
        self.named = set(NAMED.findall("\n".join(rows())))

    def test_each_module_has_a_row(self) -> None:
        """A row names each module, or a folder that has it; so each package has one."""
        modules = [file for file in python_files("liqod") if not file.name.startswith("__")]
        self.assertGreater(len(modules), 500)
        self.assertEqual([str(one.relative_to(CHECKOUT)) for one in modules if not is_named(one, self.named)], [])

    def test_no_feature_has_one_row_for_all(self) -> None:
        """A feature with packages of its own is not named as a whole, but for commands, which are by subject."""
        whole = [one for one in self.named if one.endswith("/") and one.count("/") == 2]
        nested = [one for one in whole if list((CHECKOUT / one).glob("*/__init__.py"))]
        self.assertEqual(sorted(nested), ["liqod/cli/", "liqod/model/"])

    def test_what_is_asked_most(self) -> None:
        """A reflected kind, a setting and a reason code are found by these words."""
        first = [row.removeprefix("| ").partition(" |")[0] for row in rows()]
        for word in ("a reflected kind", "a setting", "a reason code", "a metric", "a security event"):
            self.assertTrue(any(one.startswith(word) for one in first), word)
