"""One run of ``up --in-cluster``."""

from __future__ import annotations

from typing import Final

import attrs

from liqod.cli.console.session import Session
from liqod.cli.setup.up.pods.carry_out import UpInCluster
from liqod.cli.setup.up.pods.observe import Wishes, look
from liqod.cli.setup.up.pods.plan import plan
from liqod.cli.setup.up.run import run
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
    # From here on what the pods' own configuration says counts, such as the name in a token; it was not read where a
    # check failed.
    settings = sight.settings[0] if sight.settings else session.settings
    work = UpInCluster(attrs.evolve(session, settings=settings), sight, timeout, token)
    await run(work, plan(sight.found), dry_run=dry_run, yes=yes, invite=invite, hint=NEXT)
