"""Writes the manual pages: liqodctl(1) of the commands, liqod(8) of the daemon's options and units, liqod.toml(5)."""

from __future__ import annotations

import configparser
import datetime
import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click
from project import CHECKOUT, epoch, version

from liqod.tap import Options

_WIDTH: Final = 76
_EXIT: Final = (
    ("0", "success"),
    ("1", "failure: a code, what is wrong and what to do next are on standard error"),
    ("2", "wrong usage, or a configuration that cannot be used"),
    ("130", "interrupted"),
    ("141", "the reader of the output closed it"),
)
_VARIABLES: Final = (
    ("KUBECONFIG", "the kubeconfig, unless --kubeconfig names one"),
    ("NO_COLOR", "no colours, also on a terminal"),
    ("LIQODCTL_TRACEBACK", "a defect ends with its traceback"),
)
_FILES: Final = (
    ("/etc/liqod/liqod.toml", "the configuration, liqod.toml(5)"),
    ("/etc/liqod/kubeconfig", "the kubeconfig of the daemon's own account, written by `liqodctl up`"),
    ("/var/lib/liqod", "what the daemon keeps"),
    ("/usr/share/doc/liqod", "examples and licences"),
)
_ALSO: Final = ("liqodctl(1)", "liqod(8)", "liqod.toml(5)", "kubectl(1)", "systemctl(1)", "journalctl(1)", "wg(8)")


def pages(program: click.Group) -> dict[str, str]:
    """Return the pages by their file names, as man(7) reads them."""
    settings = (CHECKOUT / "etc" / "liqod.toml").read_text(encoding="utf-8")
    return {
        "man1/liqodctl.1": _commands(program),
        "man1/kubectl-liqod.1": ".so man1/liqodctl.1\n",
        "man5/liqod.toml.5": _head("LIQOD.TOML", 5, "liqod.toml", "configuration of liqod")
        + ".SH DESCRIPTION\n/etc/liqod/liqod.toml as it is shipped, with every setting and its default.\n"
        + f".SH SETTINGS\n.nf\n{_escaped(settings)}.fi\n"
        + _also("liqod.toml(5)"),
        "man8/liqod.8": _daemon(),
    }


def commands(program: click.Group, width: int = _WIDTH) -> Iterator[tuple[str, str]]:
    """Yield the program and each command in it that is not hidden: the words to type, and its help."""
    yield from _inside(
        program, click.Context(program, info_name="liqodctl", max_content_width=width, terminal_width=width)
    )


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
    (_, text), *others = commands(program)
    return (
        _head("LIQODCTL", 1, "liqodctl", "peer Kubernetes clusters, lend and borrow resources")
        + f".SH SYNOPSIS\n.B liqodctl\n[OPTIONS] COMMAND [ARGS]...\n.SH DESCRIPTION\n.nf\n{_escaped(text)}.fi\n"
        + ".SH COMMANDS\n"
        + "".join(f".SS {path}\n.nf\n{_escaped(text)}.fi\n" for path, text in others)
        + _listed("EXIT STATUS", _EXIT)
        + _listed("ENVIRONMENT", _VARIABLES)
        + _listed("FILES", _FILES)
        + _also("liqodctl(1)")
    )


def _inside(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    yield context.command_path, f"{command.get_help(context)}\n"
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inside = command.get_command(context, name)
        if inside is not None and not inside.hidden:
            # The widths are those of the parent.
            yield from _inside(inside, click.Context(inside, info_name=name, parent=context))


def _daemon() -> str:
    options = [(f"-{short}, --{name} FILE", f"{text} [{value}]") for name, short, value, text in Options.optParameters]
    options += [(f"--{name}", str(text)) for name, _, text in Options.optFlags]
    options.append(("--version", "Show the version of liqod, and end."))
    units = [(unit.name, _description(unit)) for unit in sorted((CHECKOUT / "systemd").glob("*.service"))]
    return (
        _head("LIQOD", 8, "liqod", "daemon that peers this Kubernetes cluster with others")
        + f".SH SYNOPSIS\n.B twistd\n{_escaped(f'-n liqod {Options.synopsis}')}"
        + f".SH DESCRIPTION\n{_escaped(Options.longdesc)}"
        + _listed("OPTIONS", options)
        + _listed("SERVICES", units)
        + _listed("EXIT STATUS", (_EXIT[0], _EXIT[2]))
        + _listed("FILES", _FILES)
        + _also("liqod(8)")
    )


def _description(unit: Path) -> str:
    # Keys of systemd's may be there more than once.
    parser = configparser.RawConfigParser(strict=False)
    parser.read(unit, encoding="utf-8")
    return parser["Unit"]["Description"]


def _listed(title: str, rows: Sequence[tuple[str, str]]) -> str:
    return f".SH {title}\n" + "".join(f".TP\n.B {_escaped(term)}{_escaped(text)}" for term, text in rows)


def _also(own: str) -> str:
    return f".SH SEE ALSO\n{', '.join(one for one in _ALSO if one != own)}\n"


def _escaped(text: str) -> str:
    lines = (line.replace("\\", "\\e").replace("-", "\\-") for line in text.splitlines())
    # A line that begins with a dot or a quote would be a request.
    return "".join(f"\\&{line}\n" if line[:1] in (".", "'") else f"{line}\n" for line in lines)
