"""``install --host`` and ``uninstall --host``: liqod as a service of this host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options
from liqod.cli.console.session import Output
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.plan import HostPlan, plan_installation, plan_removal, settled
from liqod.cli.setup.host.wanted import CONFIGURATION, RECEIPT, ROLES, UNITS, HostFile, users_of, wanted

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


def refuse_host_options(root: Path, roles: Collection[str] = (), *, dry_run: bool = False) -> None:
    """Raise UsageError for options that need --host."""
    for option, given in (("--role", bool(roles)), ("--dry-run", dry_run), ("--root", root != Path("/"))):
        if given:
            raise click.UsageError(f"{option} needs --host.")


def role_option(command: Command) -> Command:
    """Add --role, which arrives as ``roles``."""
    option = click.option(
        "--role",
        "roles",
        multiple=True,
        type=click.Choice(list(ROLES)),
        help="With --host: the process to run there; repeatable. By default the role in the configuration.",
    )
    return option(command)


def roles_of(options: Options, root: Path, given: Collection[str]) -> list[str]:
    """Return the roles of the processes of a host: those given, else that of the host's configuration.

    A host that only leads its pods to the gateway has a network agent, unless it runs as ``all`` already.
    Raises UsageError for roles that exclude each other, CliError for a configuration that cannot be used.
    """
    if "all" in given and {"control", "network"} & {*given}:
        raise click.UsageError("A process with the role all does what control and network do: use it, or the two.")
    if given:
        return [role for role in ROLES if role in given]
    configuration = root / CONFIGURATION.lstrip("/")
    if not options.config and root != Path("/") and configuration.exists():
        options = attrs.evolve(options, config=str(configuration))
    settings = options.settings(look_at_files=False)
    role = settings.daemon.role
    if role == "all" and settings.network.role == "node" and not _is_written(root, role):
        role = "network"
    return [role]


def _is_written(root: Path, role: str) -> bool:
    receipt = apply.read_receipt(root)
    return receipt is not None and f"{UNITS}/{ROLES[role]}" in receipt.entries


def install_host(
    output: Output,
    program: click.Command,
    roles: Collection[str] = ("all",),
    *,
    root: Path,
    dry_run: bool,
    prefix: str = "",
) -> None:
    """Write liqod's files to a host, create its users, and show each step; a second run changes nothing.

    Raises CliError before anything was changed, where something is in the way.
    """
    prefix = prefix or sys.prefix
    entries, plan = planned(program, root, prefix, roles)
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


def planned(
    program: click.Command, root: Path, prefix: str, roles: Collection[str]
) -> tuple[Sequence[HostFile], HostPlan]:
    """Return what belongs on the host and what has to be done for it. Raises CliError.

    Roles whose units an earlier installation wrote stay: their processes may be running.
    """
    receipt = apply.read_receipt(root)
    written = receipt.entries if receipt else {}
    roles = {*roles, *(role for role, unit in ROLES.items() if f"{UNITS}/{unit}" in written)}
    entries = wanted(prefix, program, roles, polkit=apply.has_polkit(root))
    observed = apply.observe(root, [entry.path for entry in entries])
    return entries, plan_installation(entries, observed, users_of(roles))


def refuse(plan: HostPlan, obstacles: Sequence[str]) -> None:
    """Raise CliError where something is in the way of a plan."""
    if problems := [*obstacles, *plan.refusals]:
        raise CliError(errors.HOST, "\n  ".join(problems), "nothing was changed")


def uninstall_host(output: Output, *, root: Path, dry_run: bool) -> None:
    """Remove what ``install_host`` wrote and nobody changed since, and show each step. Raises CliError."""
    observed = apply.observe_removal(root)
    if observed.receipt is None:
        steps = [] if dry_run else [f"removed {path}" for path in apply.remove_unfinished(root)]
        for line in steps:
            output.print_line(line)
        if not steps:
            output.say(f"nothing to remove: there is no {RECEIPT}")
        output.publish({"steps": steps, "done": not dry_run})
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


def lines(plan: HostPlan) -> list[str]:
    """Return a line for each step of a plan."""
    shown = [
        f"{change.verb} {change.path}{f': {change.why}' if change.why else ''}"
        for change in plan.changes
        if change.verb != "unchanged"
    ]
    shown += [f"create the system user {name}" for name in plan.create_users]
    shown += [f"remove the user {name}" for name in plan.remove_users]
    return shown
