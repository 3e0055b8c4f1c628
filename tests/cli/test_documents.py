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

TYPED = re.compile(r"(?:^ {4,}|[ =/])liqodctl ([^\n]+)")
GUIDES = [
    *sorted((ROOT / "docs/guides").glob("*.md")),
    ROOT / "README.md",
    *(
        ROOT / "docs" / name
        for name in ("coming-from-liqo.md", "faq.md", "install-in-cluster.md", "tutorial.md", "what-happens-when.md")
    ),
]


def calls() -> Iterator[tuple[str, str]]:
    """Yield each call of liqodctl in a code span or block, with the name of its document."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if path.name == "moved.md":
            continue
        for found in CALL.finditer(path.read_text()):
            yield path.name, found[1].strip()


def lines_to_type() -> Iterator[tuple[str, list[str]]]:
    """Yield the words after ``liqodctl`` of each line of a block in the guides, with the name of the guide."""
    for path in GUIDES:
        for line in path.read_text().splitlines():
            if line.startswith("    ") and (found := TYPED.search(line)):
                words = shlex.split(found[1], comments=True)
                ends = [words.index(end) for end in ("|", ">", ">>", "&&", ";") if end in words]
                yield path.name, words[: min(ends, default=None)]


def misparsed(words: list[str]) -> str:
    """Return why click refuses to parse a command line; empty where it does not. Nothing is run."""
    command: click.Command = cli
    context: click.Context | None = None
    name = "liqodctl"
    try:
        while True:
            context = command.make_context(name, words, parent=context)
            if not isinstance(command, click.Group):
                return ""
            rest = [*context._protected_args, *context.args]
            found, inside, words = command.resolve_command(context, rest)
            if inside is None:
                return f"{rest} is no command"
            name, command = found or name, inside
    except click.UsageError as error:
        return error.format_message()


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


class GuideTests(SynchronousTestCase):
    """Command lines in the guides, the README and pages like them, each of which is typed as it stands."""

    def test_parse(self) -> None:
        """The program parses every one: commands, options, the number of arguments and their values."""
        found = list(lines_to_type())
        self.assertGreater(len(found), 40)
        refused = [(name, words, why) for name, words in found if (why := misparsed(words))]
        self.assertEqual(refused, [])

    def test_finds(self) -> None:
        """What the program refuses is found: an argument too few or too many, and a value that is none."""
        for words in (
            ["offload", "namespace"],
            ["unpeer", "a", "b"],
            ["status", "-o", "xml"],
            ["peer", "x", "--timeout", "y"],
        ):
            self.assertTrue(misparsed(words), words)
        self.assertEqual(misparsed(["offload", "namespace", "shop", "--placement", "Remote"]), "")
