"""The documents name commands and options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"(?:^ {4,}(?:\$ )?|`)(?:\S*/)?liqodctl ([^`#\n]+)", re.MULTILINE)


def calls() -> Iterator[tuple[str, str]]:
    """Yield each call of liqodctl in a code span or block, with the name of its document."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if path.name == "moved.md":
            continue
        for found in CALL.finditer(path.read_text()):
            yield path.name, found[1].strip()


def unknown(call: str) -> str:
    """Return the first word of a call that is no command or option; empty where all are."""
    command: click.Command = cli
    context = click.Context(cli)
    words = shlex.split(call.replace("'", " ").replace('"', " "))
    known = {name for one in cli.params for name in one.opts}
    for word in words:
        if word in ("|", ">", ">>", ";"):
            break
        if word.startswith("-") and len(word) > 1:
            name = word.split("=")[0].rstrip(".,;:)")
            if name not in known | {"--help", "-h"}:
                return word
        elif isinstance(command, click.Group):
            if word.isupper() or word.startswith(("$", "{", "[")):
                return ""
            inside = command.get_command(context, word.rstrip(".,;:)"))
            if inside is None:
                return word
            command, context = inside, click.Context(inside)
            known |= {name for one in command.params for name in [*one.opts, *one.secondary_opts]}
    return ""


class CallTests(SynchronousTestCase):
    """Calls of liqodctl in the documents."""

    def test_exist(self) -> None:
        """Every command and option that a document shows exists."""
        found = list(calls())
        self.assertGreater(len(found), 60)
        self.assertEqual([(name, call) for name, call in found if unknown(call)], [])

    def test_finds(self) -> None:
        """A command or option that does not exist is found."""
        for call in ("statsu", "status --wach", "token make", "offload namespace x --nothing"):
            self.assertTrue(unknown(call), call)
