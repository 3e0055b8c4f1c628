"""What a shell is offered when the user presses TAB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import click
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console import complete


class PatienceTests(SynchronousTestCase):
    """A ``kubectl`` that takes long."""

    def offered(self, seconds: float) -> list[str]:
        """Return the namespaces that are offered where kubectl may take so many seconds, and takes two."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        program = folder / "kubectl"
        program.write_text("""#!/bin/sh\nsleep 2\necho '{"items": [{"metadata": {"name": "shop"}}]}'\n""")
        program.chmod(0o755)
        self.patch(os, "environ", {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"})
        self.patch(complete, "TIMEOUT", seconds)
        return complete.namespaces(click.Context(click.Command("offload")), cast(Any, None), "s")

    def test_too_long(self) -> None:
        """Nothing is offered instead of what comes too late."""
        self.assertEqual(self.offered(0.2), [])

    def test_in_time(self) -> None:
        """What comes in time is offered."""
        self.assertEqual(self.offered(60.0), ["shop"])


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
