"""Carries out the steps of ``up --in-cluster``; each may be interrupted, and the next run goes on with what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.progress import Progress
from liqod.cli.console.session import Session
from liqod.cli.peering.peer import join, joined
from liqod.cli.setup.install import ensure_objects, say_written
from liqod.cli.setup.up.plan import SetupStep
from liqod.cli.setup.up.pods.observe import InClusterSight, is_at_work, log_of, pods_of, workloads, write
from liqod.cli.setup.up.pods.plan import progress
from liqod.cli.setup.up.run import needed
from liqod.identity.pairing import Token

POLL: Final = 1.0


@attrs.frozen
class UpInCluster:
    """The work of one run."""

    session: Session
    sight: InClusterSight
    timeout: float
    token: Token | None = None

    async def carry_out(self, steps: Sequence[SetupStep]) -> None:
        """Carry out the steps that are needed, in their order. Raises CliError, or KubeError."""
        for step in needed(self.session, steps):
            match step.name:
                case "cluster":
                    for settings in self.sight.settings:
                        session = attrs.evolve(self.session, settings=settings)
                        await say_written(self.session, ensure_objects(session), indent="  ")
                case "pods":
                    await write(self.session, self.sight.objects, is_ours=self.sight.is_ours)
                case "ready":
                    await self._ready()
                case "peering" if self.token:
                    before = await join(self.session, self.token)
                    await joined(self.session, self.token, self.timeout, before)

    async def _ready(self) -> None:
        """Wait until the pods are ready and the daemon has begun its work, and show how far they are meanwhile."""
        session, reactor = self.session, self.session.reactor
        deadline = reactor.seconds() + self.timeout
        said: Sequence[str] = ()
        with Progress(reactor, "the pods to be ready", quiet=session.options.is_document) as clock:
            while True:
                now = progress(await workloads(session), await pods_of(session))
                if now.waiting != said:
                    said = now.waiting
                    clock.clear()
                    for line in said:
                        session.say(f"  {line}")
                if now.hopeless:
                    what = f"{now.hopeless}{await self._log(now.unready)}"
                    raise CliError(errors.NOT_RUNNING, what, self._advice(now.hopeless))
                if not now.waiting and await is_at_work(session):
                    return
                if reactor.seconds() > deadline:
                    break
                await deferLater(reactor, POLL)
        shown = "; ".join(said) or "the daemon has not begun its work"
        shown += await self._log(now.unready)
        what = f"timed out after {self.timeout:g} s waiting for the pods to be ready: {shown}"
        namespace = session.settings.kubernetes.namespace
        hint = f"it goes on by itself; see kubectl -n {namespace} logs deploy/liqod, then run this again"
        raise CliError(errors.TIMED_OUT, what, hint)

    async def _log(self, pod: str) -> str:
        """Return the last lines of a pod's log to go on with, as the reason stands there; nothing for no pod."""
        lines = await log_of(self.session, pod) if pod else ""
        return f"\n{lines}" if lines else ""

    def _advice(self, problem: str) -> str:
        if "Image" in problem:
            return "bring the image to the nodes or a registry (docs/install-in-cluster.md), or name it with --image"
        namespace = self.session.settings.kubernetes.namespace
        return f"mend that, and run this again; kubectl -n {namespace} logs deploy/liqod says more"
