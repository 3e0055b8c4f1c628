"""Carries out the steps of ``up``; each may be interrupted, and the next run goes on with what is left."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import attrs
from twisted.internet.task import deferLater

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.progress import Progress
from liqod.cli.console.session import Session
from liqod.cli.peering.peer import join, joined
from liqod.cli.setup.account import kubeconfig, remove_endless_token, token_file, token_of, write_private
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.plan import Receipt, settled
from liqod.cli.setup.host.wanted import READERS, digest_of
from liqod.cli.setup.install import ensure_objects, say_written
from liqod.cli.setup.up.observe import Observation, TargetHost, kubeconfig_path
from liqod.cli.setup.up.plan import SetupStep
from liqod.cli.setup.up.run import needed
from liqod.cli.setup.up.service import Services
from liqod.cli.status.whoami import own_cluster
from liqod.identity.pairing import Token

POLL: Final = 0.3


@attrs.frozen
class Up:
    """The work of one run."""

    session: Session
    place: TargetHost
    sight: Observation
    timeout: float
    token: Token | None = None

    async def carry_out(self, steps: Sequence[SetupStep]) -> None:
        """Carry out the steps that are needed, in their order. Raises CliError, or KubeError."""
        for step in needed(self.session, steps):
            services, service = self.place.services, self.sight.found.service
            match step.name:
                case "host":
                    self._host()
                case "cluster":
                    await say_written(self.session, ensure_objects(self.session), indent="  ")
                case "kubeconfig":
                    await self._kubeconfig()
                case "service" if services and service:
                    services.start(service.unit, again=service.running)
                case "ready" if services and service:
                    await self._ready(services, service.unit)
                case "peering" if self.token:
                    before = await join(self.session, self.token)
                    await joined(self.session, self.token, self.timeout, before)

    def _host(self) -> None:
        root = self.place.root
        apply.install(root, self.sight.entries, self.sight.files)
        apply.reload_systemd(root)
        apply.save_receipt(root, settled(self.sight.files.receipt, self.sight.entries))

    async def _kubeconfig(self) -> None:
        path = kubeconfig_path(self.session)
        text = kubeconfig(self.session.client.config, await token_of(self.session), token_file(path))
        receipt = apply.read_receipt(self.place.root) or Receipt()
        digest = digest_of(text.encode())
        before = receipt.entries.get(path, ())
        # Before the file, so that an interruption leaves none that nobody would remove.
        apply.save_receipt(self.place.root, attrs.evolve(receipt, entries={**receipt.entries, path: [digest, *before]}))
        file = self.place.at(path)
        write_private(str(file), text)
        if str(file) != path and os.geteuid() == 0:
            # In a directory that is not this host's root its own users count.
            group = apply.group_in(self.place.root, READERS.get(path, ""))
            if group is not None:
                os.chown(file, 0, group)
                file.chmod(0o640)
        apply.save_receipt(self.place.root, attrs.evolve(receipt, entries={**receipt.entries, path: [digest]}))
        if line := await remove_endless_token(self.session):
            self.session.say(f"  {line}")

    async def _ready(self, services: Services, unit: str) -> None:
        """Wait until the unit is active and the cluster has its key, and show what the daemon says meanwhile."""
        reactor = self.session.reactor
        deadline = reactor.seconds() + self.timeout
        said = ""
        with Progress(reactor, f"{unit} to be ready", quiet=self.session.options.is_document) as progress:
            while True:
                run = services.run_of(unit)
                if run.text and run.text != said:
                    said = run.text
                    progress.clear()
                    self.session.say(f"  {said}")
                if run.state == "active" and (await own_cluster(self.session)).has_key:
                    return
                if run.state == "failed":
                    why = f"{unit} failed: {said}".rstrip(": ")
                    raise CliError(
                        errors.NOT_RUNNING, f"{why}\n{services.journal(unit)}", "mend that, and run this again"
                    )
                if reactor.seconds() > deadline:
                    break
                await deferLater(reactor, POLL)
        what = f"timed out after {self.timeout:g} s waiting for {unit} to be ready"
        hint = f"it goes on by itself; see journalctl -u {unit}, then run this again"
        raise CliError(errors.TIMED_OUT, f"{what}: {said or run.state}", hint)
