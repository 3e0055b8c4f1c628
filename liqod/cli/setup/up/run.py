"""One run of ``up``, on a host or in the cluster: what comes after the look, and before the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Output, Session
from liqod.cli.console.terminal import confirm
from liqod.cli.setup.up.plan import SetupStep, is_needed, refused
from liqod.cli.setup.up.report import finish, show
from liqod.identity.pairing import Token


class Work(Protocol):
    """What carries out steps; ``session`` knows the configuration that counts, ``token`` asks for a peering."""

    @property
    def session(self) -> Session: ...

    @property
    def token(self) -> Token | None: ...

    async def carry_out(self, steps: Sequence[SetupStep]) -> None:
        """Carry out the steps that are needed, in their order. Raises CliError, or KubeError."""


async def run(work: Work, steps: Sequence[SetupStep], *, dry_run: bool, yes: bool, invite: bool, hint: str) -> None:
    """Show the plan, ask, carry it out, and show what the other side needs. Raises CliError, or KubeError.

    ``hint`` is said at the end where no peering was asked for.
    """
    session = work.session
    show(session, steps)
    if reasons := refused(steps):
        raise CliError(errors.CHECK, "\n  ".join(["it cannot be set up like this:", *reasons]), "nothing was changed")
    if dry_run:
        session.publish({"steps": [step.as_row() for step in steps], "done": not is_needed(steps)})
        return
    if is_needed(steps):
        if not yes:
            confirm("Do this?")
        await work.carry_out(steps)
        session.say("liqod is set up", "green")
    else:
        session.say("everything is set up already", "green")
    await finish(session, steps, work.token, invite=invite, hint=hint)


def needed(output: Output, steps: Sequence[SetupStep]) -> Iterator[SetupStep]:
    """Yield the steps that are needed, and say each when its turn has come."""
    for step in steps:
        if step.state == "needed":
            # What was listed before the question is not listed again.
            output.say(step.name if step.lines else f"{step.name}: {step.why}", "bold")
            yield step
