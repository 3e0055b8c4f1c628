"""Groups of commands: imported when used, listed in sections, with a suggestion for a name that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

Sections = Mapping[str, Mapping[str, tuple[str, str]]]
"""By heading, each command with the place of its code (``module:name``) and its help in one line."""


class Group(click.Group):
    """A group that suggests what was meant; ``aliases`` are short names of commands, which its help omits."""

    def __init__(self, *args: Any, aliases: Mapping[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.aliases = dict(aliases or {})

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-"):
            args = [self.aliases.get(args[0], args[0]), *args[1:]]
            known = self.list_commands(ctx)
            if args[0] not in known:
                hint = did_you_mean(args[0], known)
                ctx.fail(f"there is no command {args[0]!r}{hint or f'; {ctx.command_path} --help lists them'}")
        return super().resolve_command(ctx, args)


class Commands(Group):
    """Imports a command when it is used: ``liqodctl version`` needs neither Twisted nor TLS."""

    def __init__(self, *args: Any, sections: Sections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self._places = {name: place for each in sections.values() for name, place in each.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._places, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._places.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = place[0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        command.short_help = place[1]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from their table, without importing them and without cutting their help."""
        inside = {name: command.short_help or "" for name, command in self.commands.items()}
        listed = {
            **{heading: {name: text for name, (_, text) in each.items()} for heading, each in self.sections.items()},
            "Program": inside,
        }
        for heading, each in listed.items():
            with formatter.section(heading):
                formatter.write_dl(list(each.items()))


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """Return "; did you mean ...?" for a name that resembles known ones, else ""."""
    close = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.6)
    close = close or [one for one in known if name and one.startswith(name)][:3]
    return f"; did you mean {' or '.join(close)}?" if close else ""
