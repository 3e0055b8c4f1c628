"""When the daemon writes the configuration by which API servers ask it, on an API server that keeps only that."""

from __future__ import annotations

from io import BytesIO
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Settings, WebhookSettings
from liqod.identity.serving import generate
from liqod.kube.errors import Forbidden, NotFound
from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.offloading import REMOTE, NamespaceOffloading, NamespaceOffloadingSpec, OffloadingPolicy
from liqod.webhook.answering import Answering, ListenFailed
from liqod.webhook.configuration import Configuration, forge
from liqod.webhook.server import PATH, Mutate
from liqod.webhook.service import AdmissionWebhook
from tests.identity.test_serving import NOW

STRATEGIES = ("Local", "Remote")


class Server:
    """Has the configuration that was applied last; ``applied`` counts, ``refuses``: nothing may be written."""

    def __init__(self) -> None:
        self.there: Configuration | None = None
        self.applied = 0
        self.refuses = False

    async def get(self, resource: Any, name: str, *, view: Any) -> Configuration:
        if self.there is None:
            raise NotFound(404, "NotFound", "there is none")
        return self.there

    async def apply(self, resource: Any, body: Any, *, view: Any) -> None:
        if self.refuses:
            raise Forbidden(403, "Forbidden", "the account may not write it")
        self.applied += 1
        self.there = msgspec.convert(body, Configuration, strict=False)


class Nobody:
    """Takes events."""

    def record_event(self, *args: Any) -> None: ...


def made(server: Server, offloadings: Offloadings | None = None, enabled: Enabled | None = None) -> AdmissionWebhook:
    return AdmissionWebhook(
        cast(Any, Clock()),
        cast(Any, server),
        Settings(),
        "192.0.2.1",
        offloadings=cast(Any, offloadings),
        enabled=cast(Any, enabled),
        recorder=cast(Any, Nobody()),
    )


class Offloadings:
    """An informer of what namespaces want."""

    def __init__(self, *present: NamespaceOffloading) -> None:
        self.synced = False
        self.present = {each.metadata.key: each for each in present}

    def get(self, key: Key) -> NamespaceOffloading | None:
        return self.present.get(key)

    def items(self) -> list[NamespaceOffloading]:
        return list(self.present.values())


class Enabled:
    """An informer of the namespaces with the label."""

    def __init__(self, *names: str) -> None:
        self.synced = True
        self.names = names

    def get(self, key: Key) -> object | None:
        return key if key.name in self.names else None


def wants(namespace: str, strategy: str) -> NamespaceOffloading:
    """Return what a namespace wants."""
    spec = NamespaceOffloadingSpec(pod_offloading_strategy=strategy)
    return NamespaceOffloading(metadata=ObjectMeta(name="offloading", namespace=namespace), spec=spec)


class SearchTests(SynchronousTestCase):
    """When pods that were created without the webhook are searched for, and when answers count."""

    def test_a_namespace_is_searched_once_the_webhook_is_asked(self) -> None:
        """Before that every pod would look like one that was missed; afterwards when a policy changes."""
        webhook = made(Server())
        key = Key("shop", "offloading")
        one, other = (NamespaceOffloading(spec=NamespaceOffloadingSpec(pod_offloading_strategy=s)) for s in STRATEGIES)
        changes = ((None, one, 1), (one, other, 1), (one, one, 0), (one, None, 0))
        for configured in (False, True):
            if configured:
                webhook.configured.set(True)
            for old, new, searches in changes:
                self.assertEqual(len(list(webhook._namespace_changed(key, old, new))), searches * configured)

    def test_pods_are_reported_where_none_may_run_here(self) -> None:
        """In an enabled namespace that is to be remote; one that is no longer enabled runs its pods here."""
        offloadings = Offloadings(*(wants(name, strategy) for name, strategy in (("shop", "Remote"), ("bank", "Both"))))
        for enabled, searched in ((None, ["shop"]), (Enabled("shop", "bank"), ["shop"]), (Enabled("bank"), [])):
            self.assertEqual(made(Server(), offloadings, enabled)._remote_only(), searched)

    def test_it_is_prepared_when_it_knows_what_namespaces_want(self) -> None:
        """At once where nothing says so but their labels."""
        self.assertTrue(made(Server()).prepared)
        offloadings = Offloadings()
        webhook = made(Server(), offloadings)
        self.assertFalse(webhook.prepared)
        offloadings.synced = True
        self.assertTrue(webhook.prepared)


class Asked:
    """A request of an API server; ``code`` is the answer's."""

    path = PATH.encode()
    method = b"POST"

    def __init__(self, body: bytes) -> None:
        self.content = BytesIO(body)
        self.code = 200

    def setResponseCode(self, code: int) -> None:
        self.code = code

    def setHeader(self, name: bytes, value: bytes) -> None: ...


class AnswerTests(SynchronousTestCase):
    """What an API server is sent."""

    def test_nothing_is_answered_before_it_is_known_what_is_wanted(self) -> None:
        """A pod that was let through unread is found later; one that was changed by a guess stays so."""
        body = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "1", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": {"spec": {}}},
        }
        for prepared, code in ((False, 503), (True, 200)):
            asked = Asked(msgspec.json.encode(body))
            page = Mutate(lambda namespace: OffloadingPolicy(REMOTE), lambda: prepared, 0.0, lambda namespace: True)  # noqa: B023
            answered = page.render(cast(Any, asked))
            self.assertEqual((asked.code, b"patch" in answered), (code, prepared))


class WriteTests(SynchronousTestCase):
    """The informer shows nothing: it is behind for as long as the test lasts."""

    def test_it_is_written_once_though_the_cache_is_behind(self) -> None:
        """What the API server has already is asked for before it is written; what differs is written."""
        server = Server()
        webhook = made(server)
        bundle, other = (generate("liqod", ["192.0.2.1"], NOW) for _ in range(2))
        for given, applied in ((bundle, 1), (bundle, 1), (other, 2), (other, 2), (bundle, 3)):
            self.successResultOf(Deferred.fromCoroutine(webhook._configure(given)))
            self.assertEqual(server.applied, applied)
            self.assertTrue(webhook.configured.value)

    def test_what_was_removed_is_not_configured(self) -> None:
        """Until it is written again; then the pods that were created meanwhile are searched for."""
        server = Server()
        webhook = made(server)
        searches: list[str] = []
        self.patch(webhook, "enqueue", searches.append)
        bundle = generate("liqod", ["192.0.2.1"], NOW)
        for refuses, configured, searched in ((False, True, 1), (True, False, 1), (False, True, 2)):
            server.there, server.refuses = None, refuses
            step = Deferred.fromCoroutine(webhook._configure(bundle))
            if refuses:
                self.failureResultOf(step, Forbidden)
            else:
                self.successResultOf(step)
            self.assertEqual((webhook.configured.value, len(searches)), (configured, searched))

    def test_who_is_called_is_logged(self) -> None:
        """The service of the settings, else the URL."""
        for service, where in (("liqod/webhook:443", "liqod/webhook:443"), ("", f"https://192.0.2.1:0{PATH}")):
            webhook = made(Server())
            webhook._settings = Settings(webhook=WebhookSettings(service=service))
            with capturedLogs() as events:
                bundle = generate("liqod", ["192.0.2.1"], NOW)
                self.successResultOf(Deferred.fromCoroutine(webhook._configure(bundle)))
            self.assertEqual([event["address"] for event in events if "address" in event], [where])


class Namespaces:
    """An informer of the enabled namespaces: of one, when it is synced."""

    def __init__(self, synced: bool) -> None:
        self.synced = synced

    def get(self, key: Key) -> object | None:
        return object() if self.synced and key == Key("", "shop") else None


class KnownTests(SynchronousTestCase):
    """What is said and asked by what is known."""

    def test_a_namespace_counts_as_enabled_while_unknown(self) -> None:
        """Until the informer is there and synced every namespace may be one."""
        for known, enabled in (
            (None, (True, True)),
            (Namespaces(False), (True, True)),
            (Namespaces(True), (True, False)),
        ):
            webhook = made(Server(), enabled=cast(Any, known))
            self.assertEqual((webhook.is_enabled("shop"), webhook.is_enabled("other")), enabled)

    def test_the_url_of_the_settings_is_the_one_to_call(self) -> None:
        """With the usual path where it has none."""
        webhook = made(Server())
        for url, called in (
            ("https://liqod.example", f"https://liqod.example{PATH}"),
            ("https://liqod.example/", f"https://liqod.example{PATH}"),
            ("https://liqod.example/own", "https://liqod.example/own"),
            ("", f"https://192.0.2.1:0{PATH}"),
        ):
            webhook._settings = Settings(webhook=WebhookSettings(url=url))
            self.assertEqual(webhook.url, called)

    def test_why_it_cannot_listen_is_always_said(self) -> None:
        """Also when no error of a socket is the cause."""
        settings = Settings(webhook=WebhookSettings(listen="nonsense"))
        answering = Answering(cast(Any, Clock()), settings, lambda: NOW)
        why = str(self.failureResultOf(Deferred.fromCoroutine(answering.listen()), ListenFailed).value)
        cause = self._cause(answering)
        self.assertTrue(cause)
        self.assertIn(cause, why)

    def _cause(self, answering: Answering) -> str:
        """Return what the endpoint itself says."""
        failure = self.failureResultOf(Deferred.fromCoroutine(answering.listen()), ListenFailed)
        return str(failure.value.__cause__)

    def test_requirements_of_others_are_kept_of_one_webhook(self) -> None:
        """A configuration with none, or with several, is not the one that this daemon wrote."""
        other = {"key": "team", "operator": "Exists"}
        theirs = {"namespaceSelector": {"matchExpressions": [other]}}
        for webhooks, kept in (([], None), ([theirs], [other]), ([theirs, theirs], None)):
            found = msgspec.convert({"metadata": {"name": "liqod"}, "webhooks": webhooks}, Configuration, strict=False)
            selector = forge("https://192.0.2.1/mutate", b"", None, found)["webhooks"][0]["namespaceSelector"]
            self.assertEqual(selector.get("matchExpressions"), kept)
