"""The terminal of the user: width, colours, characters, questions. Imports neither Twisted nor the API client."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.render import Format, printable

_PLAIN_MARKS: Final = {"✓": "ok", "✗": "x", "…": "..."}
DEFAULT_WIDTH: Final = 80


def prepare() -> None:
    """Make the standard streams take every character: what a locale cannot show, or is not text in it, is replaced.

    One that is closed, which Python has as None (``sys.stdout``), becomes the null device.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]


def is_terminal(stream: TextIO) -> bool:
    """Return whether a stream is an open terminal."""
    with contextlib.suppress(AttributeError, ValueError):
        return stream.isatty()
    return False


def width(stream: TextIO | None = None) -> int | None:
    """Return the columns of a stream, by default standard output; None, which is unlimited, where it is no terminal.

    $COLUMNS counts if it is a positive number.
    """
    stream = stream or sys.stdout
    if not is_terminal(stream):
        return None
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isascii() and wanted.isdigit() and int(wanted) > 0:
        return min(int(wanted), 10000)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_WIDTH
    except OSError:
        return DEFAULT_WIDTH


def has_colors(stream: TextIO) -> bool:
    """Return whether a stream shows colours: a terminal, without $NO_COLOR (no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def is_unicode(stream: TextIO) -> bool:
    """Return whether a stream is encoded in UTF-8."""
    return (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def shown(text: str, stream: TextIO) -> str:
    """Return a text as a stream can show it: without control characters, and with marks that its encoding has."""
    text = "\n".join(printable(line) for line in text.split("\n"))
    if not is_unicode(stream):
        for mark, plain in _PLAIN_MARKS.items():
            text = text.replace(mark, plain)
    return text


def echo(text: str = "", style: str = "", *, err: bool = False) -> None:
    """Print a line; ``style`` is a colour, "bold" or "dim", and counts where there are colours."""
    echo_parts([(text, style)], err=err)


def echo_parts(parts: list[tuple[str, str]], *, err: bool = False) -> None:
    """Print one line of several styles."""
    stream = sys.stderr if err else sys.stdout
    colored = has_colors(stream)
    pieces = [(shown(text, stream), style) for text, style in parts]
    line = "".join(_styled(text, style) if colored else text for text, style in pieces)
    stream.write(line + "\n")
    stream.flush()


def _styled(text: str, style: str) -> str:
    if not style:
        return text
    flags: dict[str, Any] = {style: True} if style in ("bold", "dim") else {"fg": style}
    return click.style(text, **flags)


def echo_wrapped(text: str, style: str = "", *, indent: str = "", hanging: str = "", err: bool = False) -> None:
    """Print a paragraph, wrapped at the width of the terminal; one line where there is none."""
    columns = width(sys.stderr if err else sys.stdout)
    for paragraph in text.split("\n"):
        if columns is None or len(indent + paragraph) <= columns:
            echo(indent + paragraph, style, err=err)
            continue
        room = max(columns, len(indent) + 1, len(hanging) + 1)
        after = hanging or indent
        for line in textwrap.wrap(
            paragraph, room, initial_indent=indent, subsequent_indent=after, break_on_hyphens=False
        ):
            echo(line, style, err=err)


class Awaited:
    """What a program waits for that reads standard output: one document, whatever becomes of the command.

    ``form`` is None where there is no such program, ``given``: it has its document, or cannot have it.
    """

    form: Format | None = None
    given: bool = False


AWAITED: Final = Awaited()
"""That of this process, which runs one command."""


def echo_document(text: str) -> None:
    """Print JSON or YAML as it is."""
    # Before it is written: what was written in part can have no other one behind it.
    AWAITED.given = AWAITED.given or bool(text)
    sys.stdout.write(text)
    sys.stdout.flush()


def confirm(question: str) -> None:
    """Ask for confirmation on a terminal. Raises CliError where there is none, or the answer is no.

    Ctrl-C raises ``click.Abort``, SIGTERM ends the process.
    """
    if not is_terminal(sys.stdin):
        raise CliError(
            errors.NOT_CONFIRMED, "confirmation is required, and there is no terminal", "add --yes", errors.USAGE
        )
    with _default_signals():
        sys.stderr.write(shown(f"{question} [y/N]: ", sys.stderr))
        sys.stderr.flush()
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            sys.stderr.write("\n")
            raise click.Abort from None
    if answer.strip().lower() not in ("y", "yes"):
        raise CliError(errors.NOT_CONFIRMED, "not confirmed: nothing was changed")


@contextlib.contextmanager
def _default_signals() -> Iterator[None]:
    """Give signals their effect on a blocked process.

    The reactor's handlers only schedule its stop, and while a read blocks its thread nothing that is scheduled runs.
    """
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGTERM: signal.signal(signal.SIGTERM, signal.SIG_DFL),
    }
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def clear_screen() -> None:
    """Begin again at the top of the terminal, for a view that is shown again and again; what scrolled away stays."""
    sys.stdout.write("\x1b[H\x1b[J")
