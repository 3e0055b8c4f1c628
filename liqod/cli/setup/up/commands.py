"""The commands ``up`` and ``down``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, timeout_option, yes_option
from liqod.cli.console.session import Output, Session
from liqod.cli.console.session import in_cluster as run_in_cluster
from liqod.cli.console.terminal import confirm
from liqod.cli.main import cli
from liqod.cli.peering.peer import pairing_token, read_argument
from liqod.cli.peering.token import new_token
from liqod.cli.setup.host.role import refuse_role
from liqod.cli.setup.host.wanted import ROLES
from liqod.cli.setup.up import down as taking_down
from liqod.cli.setup.up.carry_out import Up
from liqod.cli.setup.up.observe import TargetHost, look
from liqod.cli.setup.up.plan import MARKS, SetupStep, is_needed, plan, refused
from liqod.cli.setup.up.service import Systemd, in_use
from liqod.cli.status.whoami import own_cluster
from liqod.config.schema import Settings
from liqod.identity.pairing import Token

TOKEN_TTL: Final = timedelta(hours=1)
_SHOWN: Final = 12
"""Details of a step that a terminal shows; documents have all of them."""


def _root_option(command: Any) -> Any:
    return click.option(
        "--root",
        default="/",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
        help="The root directory of the host, such as that of an image; nothing is started in it.",
    )(command)


@click.command()
@click.option(
    "--join",
    "join_text",
    default="",
    metavar="TOKEN",
    help="Peer with the cluster that issued this token; - reads it from standard input.",
)
@click.option("--invite", is_flag=True, help="At the end print a token for the other cluster's `up --join`.")
@click.option("--in-cluster", is_flag=True, hidden=True)
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@yes_option
@timeout_option(180, "Timeout of the daemon's start, and of the peering.")
@_root_option
@cluster_options
def up(
    options: Options,
    *,
    join_text: str,
    invite: bool,
    in_cluster: bool,
    dry_run: bool,
    yes: bool,
    timeout: float,
    root: Path,
) -> None:
    """Set liqod up on this host, and start it; requires root and an administrator's kubeconfig.

    Checks the prerequisites, shows each step, asks once, installs records and rights in the cluster and the service on
    this host, waits until the daemon is ready, and shows the words of this cluster's key. A second run does what is
    missing, so one that was interrupted is simply repeated. `liqodctl down` takes it back.

    \b
    Examples:
      liqodctl up --dry-run
      liqodctl up --invite                the first cluster
      liqodctl up --join liqo1.eyJ...     the other one
    """
    if in_cluster:
        raise CliError(errors.HOST, "pods are installed by Helm, which this program does not replace", IN_CLUSTER)
    token = pairing_token(read_argument(join_text)) if join_text else None
    if root != Path("/") and (token or invite):
        raise click.UsageError(f"Nothing runs in {root}: --join and --invite are for this host.")
    settings = options.settings(look_at_files=False)
    _refuse_role(settings)

    async def work(session: Session) -> None:
        place = TargetHost(cli, root, services=Systemd() if root == Path("/") else None)
        await set_up(session, place, token, dry_run=dry_run, yes=yes, invite=invite, timeout=timeout)

    run_in_cluster(options, work, settings)


IN_CLUSTER: Final = (
    "in a clone of the repository: make image, bring it to your registry, and then\n"
    "  helm install liqod packaging/chart --namespace liqo-system --create-namespace "
    "--set clusterName=NAME --set image.repository=REGISTRY/liqod --wait\n"
    "  kubectl -n liqo-system exec deploy/liqod -- liqodctl peer TOKEN"
)


def _refuse_role(settings: Settings) -> None:
    role = settings.daemon.role
    if role not in ("all", "control"):
        unit = ROLES[role]
        raise CliError(
            errors.CONFIGURATION,
            f"this host's process has the role {role}, and `up` sets up the one that leads",
            f"liqodctl install --host --role {role}, then start {unit}; the first lines of the unit have the steps",
        )


async def set_up(
    session: Session,
    place: TargetHost,
    token: Token | None = None,
    *,
    dry_run: bool = False,
    yes: bool = False,
    invite: bool = False,
    timeout: float = 180.0,
) -> None:
    """Look, show the plan, ask, carry it out, and show what the other side needs. Raises CliError, or KubeError."""
    refuse_role(session.settings, in_use(place.services))
    sight = await look(session, place, token)
    steps = plan(sight.found)
    show(session, steps)
    if reasons := refused(steps):
        raise CliError(errors.CHECK, "\n  ".join(["it cannot be set up like this:", *reasons]), "nothing was changed")
    if dry_run:
        session.publish({"steps": [step.as_row() for step in steps], "done": not is_needed(steps)})
        return
    if is_needed(steps):
        if not yes:
            confirm("Do this?")
        await Up(session, place, sight, timeout, token).carry_out(steps)
        session.say("liqod is set up", "green")
    else:
        session.say("everything is set up already", "green")
    me = await own_cluster(session)
    result: dict[str, Any] = {
        "steps": [step.as_row() for step in steps],
        "done": True,
        "cluster": me.cluster_id,
        "fingerprint": me.fingerprint,
        "words": me.words,
        "peer": token.issuer if token else "",
    }
    if me.words:
        session.say(f"this cluster's key  {me.words}")
    elif me.problem:
        session.say(me.problem, "yellow")
    if invite:
        result["invitation"] = await new_token(session, TOKEN_TTL)
    elif token is None and place.services is not None:
        session.say("next: `liqodctl up --invite` prints a token for another cluster; `liqodctl discover` shows others")
    session.publish(result)


def show(output: Output, steps: Sequence[SetupStep]) -> None:
    """Print the steps, with details of those that are not done."""
    for step in steps:
        mark, style = MARKS[step.state]
        output.say(f"{mark} {step.name}: {step.why}", style)
        if step.state != "done":
            for line in step.lines[:_SHOWN]:
                output.say(f"    {line}")
            if len(step.lines) > _SHOWN:
                output.say(f"    and {len(step.lines) - _SHOWN} more")


@click.command()
@click.option("--force", is_flag=True, help="Even with peerings, or while a daemon runs on another host.")
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@yes_option
@_root_option
@cluster_options
def down(options: Options, *, force: bool, dry_run: bool, yes: bool, root: Path) -> None:
    """Take back what `liqodctl up` did: the service, the records and rights, and this host's files.

    What was there before stays, and so does a file that was changed since. Ends with a list of what was removed. End
    peerings first (`liqodctl unpeer`).

    \b
    Examples:
      liqodctl down --dry-run
      liqodctl down
    """
    settings = options.settings(look_at_files=False)

    async def work(session: Session) -> None:
        place = TargetHost(cli, root, services=Systemd() if root == Path("/") else None)
        await taking_down.take_down(session, place, force=force, dry_run=dry_run, yes=yes)

    run_in_cluster(options, work, settings)
