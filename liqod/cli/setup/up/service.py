"""The daemon's unit, by systemctl(1)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import attrs

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.setup.host.wanted import ROLES
from liqod.cli.setup.up.plan import DaemonUnit

STARTED: Final = ("active", "activating", "reloading")
JOURNAL_LINES: Final = 8
TIMEOUT: Final = 90.0
"""Seconds that systemctl may take; a unit that does not stop is killed after its TimeoutStopSec."""


@attrs.frozen
class UnitState:
    """How a unit runs: its state (``active`` is ready, for a unit of Type=notify), and what the daemon says it does."""

    state: str
    text: str = ""


class Services(Protocol):
    """What starts and stops the daemon."""

    def look(self, unit: str) -> DaemonUnit:
        """Return what there is of a unit."""

    def run_of(self, unit: str) -> UnitState:
        """Return how a unit runs."""

    def start(self, unit: str, *, again: bool) -> None:
        """Enable a unit and start it, or with ``again`` restart it; returns at once. Raises CliError."""

    async def stop(self, units: Sequence[str]) -> None:
        """Disable and stop units, and remove what systemd keeps for them. Raises CliError."""

    def journal(self, unit: str) -> str:
        """Return the last lines of a unit's log."""


def in_use(services: Services | None) -> list[str]:
    """Return the units of the daemon's processes that run, or will at the next start. Raises CliError."""
    found = [services.look(unit) for unit in ROLES.values()] if services is not None else []
    return [service.unit for service in found if service.running or service.enabled]


class Systemd:
    """systemd of this host."""

    def look(self, unit: str) -> DaemonUnit:
        """Return what there is of a unit."""
        if not Path("/run/systemd/system").is_dir():
            return DaemonUnit(unit, problem="systemd is installed, and does not run here; boot this host with it")
        # CLOCK_MONOTONIC in microseconds, which every release of systemd has (systemd.exec(5)).
        said = self._show(unit, "ActiveState", "UnitFileState", "ExecMainStartTimestampMonotonic")
        since = said["ExecMainStartTimestampMonotonic"]
        age = time.monotonic() - int(since) / 1e6 if since.isdigit() else 0.0
        return DaemonUnit(unit, said["UnitFileState"] == "enabled", said["ActiveState"] in STARTED, age)

    def run_of(self, unit: str) -> UnitState:
        """Return how a unit runs."""
        said = self._show(unit, "ActiveState", "StatusText")
        return UnitState(said["ActiveState"], said["StatusText"])

    def start(self, unit: str, *, again: bool) -> None:
        """Enable a unit and start it, or with ``again`` restart it; returns at once. Raises CliError."""
        self._run("enable", unit)
        # A unit that failed too often in a row is not started again without this.
        self._run("reset-failed", unit, ok=False)
        self._run("--no-block", "restart" if again else "start", unit)

    async def stop(self, units: Sequence[str]) -> None:
        """Disable and stop units, and remove what systemd keeps for them. Raises CliError."""
        for unit in units:
            self._run("disable", "--now", unit)
            # What StateDirectory= made; without any there is nothing to clean, which is an error.
            self._run("clean", "--what=state", unit, ok=False)

    def journal(self, unit: str) -> str:
        """Return the last lines of a unit's log."""
        words = ["journalctl", "--no-pager", "--output=cat", f"--lines={JOURNAL_LINES}", f"--unit={unit}"]
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT).stdout.strip()  # noqa: S603

    def _show(self, unit: str, *names: str) -> dict[str, str]:
        output = self._run("show", f"--property={','.join(names)}", unit)
        said = dict(line.split("=", 1) for line in output.splitlines() if "=" in line)
        return {name: said.get(name, "") for name in names}

    def _run(self, *words: str, ok: bool = True) -> str:
        try:
            done = subprocess.run(  # noqa: S603
                ["systemctl", *words],  # noqa: S607
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CliError(errors.HOST, f"systemctl {' '.join(words)}: {error}", "run this again") from None
        if ok and done.returncode != 0:
            raise CliError(errors.HOST, f"systemctl {' '.join(words)} failed: {done.stderr.strip()}", "run this again")
        return done.stdout
