"""Shows what a command waits for: a line with a running clock on a terminal, one plain line elsewhere."""

from __future__ import annotations

import sys
from typing import Final

from liqod.cli.console import terminal
from liqod.flow.clocks import Reactor
from liqod.flow.timer import Timer

QUIET: Final = 1.0
"""Seconds before a wait is worth a line."""
TICK: Final = 1.0


class Progress:
    """A context in which something is waited for; what it prints goes to standard error."""

    def __init__(self, reactor: Reactor, what: str, *, quiet: bool = False) -> None:
        self._reactor = reactor
        self._what = what
        self._live = terminal.is_terminal(sys.stderr)
        self._off = quiet and not self._live
        self._since = reactor.seconds()
        self._next = Timer(reactor)
        self._shown = False

    def __enter__(self) -> Progress:
        if not self._off:
            self._next.start(QUIET, self._tick)
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._next.cancel()
        self.clear()

    def clear(self) -> None:
        """Take the running clock away, for a line that is printed by others and would go on in the same row."""
        if self._shown and self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def note(self, what: str) -> None:
        """Say from now on that something else is waited for."""
        self._what = what

    def line(self, text: str, style: str = "") -> None:
        """Print a line that stays, above the running clock."""
        if self._off:
            return
        self.clear()
        terminal.echo_wrapped(text, style, hanging="  ", err=True)

    def _tick(self) -> None:
        waited = self._reactor.seconds() - self._since
        self._shown = True
        if not self._live:
            terminal.echo(f"waiting for {self._what}", err=True)
            return
        room = (terminal.width(sys.stderr) or terminal.DEFAULT_WIDTH) - 1
        text = terminal.shown(f"… waiting for {self._what} ({waited:.0f} s)", sys.stderr)
        sys.stderr.write("\r\x1b[K" + text[:room])
        sys.stderr.flush()
        self._next.start(TICK, self._tick)
