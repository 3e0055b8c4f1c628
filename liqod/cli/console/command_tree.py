"""The tree of commands as plain values, from which a shell's TAB is answered without importing the commands.

Importing a command costs half a second, because it brings the API client; the tree in ``command_tree.json`` costs
milliseconds. A test compares it with the commands, and ``python -m tests.cli.console.write_command_tree`` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import click

from liqod.cli.console import complete
from liqod.cli.console.group import Group

COMPLETERS: Final = {
    one.__name__: one for one in (complete.contexts, complete.namespaces, complete.objects, complete.peers)
}


def describe(command: click.Command) -> dict[str, Any]:
    """Return a command, or a group with all its commands, as plain values."""
    described: dict[str, Any] = {"help": command.get_short_help_str(60), "params": _params(command)}
    if isinstance(command, click.Group):
        context = click.Context(command)
        inside = {name: command.get_command(context, name) for name in command.list_commands(context)}
        described["commands"] = {name: describe(one) for name, one in inside.items() if one is not None}
    return described


def _params(command: click.Command) -> list[dict[str, Any]]:
    found = []
    for one in command.params:
        described: dict[str, Any] = {"names": [*one.opts, *one.secondary_opts], "name": one.name, "nargs": one.nargs}
        if isinstance(one, click.Option):
            described["help"] = one.help or ""
            described["flag"] = one.is_flag
        if isinstance(one.type, click.Choice):
            described["choices"] = [str(choice) for choice in one.type.choices]
        completer = getattr(one, "_custom_shell_complete", None)
        if completer is not None:
            described["complete"] = completer.__name__
        found.append(described)
    return found


def rebuild(name: str, described: Mapping[str, Any]) -> click.Command:
    """Return commands that complete as those that were described, and do nothing."""
    params = [_rebuilt(one) for one in described["params"]]
    if "commands" not in described:
        return click.Command(name, params=params, short_help=described["help"])
    inside = {one: rebuild(one, body) for one, body in described["commands"].items()}
    return Group(name, commands=inside, params=params, short_help=described["help"])


def _rebuilt(one: Mapping[str, Any]) -> click.Parameter:
    kind = click.Choice(one["choices"], case_sensitive=False) if "choices" in one else None
    completer = COMPLETERS.get(one.get("complete", ""))
    if "flag" not in one:
        return click.Argument([one["name"]], nargs=one["nargs"], required=False, type=kind, shell_complete=completer)
    if one["flag"]:
        return click.Option([*one["names"], one["name"]], is_flag=True, help=one["help"])
    return click.Option([*one["names"], one["name"]], type=kind, help=one["help"], shell_complete=completer)


def light_tree() -> click.Command:
    """Return the commands of this release, for completion alone."""
    text = files("liqod.cli.console").joinpath("command_tree.json").read_text("utf-8")
    return rebuild("liqodctl", json.loads(text))
