"""The API relay over real TLS: a lender's listener before an API server, and borrowers that reach it."""

from __future__ import annotations

from collections import Counter
from typing import Any, cast

from kubesandbox.cluster import SandboxCluster

from liqod.hosting.tenants import rights
from liqod.hosting.tenants.rights import user_of
from liqod.identity.tls import PeerTLS
from liqod.kube.errors import Forbidden, NotFound, Unauthorized, Unreachable
from liqod.kube.resources import CONFIGMAPS, NAMESPACES, ROLEBINDINGS, SECRETS
from liqod.kubelet.lender.health import probe
from liqod.model.names import tenant_namespace
from tests.peering.clusters import config_of, keypair
from tests.peering.relay.relay_case import CLUSTERROLES, ROME, SPACE, ByteCollector, RelayCase


class RightsTests(RelayCase):
    """A borrower with a namespace of its own, on an API server with RBAC."""

    async def setUp(self) -> None:  # type: ignore[override]
        from twisted.internet import reactor

        self.cluster = SandboxCluster(cast(Any, reactor), "lender")
        self.cluster.listen_plain(cast(Any, reactor))
        self.cluster.startService()
        self.addCleanup(self.cluster.stop)
        await self.begin(config_of(self.cluster))
        for namespace in (SPACE, "other", tenant_namespace(ROME)):
            await self.lender.create(NAMESPACES, {"metadata": {"name": namespace}})
        await self.lender.create(CLUSTERROLES, rights.borrower_role(services=True))
        await self.lender.create(ROLEBINDINGS, rights.binding(ROME, SPACE, rights.BORROWER_ROLE, "ClusterRole"))
        self.client = self.borrower()

    async def test_every_verb_passes(self) -> None:
        """Create, get, list, patch, apply, replace, delete: the client does not notice that there is a relay."""
        body = {"metadata": {"name": "a", "namespace": SPACE}, "data": {"k": "v" * 100_000}}
        await self.client.create(CONFIGMAPS, body)
        await self.client.patch(CONFIGMAPS, "a", {"data": {"k": "w"}}, SPACE)
        await self.client.apply(CONFIGMAPS, {**body, "data": {"l": "x"}})
        seen = await self.client.get(CONFIGMAPS, "a", SPACE)
        self.assertEqual(seen["data"], {"k": "w", "l": "x"})
        await self.client.replace(CONFIGMAPS, {**body, "data": {"m": "y"}}, "a", SPACE)
        listed = (await self.client.list(CONFIGMAPS, SPACE, fields="metadata.name=a")).items
        self.assertEqual([one["data"] for one in listed], [{"m": "y"}])
        await self.client.delete(CONFIGMAPS, "a", SPACE, missing_ok=False)
        with self.assertRaises(NotFound):
            await self.client.get(CONFIGMAPS, "a", SPACE)
        self.assertEqual(await self.client.raw("GET", "/readyz"), b"ok")
        self.assertEqual(self.refused, Counter())
        self.assertEqual(self.relay.requests[ROME], 9)

    async def test_requests_share_connections(self) -> None:
        """A hundred requests one after another take one connection at each end, without a new handshake."""
        for _ in range(100):
            await self.client.list(CONFIGMAPS, SPACE)
        self.assertEqual(self.relay.connections(ROME), 1)

    async def test_a_watch(self) -> None:
        """Events of a watch come through as they happen, and the watch ends on the API server when it is dropped."""
        watch = ByteCollector()
        abort = await self.client.watch(CONFIGMAPS, SPACE, {}, watch)
        await self.lender.create(CONFIGMAPS, {"metadata": {"name": "new", "namespace": SPACE}})
        await self.until(lambda: b'"new"' in watch.data)
        abort()
        await self.until(lambda: self.relay.connections(ROME) == 0)

    async def test_what_the_relay_denies(self) -> None:
        """Other namespaces, the lender's and those of nobody, cluster-scoped kinds: refused, counted, not sent."""
        sent = Counter(self.lender.requests)
        for path in (
            "/api/v1/namespaces/other/secrets",
            "/api/v1/secrets",
            "/api/v1/nodes",
            "/apis/apps/v1/deployments",
        ):
            with self.assertRaises(Forbidden):
                await self.client.raw("GET", path)
        self.assertEqual((self.refused["RelayDenied"], self.lender.requests), (4, sent))

    async def test_the_api_server_judges_again(self) -> None:
        """Where the relay is mistaken about a namespace RBAC denies it to the borrower's account, which it names."""
        self.granted["other"] = "rome"
        with self.assertRaises(Forbidden) as caught:
            await self.client.list(SECRETS, "other")
        self.assertIn(user_of(ROME), str(caught.exception))
        self.assertEqual(self.refused["RelayForbidden"], 1)

    async def test_distrust_cuts_at_once(self) -> None:
        """A key that is not trusted any more loses its watch in the same turn, and is answered nothing but 401."""
        watch = ByteCollector()
        await self.client.watch(CONFIGMAPS, SPACE, {}, watch)
        await self.client.list(CONFIGMAPS, SPACE)
        self.trusted.clear()
        with self.assertRaises(Unauthorized):  # on the connection that is open
            await self.client.list(CONFIGMAPS, SPACE)
        self.relay.review(ROME)
        await watch.lost
        self.assertEqual(self.relay.connections(ROME), 0)
        with self.assertRaises(Unauthorized):
            await self.client.list(CONFIGMAPS, SPACE)
        self.assertGreaterEqual(self.refused["RelayUnknownKey"], 2)

    async def test_distrust_has_its_reason(self) -> None:
        """A borrower that is distrusted learns that from the relay alone, and not only that nothing works."""
        self.assertTrue((await probe(self.reactor, self.client)).ready)
        self.trusted.clear()
        self.relay.review(ROME)
        found = await probe(self.reactor, self.client)
        self.assertEqual(found.reason, "CredentialRejected")
        self.assertIn("RelayUnknownKey: this key is not trusted here", found.message)

    async def test_a_stranger_gets_nothing(self) -> None:
        """A key that nobody pinned is refused with that reason, and nothing it asks reaches the API server."""
        stranger = self.borrower(PeerTLS(keypair("rome")))
        with self.assertRaises(Unauthorized):
            await stranger.list(CONFIGMAPS, SPACE)
        self.assertEqual(self.relay.requests, Counter())

    async def test_an_impostor_hears_nothing(self) -> None:
        """A borrower says no word to a relay with another key than the pinned one."""
        deceived = self.borrower(key=keypair("lender").fingerprint)
        with self.assertRaises(Unreachable) as caught:
            await deceived.list(CONFIGMAPS, SPACE)
        self.assertIn("another key than the pinned one", str(caught.exception))
        self.assertEqual(self.relay.requests, Counter())

    async def test_nobody_listens(self) -> None:
        """A relay that cannot be reached is an unreachable API server, with the address that was tried."""
        with self.assertRaises(Unreachable) as caught:
            await self.borrower(port=1).list(CONFIGMAPS, SPACE)
        self.assertIn("127.0.0.1:1", str(caught.exception))
