"""One run of ``up --in-cluster``."""

from __future__ import annotations

from typing import Final

import attrs

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.cli.console.terminal import confirm
from liqod.cli.setup.up.plan import is_needed, refused
from liqod.cli.setup.up.pods.carry_out import UpInCluster
from liqod.cli.setup.up.pods.observe import Wishes, look
from liqod.cli.setup.up.pods.plan import plan
from liqod.cli.setup.up.report import finish, show
from liqod.identity.pairing import Token

NEXT: Final = "next: `liqodctl up --in-cluster --invite` prints a token for another cluster"


async def set_up_pods(
    session: Session,
    wishes: Wishes,
    token: Token | None = None,
    *,
    dry_run: bool = False,
    yes: bool = False,
    invite: bool = False,
    timeout: float = 180.0,
) -> None:
    """Look, show the plan, ask, carry it out, and show what the other side needs. Raises CliError, or KubeError."""
    sight = await look(session, wishes, token)
    steps = plan(sight.found)
    show(session, steps)
    if reasons := refused(steps):
        raise CliError(errors.CHECK, "\n  ".join(["it cannot be set up like this:", *reasons]), "nothing was changed")
    if dry_run:
        session.publish({"steps": [step.as_row() for step in steps], "done": not is_needed(steps)})
        return
    # From here on what the pods' own configuration says counts, such as the name in a token.
    session = attrs.evolve(session, settings=sight.settings[0])
    if is_needed(steps):
        if not yes:
            confirm("Do this?")
        await UpInCluster(session, sight, timeout, token).carry_out(steps)
        session.say("liqod is set up", "green")
    else:
        session.say("everything is set up already", "green")
    await finish(session, steps, token, invite=invite, hint=NEXT)
