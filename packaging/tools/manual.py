"""Writes the manual pages: liqodctl(1) from the commands themselves, liqod.toml(5) from the shipped configuration."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Final

import click
from project import CHECKOUT, epoch, version

_WIDTH: Final = 76


def pages(program: click.Group) -> dict[str, str]:
    """Return the pages by their file names, as man(7) reads them."""
    settings = (CHECKOUT / "etc" / "liqod.toml").read_text(encoding="utf-8")
    return {
        "man1/liqodctl.1": _commands(program),
        "man1/kubectl-liqod.1": ".so man1/liqodctl.1\n",
        "man5/liqod.toml.5": _head("LIQOD.TOML", 5, "liqod.toml", "configuration of liqod")
        + ".SH DESCRIPTION\n/etc/liqod/liqod.toml as it is shipped, with every setting and its default.\n"
        + f".SH SETTINGS\n.nf\n{_escaped(settings)}.fi\n",
    }


def write(program: click.Group, directory: Path) -> None:
    """Write the pages, compressed with the same bytes each time, below a directory such as /usr/share/man."""
    for name, text in pages(program).items():
        path = directory / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def built() -> datetime.datetime:
    """Return the date of what is built."""
    return datetime.datetime.fromtimestamp(int(epoch()), datetime.UTC)


def _head(title: str, section: int, name: str, what: str) -> str:
    return f'.TH {title} {section} "{built().date().isoformat()}" "liqod {version()}"\n.SH NAME\n{name} \\- {what}\n'


def _commands(program: click.Group) -> str:
    text = _head("LIQODCTL", 1, "liqodctl", "peer Kubernetes clusters, lend and borrow resources")
    context = click.Context(program, info_name="liqodctl", max_content_width=_WIDTH, terminal_width=_WIDTH)
    text += (
        f".SH SYNOPSIS\n.B liqodctl\n[OPTIONS] COMMAND [ARGS]...\n.SH DESCRIPTION\n.nf\n{_help(program, context)}.fi\n"
    )
    return text + ".SH COMMANDS\n" + "".join(_command(program, context))


def _command(group: click.Group, context: click.Context) -> list[str]:
    texts = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context, max_content_width=_WIDTH, terminal_width=_WIDTH)
        texts.append(f".SS {inner.command_path}\n.nf\n{_help(command, inner)}.fi\n")
        if isinstance(command, click.Group):
            texts += _command(command, inner)
    return texts


def _help(command: click.Command, context: click.Context) -> str:
    return _escaped(command.get_help(context) + "\n")


def _escaped(text: str) -> str:
    lines = (line.replace("\\", "\\e").replace("-", "\\-") for line in text.splitlines())
    # A line that begins with a dot or a quote would be a request.
    return "".join(f"\\&{line}\n" if line[:1] in (".", "'") else f"{line}\n" for line in lines)
