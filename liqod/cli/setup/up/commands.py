"""The commands ``up`` and ``down``."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, Final

import attrs
import click

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.options import Options, cluster_options, timeout_option, yes_option
from liqod.cli.console.session import Session
from liqod.cli.console.session import in_cluster as run_in_cluster
from liqod.cli.main import cli
from liqod.cli.peering.peer import pairing_token, read_argument
from liqod.cli.setup.host.role import refuse_role
from liqod.cli.setup.host.wanted import ROLES
from liqod.cli.setup.up import down as taking_down
from liqod.cli.setup.up.carry_out import Up
from liqod.cli.setup.up.observe import TargetHost, look
from liqod.cli.setup.up.plan import plan
from liqod.cli.setup.up.pods import down as taking_pods_down
from liqod.cli.setup.up.pods.observe import Wishes
from liqod.cli.setup.up.pods.set_up import set_up_pods
from liqod.cli.setup.up.run import run
from liqod.cli.setup.up.service import Systemd, in_use
from liqod.config.load import SettingsError, parse
from liqod.config.schema import Settings
from liqod.identity.pairing import Token

NEXT: Final = "next: `liqodctl up --invite` prints a token for another cluster; `liqodctl discover` shows others"


def _root_option(command: Any) -> Any:
    return click.option(
        "--root",
        default="/",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
        help="The root directory of the host, such as that of an image; nothing is started in it.",
    )(command)


def _pod_options(command: Any) -> Any:
    """Add the options of pods; they arrive as one argument ``wishes``."""

    @functools.wraps(command)
    def gather(*, image: str, local_image: bool, name: str, gateway: str | None, userspace: bool, **others: Any) -> Any:
        wishes = Wishes(image=image, local_image=local_image, name=name, gateway=gateway, userspace=userspace)
        if wishes != Wishes() and not others["in_cluster"]:
            raise click.UsageError("--image, --local-image, --name, --gateway and --userspace need --in-cluster.")
        return command(wishes=wishes, **others)

    decorated: Any = gather
    for option in (
        click.option(
            "--userspace", is_flag=True, help="With --gateway: by wireguard-go, where its kernel has no WireGuard."
        ),
        click.option(
            "--gateway",
            metavar="NODE",
            help="With --in-cluster: the node that holds tunnels to peers; by default none are made.",
        ),
        click.option(
            "--name", default="", metavar="NAME", help="With --in-cluster: the name that peers show for this cluster."
        ),
        click.option(
            "--local-image", is_flag=True, help="With --in-cluster: each node has the image; no registry is asked."
        ),
        click.option(
            "--image", default="", metavar="IMAGE", help="With --in-cluster: the image, such as REGISTRY/liqod:TAG."
        ),
    ):
        decorated = option(decorated)
    return decorated


@click.command()
@click.option(
    "--join",
    "join_text",
    default="",
    metavar="TOKEN",
    help="Peer with the cluster that issued this token; - reads it from standard input.",
)
@click.option("--invite", is_flag=True, help="At the end print a token for the other cluster's `up --join`.")
@click.option("--in-cluster", is_flag=True, help="As pods of the cluster, with nothing on this host.")
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@yes_option
@timeout_option(180, "Timeout of the daemon's start, and of the peering.")
@_root_option
@cluster_options
@_pod_options
def up(
    options: Options,
    *,
    wishes: Wishes,
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

    With --in-cluster liqod runs as pods instead, by the objects of its Helm chart; that takes the kubeconfig alone. A
    later run keeps what it does not name.

    \b
    Examples:
      liqodctl up --dry-run
      liqodctl up --invite                the first cluster
      liqodctl up --join liqo1.eyJ...     the other one
      liqodctl up --in-cluster --image registry.example/liqod --gateway node-1
    """
    token = pairing_token(read_argument(join_text)) if join_text else None
    if in_cluster:
        if root != Path("/"):
            raise click.UsageError("--in-cluster touches no host: --root does not go with it.")
        settings, wishes = _for_pods(options, wishes)

        async def work_in_cluster(session: Session) -> None:
            await set_up_pods(session, wishes, token, dry_run=dry_run, yes=yes, invite=invite, timeout=timeout)

        run_in_cluster(options, work_in_cluster, settings)
        return
    if root != Path("/") and (token or invite):
        raise click.UsageError(f"Nothing runs in {root}: --join and --invite are for this host.")
    settings = options.settings(look_at_files=False)
    _refuse_role(settings)

    async def work(session: Session) -> None:
        place = TargetHost(cli, root, services=Systemd() if root == Path("/") else None)
        await set_up(session, place, token, dry_run=dry_run, yes=yes, invite=invite, timeout=timeout)

    run_in_cluster(options, work, settings)


def _for_pods(options: Options, wishes: Wishes) -> tuple[Settings, Wishes]:
    """Return the settings by which pods are set up: of a file that is named, never of this host's. Raises CliError."""
    text: str | None = None
    if options.config:
        try:
            text = Path(options.config).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = (getattr(error, "strerror", "") or str(error)).lower()
            hint = "name another file with --config"
            raise CliError(errors.CONFIGURATION, f"{options.config}: {why}", hint) from None
    try:
        settings = parse(text or "", os.environ, source=options.config or "the environment")
    except SettingsError as error:
        hint = "correct the configuration; etc/liqod.toml documents every setting"
        raise CliError(errors.CONFIGURATION, "\n  ".join(error.problems), hint, errors.USAGE) from None
    return settings, attrs.evolve(wishes, configuration=text)


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
    hint = NEXT if place.services is not None else ""
    work = Up(session, place, sight, timeout, token)
    await run(work, plan(sight.found), dry_run=dry_run, yes=yes, invite=invite, hint=hint)


@click.command()
@click.option("--force", is_flag=True, help="Even with peerings, or while a daemon runs on another host.")
@click.option("--in-cluster", is_flag=True, help="Take back what `up --in-cluster` did.")
@click.option("--dry-run", is_flag=True, help="Show the steps, and change nothing.")
@yes_option
@_root_option
@cluster_options
def down(options: Options, *, force: bool, in_cluster: bool, dry_run: bool, yes: bool, root: Path) -> None:
    """Take back what `liqodctl up` did: the service, the records and rights, and this host's files.

    What was there before stays, and so does a file that was changed since. Ends with a list of what was removed. End
    peerings first (`liqodctl unpeer`). With --in-cluster: the pods, the records and rights, and the namespace, if it
    was not there before.

    \b
    Examples:
      liqodctl down --dry-run
      liqodctl down
      liqodctl down --in-cluster
    """
    if in_cluster:
        if root != Path("/"):
            raise click.UsageError("--in-cluster touches no host: --root does not go with it.")
        settings, _ = _for_pods(options, Wishes())

        async def work_in_cluster(session: Session) -> None:
            await taking_pods_down.take_down(session, force=force, dry_run=dry_run, yes=yes)

        run_in_cluster(options, work_in_cluster, settings)
        return
    settings = options.settings(look_at_files=False)

    async def work(session: Session) -> None:
        place = TargetHost(cli, root, services=Systemd() if root == Path("/") else None)
        await taking_down.take_down(session, place, force=force, dry_run=dry_run, yes=yes)

    run_in_cluster(options, work, settings)
