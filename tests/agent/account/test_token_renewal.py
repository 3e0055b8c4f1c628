"""The token of the daemon's account at a sandbox's API server: renewed in time, and of no use once it was stolen."""

from __future__ import annotations

import base64
import json
import stat
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubesandbox.auth.tokens import account_user
from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import SynchronousTestCase, TestCase

from liqod.agent.account.names import NAMES_ACCOUNT, bound_secret_of
from liqod.agent.account.objects import account, bound_secret, roles, token_request
from liqod.agent.host import token_renewal
from liqod.agent.host.token_renewal import TokenRenewal, due
from liqod.audit.events import AuditEvent
from liqod.cli.setup.account import kubeconfig
from liqod.config.load import parse
from liqod.demo.access import client_config
from liqod.flow.backoff import Backoff
from liqod.kube.client import Client
from liqod.kube.connection.account_token import AccountToken, Claims
from liqod.kube.connection.config import ClientConfig, load
from liqod.kube.errors import Unauthorized
from liqod.kube.resources import NAMESPACES, ROLEBINDINGS, SECRETS, SERVICEACCOUNTS

REACTOR: Any = reactor
SYSTEM = "liqo-system"
SETTINGS = parse('[daemon]\nrole = "names"', {})
WEEK = 7 * 86400


class DueTests(SynchronousTestCase):
    def test_when(self) -> None:
        """Half of its life is left; one without end is due at once."""
        self.assertEqual(due(Claims("s", "u", 1000.0, 1600.0)), 1300.0)
        self.assertEqual(due(Claims("s", "u", 1000.0, None)), 0.0)


class RenewalCase(TestCase):
    """A cluster whose date this test sets, and a process that answers for names, with its kubeconfig."""

    timeout = 60

    async def setUp(self) -> None:  # type: ignore[override]
        self.patch(token_renewal, "LONGEST_WAIT", 0.01)
        self.patch(token_renewal, "PAUSE", 0.01)
        self.patch(token_renewal, "AGAIN", Backoff(initial=0.01, cap=0.01))
        self.date = 1_900_000_000.0
        self.events: list[AuditEvent] = []
        self.cluster = SandboxCluster(REACTOR, "rome", wall=lambda: self.date)
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.admin = self.client(client_config(self.cluster))
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.file, self.kept = self.folder / "kubeconfig", self.folder / "kubeconfig.token"
        await self.admin.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
        self.uid = (await self.admin.create(SERVICEACCOUNTS, account(SYSTEM, NAMES_ACCOUNT)))["metadata"]["uid"]
        await self.admin.create(SECRETS, bound_secret(SYSTEM, NAMES_ACCOUNT))
        for resource, body in roles(SETTINGS):
            await self.admin.create(resource, body)
        await self.install()

    async def install(self) -> None:
        """Write the kubeconfig, as `liqodctl install` does."""
        config = ClientConfig(self.cluster.url, self.cluster.authority.pem)
        self.file.write_text(kubeconfig(config, await self.made(self.admin), self.kept.name))

    async def made(self, client: Client) -> str:
        """Return a token of the account that somebody has made."""
        body = token_request(NAMES_ACCOUNT, WEEK)
        answer = await client.create(SERVICEACCOUNTS, body, SYSTEM, name=NAMES_ACCOUNT, subresource="token")
        return str(answer["status"]["token"])

    def client(self, config: ClientConfig) -> Client:
        client = Client(config, REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        return client

    def start(self, config: ClientConfig | None = None, environ: Mapping[str, str] | None = None) -> Client:
        """Start what renews the token of a process; returns the process's client."""
        client = self.client(config or load(str(self.file)))
        wall = lambda: datetime.fromtimestamp(self.date, UTC)  # noqa: E731
        renewal = TokenRenewal(client, SETTINGS, wall, self.events.append, environ=environ or {})
        renewal.start()
        self.addCleanup(renewal.stop)
        return client

    def token_of(self, client: Client) -> str:
        assert client.config.token is not None
        return client.config.token()

    async def until(self, what: Callable[[], object]) -> None:
        deadline = REACTOR.seconds() + 20
        while not what():
            if REACTOR.seconds() > deadline:
                raise AssertionError("it did not happen in time")
            await deferLater(REACTOR, 0.01)

    async def renewed(self, client: Client) -> None:
        """Let more than half of the token's life pass, until the process has another one."""
        before = self.token_of(client)
        self.date += 0.6 * WEEK
        await self.until(lambda: self.token_of(client) != before)

    async def a_while(self) -> None:
        """Let the process look at the date some times."""
        await deferLater(REACTOR, 0.1)

    async def works(self, token: str) -> bool:
        """Return whether the API server knows who comes with a token."""
        client = Client(ClientConfig(self.cluster.url, self.cluster.authority.pem, token=lambda: token), REACTOR)
        try:
            await client.list(NAMESPACES)
        except Unauthorized:
            return False
        finally:
            await client.close()
        return True

    def reasons(self) -> list[str]:
        return [event.reason for event in self.events]


class RenewalTests(RenewalCase):
    """A process that goes on."""

    async def test_at_half_of_its_life(self) -> None:
        """Not before; then the new one is used, and kept for its owner alone; the kubeconfig stays as it was."""
        client, before = self.start(), self.file.read_text()
        first = self.token_of(client)
        self.date += 0.49 * WEEK
        await self.a_while()
        self.assertEqual((self.token_of(client), self.reasons()), (first, []))
        self.date += 0.02 * WEEK
        await self.until(lambda: self.token_of(client) != first)
        await self.until(self.kept.exists)
        self.assertEqual(self.kept.read_text().strip(), self.token_of(client))
        self.assertEqual(stat.S_IMODE(self.kept.stat().st_mode), 0o600)
        self.assertEqual(self.file.read_text(), before)
        self.assertEqual(
            self.events, [AuditEvent("AccountToken", "Renewed", object=f"serviceaccount/{SYSTEM}/{NAMES_ACCOUNT}")]
        )

    async def test_for_years(self) -> None:
        """It is renewed again and again, and one that is started again goes on from there."""
        client = self.start()
        for _ in range(10):
            await self.renewed(client)
        await self.until(lambda: self.kept.read_text().strip() == self.token_of(client))
        again = self.start()
        self.assertEqual(self.token_of(again), self.token_of(client))
        await again.list(NAMESPACES)

    async def test_what_does_not_succeed(self) -> None:
        """It is recorded once, and tried until it succeeds."""
        await self.admin.delete(ROLEBINDINGS, NAMES_ACCOUNT, SYSTEM)
        client = self.start()
        first = self.token_of(client)
        self.date += 0.6 * WEEK
        await self.until(lambda: client.requests["create", "serviceaccounts/token"] > 3)
        self.assertEqual((self.token_of(client), self.reasons()), (first, ["NotRenewed"]))
        (binding,) = [body for resource, body in roles(SETTINGS) if resource == ROLEBINDINGS]
        await self.admin.create(ROLEBINDINGS, binding)
        await self.until(lambda: self.token_of(client) != first)
        self.assertEqual(self.reasons(), ["NotRenewed", "Renewed"])

    async def test_a_new_kubeconfig(self) -> None:
        """After all tokens have ended the one that an administrator writes is taken, without a restart."""
        client = self.start()
        self.date += 0.6 * WEEK
        await self.until(self.kept.exists)
        await self.admin.delete(SECRETS, bound_secret_of(NAMES_ACCOUNT), SYSTEM)
        with self.assertRaises(Unauthorized):
            await client.list(NAMESPACES)
        self.date += 1
        await self.admin.create(SECRETS, bound_secret(SYSTEM, NAMES_ACCOUNT))
        await self.install()
        await client.list(NAMESPACES)

    async def test_one_without_end(self) -> None:
        """That of an earlier version is replaced at once, and the new one kept in the state directory."""
        claims = {
            "sub": f"system:serviceaccount:{SYSTEM}:{NAMES_ACCOUNT}",
            "kubernetes.io/serviceaccount/service-account.uid": self.uid,
        }
        endless = f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.c2ln"
        self.cluster.add_user(endless, account_user(SYSTEM, NAMES_ACCOUNT, self.uid))
        token = AccountToken(endless, lambda: endless)
        client = self.start(
            ClientConfig(self.cluster.url, self.cluster.authority.pem, token=token, renew_token=token.renew),
            {"STATE_DIRECTORY": f"{self.folder}:/nowhere"},
        )
        await self.until(lambda: self.token_of(client) != endless)
        self.assertEqual((self.folder / "home.token").read_text().strip(), self.token_of(client))
        self.assertEqual(self.reasons(), ["Bounded"])

    async def test_credentials_of_somebody_else(self) -> None:
        """An administrator's certificate, and the token of another account, are nobody's to renew."""
        await self.admin.create(SERVICEACCOUNTS, account(SYSTEM, "other"))
        answer = await self.admin.create(
            SERVICEACCOUNTS, {"spec": {"expirationSeconds": WEEK}}, SYSTEM, name="other", subresource="token"
        )
        other = AccountToken(answer["status"]["token"], str)
        self.start(client_config(self.cluster))
        client = self.start(ClientConfig(self.cluster.url, self.cluster.authority.pem, token=other))
        self.date += 0.6 * WEEK
        await self.a_while()
        self.assertEqual((client.requests["create", "serviceaccounts/token"], self.events), (0, []))

    async def test_where_it_cannot_be_kept(self) -> None:
        """It is used all the same, and the log says what that means."""
        self.kept.mkdir()
        client = self.start()
        await self.renewed(client)
        self.assertTrue(await self.works(self.token_of(client)))


class StolenTests(RenewalCase):
    """What somebody has who copied the files of a process, or has its token."""

    async def test_it_ends(self) -> None:
        """A copy of kubeconfig and state directory is of no use after the token's life, while the process goes on."""
        client = self.start()
        copies = [self.token_of(client)]
        await self.renewed(client)
        await self.until(self.kept.exists)
        copies.append(self.kept.read_text().strip())
        self.assertEqual([await self.works(copy) for copy in copies], [True, True])
        for _ in range(2):
            await self.renewed(client)
        self.assertEqual([await self.works(copy) for copy in copies], [False, False])
        await client.list(NAMESPACES)

    async def test_a_copy_is_not_renewed(self) -> None:
        """That the process renews its own makes a copy hold no longer than it said when it was copied."""
        client = self.start()
        copy = self.token_of(client)
        await self.renewed(client)
        self.assertTrue(await self.works(copy))
        self.date += 0.4 * WEEK + 1
        self.assertFalse(await self.works(copy))
        await client.list(NAMESPACES)

    async def test_all_end_with_the_secret(self) -> None:
        """Who renewed a stolen one loses it with the Secret that all are bound to, and gets no other one by it."""
        client = self.start()
        thief = self.client(load(str(self.file)))
        renewed = await self.made(thief)
        self.date += 0.9 * WEEK
        self.assertTrue(await self.works(renewed))
        await self.admin.delete(SECRETS, bound_secret_of(NAMES_ACCOUNT), SYSTEM)
        await self.admin.create(SECRETS, bound_secret(SYSTEM, NAMES_ACCOUNT))
        self.assertEqual([await self.works(one) for one in (renewed, self.token_of(client))], [False, False])
        with self.assertRaises(Unauthorized):
            await self.made(thief)
