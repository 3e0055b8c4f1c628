"""What a shell is offered when the user presses TAB."""

from __future__ import annotations

from typing import Any, cast

import click
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console import complete


class ObjectsTests(SynchronousTestCase):
    """What ``explain`` explains."""

    def offered(self, words: list[str], incomplete: str) -> list[str]:
        """Return what is offered after words that are complete."""
        context = click.Context(click.Command("explain"))
        context.params["words"] = words
        return complete.objects(context, cast(Any, None), incomplete)

    def test_kinds(self) -> None:
        """First a kind; after a word that is none, nothing; and after a kind the names that kubectl knows."""
        self.patch(complete, "_kubectl", lambda *_: '{"items": [{"metadata": {"name": "web"}}]}')
        self.assertEqual(self.offered([], "p"), ["peer", "pod"])
        self.assertEqual(self.offered(["nonsense"], ""), [])
        self.assertEqual(self.offered(["pod"], "w"), ["web"])
