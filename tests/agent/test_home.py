"""The home cluster is made ready from nothing, again and again, and what is in the way is said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubesandbox.auth.tokens import User
from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from liqod.agent import home as homes
from liqod.agent.errors import StartupError
from liqod.agent.home import Home
from liqod.config.load import parse
from liqod.config.schema import Settings
from liqod.demo.access import client_config
from liqod.identity.certs import generate
from liqod.identity.store import to_secret
from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant
from liqod.kube.resources import CRDS, NAMESPACES, SECRETS
from liqod.model.diagnosis.releases import VERSION_LABEL
from liqod.model.ids import ClusterID
from liqod.model.objects.meta import Object
from liqod.model.records.rotation import IDENTITY_SECRET

REACTOR: Any = reactor


class PreparingTests(TestCase):
    timeout = 20

    def setUp(self) -> None:
        self.cluster = SandboxCluster(REACTOR, "rome")
        self.cluster.listen(REACTOR)
        self.cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(self.cluster.stop()))
        self.client = self.connect(Client(client_config(self.cluster), REACTOR))

    def connect(self, client: Client) -> Client:
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        return client

    async def prepare(self, client: Client | None = None, settings: Settings | None = None, ahead: float = 0) -> Home:
        return await homes.prepare(
            client or self.client,
            settings or Settings(),
            self.cluster.url,
            "node-1.example.org",
            lambda: datetime.now(UTC) + timedelta(seconds=ahead),
        )

    async def trouble(self, **arguments: Any) -> StartupError:
        try:
            await self.prepare(**arguments)
        except StartupError as trouble:
            return trouble
        raise AssertionError("nothing was in the way")

    async def test_from_nothing(self) -> None:
        """On an empty cluster it makes the definitions, its namespace and a key; the ID is kube-system's."""
        home = await self.prepare()
        system = await self.client.get(NAMESPACES, "kube-system", view=Object)
        self.assertEqual((home.cluster_id, home.cluster_name), (system.metadata.uid, "node-1"))
        await self.client.get(NAMESPACES, "liqo-system")
        for definition in manifests.definitions():
            self.assertTrue(manifests.is_established(await self.client.get(CRDS, definition["metadata"]["name"])))

    async def test_again(self) -> None:
        """The second time the key is the same, and nothing is written."""
        first = await self.prepare()
        before = self.cluster.store.version
        second = await self.prepare()
        self.assertEqual(first.keypair.fingerprint, second.keypair.fingerprint)
        self.assertEqual(self.cluster.store.version, before)

    async def test_two_daemons(self) -> None:
        """Two daemons that start at once agree on one key."""
        other = self.connect(Client(client_config(self.cluster), REACTOR))
        homes_made = await gatherResults([
            Deferred.fromCoroutine(self.prepare()), Deferred.fromCoroutine(self.prepare(other)),
        ])  # fmt: skip
        self.assertEqual(len({home.keypair.fingerprint for home in homes_made}), 1)

    async def test_configured(self) -> None:
        """ID, name, namespace and key can be configured; then no Secret is made."""
        keypair = generate(ClusterID("rome"), datetime.now(UTC))
        directory = Path(self.mktemp()).absolute()
        directory.mkdir()
        for name, content in (("key.pem", keypair.key_pem), ("crt.pem", keypair.certificate_pem)):
            (directory / name).write_bytes(content)
            (directory / name).chmod(0o600)
        settings = parse(
            '[cluster]\nid = "rome"\nname = "roma"\n[kubernetes]\nnamespace = "elsewhere"\n'
            f'[identity]\nkey = "{directory}/key.pem"\ncertificate = "{directory}/crt.pem"',
            {},
        )
        home = await self.prepare(settings=settings)
        self.assertEqual((home.cluster_id, home.cluster_name), ("rome", "roma"))
        self.assertEqual(home.keypair.fingerprint, keypair.fingerprint)
        self.assertEqual((await self.client.list(SECRETS, "elsewhere")).items, [])

    async def test_unreachable(self) -> None:
        """An API server that is not there is a sentence with its address."""
        nowhere = self.connect(Client(from_grant("https://127.0.0.1:1", None, str), REACTOR))
        self.assertEqual((await self.trouble(client=nowhere)).reason, "APIUnreachable")

    async def test_credentials(self) -> None:
        """A token that nobody knows is distinguished from missing rights."""
        stranger = self.connect(Client(from_grant(self.cluster.url, self.cluster.authority.pem, lambda: "x"), REACTOR))
        self.assertEqual((await self.trouble(client=stranger)).reason, "CredentialsRefused")

    async def test_rights(self) -> None:
        """A user without rights learns which ones are missing."""
        self.cluster.add_user("secret", User("guest", ("system:authenticated",)))
        guest = self.connect(
            Client(from_grant(self.cluster.url, self.cluster.authority.pem, lambda: "secret"), REACTOR)
        )
        settings = parse('[cluster]\nid = "rome"', {})
        trouble = await self.trouble(client=guest, settings=settings)
        self.assertEqual(trouble.reason, "RightsMissing")
        self.assertIn("get namespaces, list namespaces", trouble.message)
        self.assertIn("; `liqodctl install`, run", trouble.message)
        for role in ("control", "network"):
            settings = parse(f'[cluster]\nid = "rome"\n[network]\nmode = "wireguard"\n[daemon]\nrole = "{role}"', {})
            trouble = await self.trouble(client=guest, settings=settings)
            self.assertIn(f"; `LIQOD_DAEMON__ROLE={role} liqodctl install`, run", trouble.message)

    async def test_definitions_missing(self) -> None:
        """Where the daemon may not manage definitions, missing ones are named."""
        settings = parse("[kubernetes]\nmanage-crds = false", {})
        trouble = await self.trouble(settings=settings)
        self.assertEqual(trouble.reason, "DefinitionsMissing")
        self.assertIn("foreignclusters.discovery.liqo.io", trouble.message)
        await manifests.ensure(self.client)
        await self.prepare(settings=settings)

    async def test_definitions_of_a_later_release(self) -> None:
        """Those that do not serve this release are named with the release that wrote them, and are left as they are."""
        await manifests.ensure(self.client)
        later = {
            "metadata": {"labels": {VERSION_LABEL: "999.0.0"}},
            "spec": {"names": {"shortNames": ["later"]}},
        }
        name = "foreignclusters.discovery.liqo.io"
        await self.client.patch(CRDS, name, later)
        trouble = await self.trouble()
        self.assertEqual(trouble.reason, "LaterRelease")
        self.assertIn(f"{name} was written by liqod 999.0.0", trouble.message)
        self.assertEqual((await self.client.get(CRDS, name))["spec"]["names"]["shortNames"], ["later"])

    async def test_definitions_of_somebody_else(self) -> None:
        """Liqo's of the same name is left as it is, and named with what to do."""
        name = "foreignclusters.discovery.liqo.io"
        await manifests.ensure(self.client)
        await self.client.patch(
            CRDS,
            name,
            {"metadata": {"labels": {manifests.MANAGED_BY: "Helm"}}, "spec": {"names": {"shortNames": ["other"]}}},
        )
        trouble = await self.trouble()
        self.assertEqual(trouble.reason, "ManagedElsewhere")
        self.assertIn(f"{name} is not marked as liqod's", trouble.message)
        self.assertIn("`liqodctl install`", trouble.message)
        self.assertEqual((await self.client.get(CRDS, name))["spec"]["names"]["shortNames"], ["other"])

    async def test_clock(self) -> None:
        """A clock that is far off is in the way."""
        self.assertEqual((await self.trouble(ahead=400)).reason, "ClockSkew")
        await self.prepare(ahead=60)

    async def test_broken_key(self) -> None:
        """A key that cannot be read is not replaced, because peers pinned it."""
        await self.client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        broken = {"metadata": {"name": IDENTITY_SECRET}, "data": {"tls.key": "eA==", "tls.crt": "eA=="}}
        await self.client.create(SECRETS, broken, "liqo-system")
        trouble = await self.trouble()
        self.assertEqual(trouble.reason, "IdentityUnusable")
        self.assertIn("Secret liqo-system/liqod-identity", trouble.message)

    async def test_a_ca_without_a_certificate(self) -> None:
        """A file that has no certificate is found before the election, not as a defect of who leads."""
        path = Path(self.mktemp()).absolute()
        for content in ("", "no certificate", "-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n"):
            path.write_text(content)
            trouble = await self.trouble(settings=parse(f'[identity]\nca = "{path}"\n', {}))
            self.assertEqual(trouble.reason, "IdentityUnusable")
            self.assertIn(str(path), trouble.message)

    async def test_a_key_that_changed_meanwhile(self) -> None:
        """Who stood by while another daemon changed the key leads with the one that the Secret holds now."""
        home = await self.prepare()
        changed = generate(home.cluster_id, datetime.now(UTC))
        await self.client.patch(SECRETS, IDENTITY_SECRET, {"data": to_secret(changed)}, "liqo-system")
        now = await homes.refreshed(self.client, Settings(), home, datetime.now(UTC))
        self.assertEqual(now.keypair.fingerprint, changed.fingerprint)
        self.assertEqual((now.cluster_id, now.cluster_name), (home.cluster_id, home.cluster_name))
