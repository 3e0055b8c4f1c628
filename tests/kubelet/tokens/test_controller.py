"""Steps of the tokens of a pod, against a lender that is made of its answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.controller import After
from liqod.flow.observe import Latest
from liqod.kubelet.common.readiness import READY
from liqod.kubelet.common.views import Shadow
from liqod.kubelet.tokens import controller
from liqod.kubelet.tokens.controller import SHADOW_INTERVAL, TokenController
from liqod.model.ids import Key
from liqod.model.names import HOME_POD_UID_ANNOTATION
from liqod.model.objects.meta import ObjectMeta
from tests.clocks import HostClock
from tests.hosting.shadowpods.test_controller import Cache
from tests.kubelet.tokens.test_tokens import CONTEXT, pod, secret

WEB = Key("shop", "web")


class Listed(Cache, Service):
    """The Secrets at the lender, which have been listed."""


class Lender:
    """One remote namespace, with or without a ShadowPod."""

    namespace = "shop-home"
    synced = True

    def __init__(self) -> None:
        self.has: Shadow | None = None
        self.requests: list[str] = []

    @property
    def client(self) -> Lender:
        return self

    def shadow(self, name: str) -> Shadow | None:
        return self.has

    async def delete(self, resource: Any, name: str, namespace: str, *, uid: str) -> None:
        self.requests.append(f"delete {name} {uid}")


class GonePodTests(SynchronousTestCase):
    """The Secret of a pod that is gone at home."""

    def setUp(self) -> None:
        self.secrets, there = Listed(), secret(pod())
        self.there = msgspec.structs.replace(
            there, metadata=msgspec.structs.replace(there.metadata, namespace="shop-home")
        )
        self.secrets.put(self.there)
        self.patch(controller, "Informer", lambda *_, **__: self.secrets)
        self.lender = Lender()
        health = SimpleNamespace(ok=True, state=Latest(READY), request_succeeded=lambda: None)
        self.tokens = TokenController(
            HostClock(),
            cast(Any, None),
            context=CONTEXT,
            pods=cast(Any, Cache()),
            namespaces=cast(Any, None),
            health=cast(Any, health),
            recorder=cast(Any, None),
            workers=1,
        )
        self.tokens._namespace_changed("shop", cast(Any, self.lender))

    def step(self) -> After | None:
        return self.successResultOf(Deferred.fromCoroutine(self.tokens.reconcile(WEB)))

    def test_one_that_somebody_deleted(self) -> None:
        """What this daemon wrote counts no more when the watch shows that it is gone: it is not deleted again."""
        self.tokens._mutations.wrote(WEB, None, self.there)
        self.secrets.remove(self.there.metadata.key)
        self.assertEqual((self.step(), self.lender.requests), (None, []))

    def test_it_stays_while_it_is_used(self) -> None:
        """While its ShadowPod is there, or it is not known whether it is, the containers may read their tokens."""
        waits = After(SHADOW_INTERVAL)
        self.lender.has = Shadow(metadata=ObjectMeta(name="web", annotations={HOME_POD_UID_ANNOTATION: "u1"}))
        self.assertEqual((self.step(), self.lender.requests), (waits, []))
        self.lender.has, self.lender.synced = None, False
        self.assertEqual((self.step(), self.lender.requests), (waits, []))
        self.lender.synced = True
        self.assertEqual((self.step(), self.lender.requests), (None, ["delete web.liqo-token s1"]))

    def test_the_first_list(self) -> None:
        """No pod is looked at while the Secrets of its namespace are listed; then all are, and each that changes."""
        secrets, listed, seen = Listed(), Deferred[None](), list[Key]()
        self.patch(controller, "Informer", lambda *_, **__: secrets)
        self.patch(secrets, "when_synced", lambda: listed)
        self.patch(self.tokens, "enqueue", seen.append)
        self.tokens._pods = cast(Any, Cache())
        secrets.synced = False
        self.tokens._namespace_changed("other", cast(Any, Lender()))
        secrets.put(self.there)
        self.assertEqual(seen, [])
        secrets.synced = True
        listed.callback(None)
        secrets.put(self.there)
        self.assertEqual(seen, [Key("other", "web"), Key("other", "web")])
