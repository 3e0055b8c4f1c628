"""A case with a cluster of the sandbox, at which commands are run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from liqod.demo.access import client_config
from liqod.kube.client import Client
from tests.cli.fork_server import warm

REACTOR: Any = reactor


class ClusterCase(TestCase):
    """A cluster of the sandbox, a client of its administrator, and ``liqodctl`` with its kubeconfig."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = Client(client_config(self.cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(self.client.close()))
        self.kubeconfig = Path(self.mktemp()).absolute()
        self.kubeconfig.write_text(self.cluster.kubeconfig())

    async def outcome(self, *arguments: str, **request: Any) -> tuple[str, str, int]:
        """Run a command and return its output, its errors and its status; ``request`` as for ``ForkServer.run``."""
        environ = {"KUBECONFIG": str(self.kubeconfig), **request.pop("env", {})}
        found: tuple[str, str, int] = await deferToThread(warm().run, *arguments, env=environ, **request)
        return found

    async def liqodctl(self, *arguments: str, status: int = 0) -> str:
        """Run a command and return what it printed; its status must be as expected."""
        out, err, code = await self.outcome(*arguments, env={"HOME": "/nonexistent"})
        self.assertEqual(code, status, out + err)
        self.assertNotIn("Traceback", err)
        return out + err
