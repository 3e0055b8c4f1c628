"""What the admission webhook does on an API server, as cases for the sandbox and for real clusters alike.

A case needs ``self.admin``, and ``self.host``: the address by which the API server reaches this process.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from twisted.internet import ssl
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import FailTest, TestCase

from liqod.config.schema import KubernetesSettings, Settings, WebhookSettings
from liqod.flow.clocks import installed_reactor
from liqod.identity.serving import from_data
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import NotFound
from liqod.kube.resources import MUTATINGWEBHOOKS, NAMESPACEOFFLOADINGS, NAMESPACES, PODS, SECRETS
from liqod.model.records.offloading import NamespaceOffloading, OffloadingPolicy
from liqod.webhook.backfill import Backfill, PlacedPod
from liqod.webhook.review import MAX_BODY
from liqod.webhook.service import AdmissionWebhook

T = TypeVar("T")
KEY = "virtual-node.liqo.io/not-allowed"


class Events:
    """Keeps the events of objects in some namespaces: a real cluster still has the pods of other cases."""

    def __init__(self, *spaces: str) -> None:
        self.seen: list[tuple[str, str]] = []
        self._spaces = spaces

    def record_event(self, regarding: Any, type: str, reason: str, message: str, source: Any = None) -> None:
        if regarding["namespace"] in self._spaces:
            self.seen.append((str(regarding["name"]), reason))


class WebhookCase(TestCase):
    """The cases; a subclass provides the cluster."""

    admin: Client
    host = "127.0.0.1"
    patience = 15.0
    timeout = 60

    async def begin(self) -> None:
        """To be called by the subclass when ``self.admin`` works."""
        tag = secrets.token_hex(3)
        self.system, self.space, self.plain = f"liqo-{tag}", f"shop-{tag}", f"plain-{tag}"
        self.later = timedelta(0)
        self.events = Events(self.space, self.plain)
        await self.admin.delete(MUTATINGWEBHOOKS, "liqod")
        await manifests.ensure(self.admin)
        for name, labels in ((self.system, {}), (self.space, {"liqo.io/enabled": "true"}), (self.plain, {})):
            await self.admin.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
        self.addCleanup(self.admin.delete, MUTATINGWEBHOOKS, "liqod")
        await self.start()
        self.addCleanup(self.stop)

    async def start(self) -> None:
        """Start the webhook, with a client of its own, and wait until it is asked."""
        reactor = installed_reactor()
        self.client = Client(self.admin.config, reactor)
        self.informers = Informers(self.client, reactor)
        settings = Settings(
            kubernetes=KubernetesSettings(namespace=self.system), webhook=WebhookSettings(listen="tcp:0")
        )
        self.webhook = AdmissionWebhook(
            reactor,
            self.client,
            settings,
            self.host,
            offloadings=self.informers.of(NAMESPACEOFFLOADINGS, NamespaceOffloading),
            recorder=self.events,
            wall=lambda: datetime.now(UTC) + self.later,
        )
        self.informers.startService()
        self.webhook.startService()

        async def configured() -> bool:
            return self.webhook.configured.value

        await self.eventually(configured)

    async def stop(self) -> None:
        if self.webhook.running:
            reactor = installed_reactor()
            await self.webhook.stopService()
            await self.informers.stopService()
            await self.client.close()
            # One that called it sees its connections end one turn later.
            await deferLater(reactor, 0.05)

    async def eventually(self, look: Callable[[], Awaitable[T]]) -> T:
        """Return what ``look`` returns once it is true."""
        reactor = installed_reactor()
        deadline = reactor.seconds() + self.patience
        while True:
            failure: Exception | None = None
            try:
                if found := await look():
                    return found
            except (AssertionError, NotFound) as error:
                failure = error
            if reactor.seconds() > deadline:
                raise failure or FailTest("it did not become true in time")
            await deferLater(reactor, 0.1)

    async def pod(self, name: str, namespace: str, **spec: Any) -> list[dict[str, Any]]:
        """Create a pod; return the tolerations it came out with."""
        container = {"name": "main", "image": "localhost/busybox:1"}
        body = {
            "metadata": {"name": name},
            "spec": {"containers": [container], "automountServiceAccountToken": False, **spec},
        }
        made = await self.admin.create(PODS, body, namespace)
        return [one for one in made["spec"].get("tolerations", []) if not one.get("key", "").startswith("node.")]

    async def tolerated(self) -> None:
        """Wait until new pods come out with the toleration: API servers take a moment to see a configuration."""

        async def look() -> bool:
            return bool(await self.pod(f"try-{secrets.token_hex(4)}", self.space))

        await self.eventually(look)

    async def test_pods_of_enabled_namespaces(self) -> None:
        """Only pods in enabled namespaces get the toleration, and what the user tolerates stays."""
        await self.tolerated()
        mine = {"key": "gpu", "operator": "Exists"}
        got = await self.pod("web", self.space, tolerations=[mine])
        self.assertEqual(got, [mine, {"key": KEY, "operator": "Exists", "effect": "NoExecute"}])
        self.assertEqual(await self.pod("web", self.plain), [])

    async def test_it_never_blocks(self) -> None:
        """Without a daemon pods are created all the same; those that found no place get their toleration afterwards."""
        await self.tolerated()
        await self.stop()
        mine = {"key": "gpu", "operator": "Exists"}
        self.assertEqual(
            await self.pod("slipped", self.space, nodeSelector={"no": "where"}, tolerations=[mine]), [mine]
        )
        self.assertEqual(await self.pod("slipped", self.plain, nodeSelector={"no": "where"}), [])
        await self.start()

        async def mended() -> bool:
            body = await self.admin.get(PODS, "slipped", self.space)
            kept = [
                toleration
                for toleration in body["spec"]["tolerations"]
                if "node.kubernetes.io" not in toleration["key"]
            ]
            return kept == [mine, {"key": KEY, "operator": "Exists", "effect": "NoExecute"}]

        await self.eventually(mended)
        body = await self.admin.get(PODS, "slipped", self.plain)
        self.assertNotIn(KEY, [toleration["key"] for toleration in body["spec"].get("tolerations", [])])
        self.assertEqual(await self.webhook._backfill.search(), 0)
        self.assertEqual(self.events.seen, [])

    async def test_a_pod_that_changes_while_it_is_mended(self) -> None:
        """What the scheduler wrote into a pod since it was seen neither stops its mending nor counts as a refusal."""
        await self.tolerated()
        await self.stop()
        await self.pod("moving", self.space, nodeSelector={"no": "where"})
        seen: PlacedPod = await self.admin.get(PODS, "moving", self.space, view=PlacedPod)
        await self.admin.patch(PODS, "moving", {"metadata": {"labels": {"changed": "since"}}}, self.space)
        await Backfill(self.admin, self.events, lambda _: OffloadingPolicy())._add_toleration(seen)
        body = await self.admin.get(PODS, "moving", self.space)
        self.assertIn(KEY, [toleration.get("key") for toleration in body["spec"]["tolerations"]])
        self.assertEqual(self.events.seen, [])

    async def want(self, **spec: Any) -> None:
        """Make a NamespaceOffloading, and wait until the webhook knows it."""
        body = {"metadata": {"name": "offloading"}, "spec": spec}
        await self.admin.create(NAMESPACEOFFLOADINGS, body, self.space)

        async def known() -> bool:
            return self.webhook.policy(self.space) != OffloadingPolicy()

        await self.eventually(known)

    async def test_placement(self) -> None:
        """With Remote a pod may only run on virtual nodes; with Local it gets nothing."""
        await self.tolerated()
        await self.want(podOffloadingStrategy="Remote")
        await self.pod("away", self.space)
        body = await self.admin.get(PODS, "away", self.space)
        required = body["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        virtual = {"key": "liqo.io/type", "operator": "In", "values": ["virtual-node"]}
        self.assertEqual(required, {"nodeSelectorTerms": [{"matchExpressions": [virtual]}]})
        await self.admin.patch(
            NAMESPACEOFFLOADINGS, "offloading", {"spec": {"podOffloadingStrategy": "Local"}}, self.space
        )

        async def plain() -> bool:
            return not await self.pod(f"home-{secrets.token_hex(4)}", self.space)

        await self.eventually(plain)

    async def test_missed_and_refused(self) -> None:
        """A pod that would need an affinity, or runs here though it should not, gets one event."""
        await self.tolerated()
        await self.want(podOffloadingStrategy="Remote")
        await self.stop()
        await self.pod("waits", self.space, nodeSelector={"no": "where"})
        await self.pod("runs", self.space, nodeName="somewhere")
        await self.pod("other", self.plain, nodeName="somewhere")
        await self.start()

        async def reported() -> bool:
            return {"runs", "waits"} <= {name for name, _ in self.events.seen}

        await self.eventually(reported)
        await self.webhook._backfill.search()
        await self.webhook._backfill.search_local([self.space])
        reported_pods = sorted(name for name, reason in self.events.seen if not name.startswith("try-"))
        self.assertEqual(reported_pods, ["runs", "waits"])
        self.assertEqual({reason for _, reason in self.events.seen}, {"OffloadingNotAdmitted"})
        body = await self.admin.get(PODS, "waits", self.space)
        self.assertNotIn(KEY, [toleration["key"] for toleration in body["spec"].get("tolerations", [])])

    async def test_a_restart_writes_nothing(self) -> None:
        """A second start on the same port finds secret and configuration as they should be."""
        reactor = installed_reactor()
        port = self.webhook.port
        await self.stop()
        client = Client(self.admin.config, reactor)
        settings = Settings(
            kubernetes=KubernetesSettings(namespace=self.system), webhook=WebhookSettings(listen=f"tcp:{port}")
        )
        again = AdmissionWebhook(reactor, client, settings, self.host, recorder=self.events)
        again.startService()
        try:

            async def configured() -> bool:
                return again.configured.value

            await self.eventually(configured)
            self.assertEqual([key for key in client.requests if key[0] not in ("get", "list", "watch")], [])
        finally:
            await again.stopService()
            await client.close()

    async def test_a_deleted_configuration_comes_back(self) -> None:
        """A configuration that somebody deletes or changes is put right; what they add to its selector stays."""
        await self.admin.delete(MUTATINGWEBHOOKS, "liqod")
        await self.eventually(lambda: self.admin.get(MUTATINGWEBHOOKS, "liqod"))
        theirs = [{"key": "example.com/managed-by", "operator": "NotIn", "values": ["provider"]}]
        change = [
            {"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail"},
            {"op": "add", "path": "/webhooks/0/namespaceSelector/matchExpressions", "value": theirs},
        ]
        await self.admin.patch(MUTATINGWEBHOOKS, "liqod", change, kind="json")

        async def right() -> bool:
            found = await self.admin.get(MUTATINGWEBHOOKS, "liqod")
            return bool(found["webhooks"][0]["failurePolicy"] == "Ignore")

        await self.eventually(right)
        selector = (await self.admin.get(MUTATINGWEBHOOKS, "liqod"))["webhooks"][0]["namespaceSelector"]
        self.assertEqual(selector, {"matchLabels": {"liqo.io/enabled": "true"}, "matchExpressions": theirs})

    async def test_renewal_without_a_gap(self) -> None:
        """A certificate near its end is renewed by the same CA, and new pods get the toleration all the time."""
        await self.tolerated()
        first = from_data((await self.admin.get(SECRETS, "liqod-webhook", self.system))["data"])
        self.later = timedelta(days=70)
        self.webhook._queue.add("serving")

        async def renewed() -> bool:
            secret = await self.admin.get(SECRETS, "liqod-webhook", self.system)
            self.assertTrue(await self.pod(f"gap-{secrets.token_hex(4)}", self.space))
            return from_data(secret["data"]) != first

        await self.eventually(renewed)
        self.assertTrue(await self.pod("after", self.space))
        second = from_data((await self.admin.get(SECRETS, "liqod-webhook", self.system))["data"])
        self.assertEqual(second.ca_pem, first.ca_pem)

    async def test_odd_requests(self) -> None:
        """Anything but a review gets a sentence and the right code; a body without end is cut off."""
        cases = (
            (b"GET /mutate/pod HTTP/1.1\r\nHost: x\r\n\r\n", b" 405 ", b"POST"),
            (b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", b" 404 ", b"/mutate/pod"),
            (b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n{]}", b" 400 ", b"AdmissionReview"),
            (b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1), b" 413 ", b""),
        )
        for request, code, words in cases:
            answered = await self.exchange(request)
            self.assertIn(code, answered.split(b"\r\n")[0])
            self.assertIn(words, answered)
        chunk = b"%x\r\n%s\r\n" % (65536, b"x" * 65536)
        endless = b"POST /mutate/pod HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 50
        self.assertIn(b" 413 ", (await self.exchange(endless)).split(b"\r\n")[0])

    async def exchange(self, request: bytes) -> bytes:
        """Send bytes over TLS and return what comes back until the answer is whole."""
        reactor = installed_reactor()
        secret = await self.admin.get(SECRETS, "liqod-webhook", self.system)
        authority = ssl.Certificate.loadPEM(from_data(secret["data"]).ca_pem)
        options = ssl.optionsForClientTLS(self.host, trustRoot=authority)
        endpoint = wrapClientTLS(options, HostnameEndpoint(reactor, self.host, self.webhook.port))
        talk: Any = await endpoint.connect(Factory.forProtocol(Talk))
        talk.transport.write(request)
        try:
            return bytes(await talk.answered.addTimeout(5, reactor))
        finally:
            talk.transport.abortConnection()


class Talk(Protocol):
    """Collects an answer up to the end of its body."""

    def __init__(self) -> None:
        self.answered: Deferred[bytes] = Deferred()
        self._seen = b""

    def dataReceived(self, data: bytes) -> None:
        self._seen += data
        head, end, body = self._seen.partition(b"\r\n\r\n")
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if end and name.lower() == b"content-length" and len(body) >= int(value) and not self.answered.called:
                self.answered.callback(self._seen)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.answered.called:
            self.answered.callback(self._seen)
