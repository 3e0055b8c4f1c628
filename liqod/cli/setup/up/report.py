"""What ``up`` shows: the steps, and at the end what the other side needs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from liqod.cli.console.session import Output, Session
from liqod.cli.peering.token import new_token
from liqod.cli.setup.up.plan import MARKS, SetupStep
from liqod.cli.status.whoami import own_cluster
from liqod.identity.pairing import Token

TOKEN_TTL: Final = timedelta(hours=1)
_SHOWN: Final = 3
"""Details of a step that a terminal shows, so that the steps and the question fit on one screen of 24 rows.

Documents have all of them.
"""


def show(output: Output, steps: Sequence[SetupStep]) -> None:
    """Print the steps, with details of those that are not done."""
    for step in steps:
        mark, style = MARKS[step.state]
        output.say(f"{mark} {step.name}: {step.why}", style)
        if step.state != "done":
            for line in step.lines[:_SHOWN]:
                output.say(f"    {line}")
            if len(step.lines) > _SHOWN:
                output.say(f"    and {len(step.lines) - _SHOWN} more; --dry-run -o yaml lists them")


async def finish(
    session: Session, steps: Sequence[SetupStep], token: Token | None, *, invite: bool, hint: str = ""
) -> None:
    """Show this cluster's words and, with ``invite``, a token; publish all of it. Raises CliError, or KubeError.

    ``hint`` is said where no peering was asked for.
    """
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
    elif token is None and hint:
        session.say(hint)
    session.publish(result)
