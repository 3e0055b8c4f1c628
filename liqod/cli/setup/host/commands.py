"""``install --host`` and ``uninstall --host``: liqod as a service of this host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Output
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.plan import Plan, plan_installation, plan_removal, settled
from liqod.cli.setup.host.wanted import RECEIPT, Entry, wanted

Command = TypeVar("Command", bound=Callable[..., Any])


def host_options(what: str, dry_run: str = "With --host: only show each step.") -> Callable[[Command], Command]:
    """Return the decorator that adds --host and --dry-run, with their helps, and --root."""

    def add(command: Command) -> Command:
        for option in (
            click.option("--dry-run", is_flag=True, help=dry_run),
            click.option(
                "--root",
                default="/",
                metavar="DIR",
                type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
                help="With --host: the root directory of the host, such as that of an image.",
            ),
            click.option("--host", is_flag=True, help=what),
        ):
            command = option(command)
        return command

    return add


def refuse_host_options(root: Path, *, dry_run: bool = False) -> None:
    """Raise UsageError for options that need --host."""
    if dry_run or root != Path("/"):
        raise click.UsageError(f"{'--dry-run' if dry_run else '--root'} needs --host.")


def install_host(output: Output, program: click.Command, *, root: Path, dry_run: bool, prefix: str = "") -> None:
    """Write liqod's files to a host, create its user, and show each step; a second run changes nothing.

    Raises CliError before anything was changed, where something is in the way.
    """
    prefix = prefix or sys.prefix
    entries, plan = planned(program, root, prefix)
    refuse(plan, apply.preflight(root, prefix, plan))
    steps = lines(plan)
    for line in steps:
        output.print_line(f"would {line}" if dry_run else line)
    if not dry_run:
        apply.install(root, entries, plan)
        apply.reload_systemd(root)
        apply.save_receipt(root, settled(plan.receipt, entries))
    if not steps:
        output.say("everything is installed already")
    output.publish({"steps": steps, "done": not dry_run})


def planned(program: click.Command, root: Path, prefix: str) -> tuple[Sequence[Entry], Plan]:
    """Return what belongs on the host and what has to be done for it. Raises CliError."""
    entries = wanted(prefix, program, polkit=apply.has_polkit(root))
    return entries, plan_installation(entries, apply.observe(root, [entry.path for entry in entries]))


def refuse(plan: Plan, obstacles: Sequence[str]) -> None:
    """Raise CliError where something is in the way of a plan."""
    if problems := [*obstacles, *plan.refusals]:
        raise CliError(errors.HOST, "\n  ".join(problems), "nothing was changed")


def uninstall_host(output: Output, *, root: Path, dry_run: bool) -> None:
    """Remove what ``install_host`` wrote and nobody changed since, and show each step. Raises CliError."""
    observed = apply.observe(root, [])
    if observed.receipt is None:
        output.say(f"nothing to remove: there is no {RECEIPT}")
        output.publish({"steps": [], "done": not dry_run})
        return
    if units := " ".join(apply.in_use(root)):
        raise CliError(errors.IN_USE, f"running, or enabled: {units}", f"end it first: systemctl disable --now {units}")
    plan = plan_removal(observed)
    steps = lines(plan)
    if dry_run:
        for line in steps:
            output.print_line(f"would {line}")
    else:
        kept = [line for line in steps if line.startswith("keep ")]
        steps = [*kept, *(f"removed {path}" for path in apply.remove(root, plan))]
        apply.reload_systemd(root)
        for line in steps:
            output.print_line(line)
    output.publish({"steps": steps, "done": not dry_run})


def lines(plan: Plan) -> list[str]:
    """Return a line for each step of a plan."""
    shown = [
        f"{change.verb} {change.path}{f': {change.why}' if change.why else ''}"
        for change in plan.changes
        if change.verb != "unchanged"
    ]
    shown += [f"create the system user {name}" for name in plan.create_users]
    shown += [f"remove the user {name}" for name in plan.remove_users]
    return shown
