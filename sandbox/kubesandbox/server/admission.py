"""Admission webhooks: calls them over HTTPS with the CA of their configuration."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import attrs
from twisted.internet import ssl
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator, IReactorTCP, IReactorTime
from twisted.internet.task import Cooperator
from twisted.logger import Logger
from twisted.web.client import Agent, FileBodyProducer, HTTPConnectionPool, readBody
from twisted.web.http_headers import Headers
from twisted.web.iweb import IPolicyForHTTPS
from zope.interface import implementer

from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import MUTATING, VALIDATING, GroupResource, Json
from kubesandbox.server import hooks as pure
from kubesandbox.server.hooks import BadAnswer, Hook
from kubesandbox.server.requests import Review
from kubesandbox.store.state import Store


@implementer(IPolicyForHTTPS)
@attrs.frozen
class _TrustOne:
    """Trusts servers whose certificates one bundle of authorities signed."""

    ca_pem: bytes

    def creatorForNetloc(self, hostname: bytes, port: int) -> IOpenSSLClientConnectionCreator:
        marker = b"-----END CERTIFICATE-----"
        parts = [part + marker for part in self.ca_pem.split(marker) if b"BEGIN CERTIFICATE" in part]
        trust = ssl.trustRootFromCertificates([ssl.Certificate.loadPEM(part) for part in parts])
        return ssl.optionsForClientTLS(hostname.decode("ascii"), trustRoot=trust)


class ConfiguredWebhooks:
    """The webhooks of the configurations in the store; without a network, every call to one fails."""

    log = Logger()

    def __init__(self, store: Store, clock: IReactorTime, fresh_uid: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._fresh_uid = fresh_uid
        self._known: dict[GroupResource, list[Hook]] = {MUTATING: [], VALIDATING: []}
        self._agents: dict[bytes, Agent] = {}
        self._pools: list[HTTPConnectionPool] = []
        for resource in self._known:
            store.subscribe(resource, lambda _, resource=resource: self._reread(resource))  # type: ignore[misc]
            self._reread(resource)

    def _reread(self, resource: GroupResource) -> None:
        self._known[resource] = [hook for stored in self._store.items(resource) for hook in pure.read(stored.object)]
        current = {hook.ca_pem for known in self._known.values() for hook in known}
        self._agents = {ca_pem: agent for ca_pem, agent in self._agents.items() if ca_pem in current}

    def matching(self, review: Review, *, mutating: bool) -> list[Hook]:
        """Return the webhooks that match a write; none for webhook configurations, so that they remain repairable."""
        known = self._known[MUTATING if mutating else VALIDATING]
        if not known or review.kind.resource in self._known:
            return []
        return [hook for hook in known if hook.concerns(review)]

    async def mutate(self, review: Review, hooks: list[Hook]) -> Json:
        """Return the object after all mutating webhooks, in order; raise ApiStatus."""
        body = review.new or {}
        for hook in hooks:
            changed = await self._ask(hook, attrs.evolve(review, new=body))
            body = changed if changed is not None else body
        return body

    async def validate(self, review: Review, hooks: list[Hook]) -> None:
        """Raise ApiStatus when a webhook refuses."""
        for hook in hooks:
            await self._ask(hook, review)

    async def _ask(self, hook: Hook, review: Review) -> Json | None:
        uid = self._fresh_uid()
        try:
            data = await self._post(hook, pure.question(review, uid))
            return pure.answered(hook, data, uid, review.new)
        except statuses.ApiStatus:
            raise
        except Exception as error:
            why = str(error) or type(error).__name__
            if hook.fail_closed:
                raise statuses.internal(
                    f'failed calling webhook "{hook.name}": failed to call webhook: {why}'
                ) from error
            self.log.warn("webhook {name} failed, and the request goes on: {why}", name=hook.name, why=why)  # noqa: G010
            return review.new

    async def _post(self, hook: Hook, body: bytes) -> bytes:
        if not IReactorTCP.providedBy(self._clock):
            raise BadAnswer("this cluster has no network")
        if urlsplit(hook.url).scheme != "https":
            raise BadAnswer(f"{hook.url!r} is not an https URL; webhooks behind services are not reachable here")
        url = f"{hook.url}{'&' if '?' in hook.url else '?'}timeout={hook.timeout:g}s"
        headers = Headers({"Content-Type": ["application/json"], "User-Agent": ["kube-apiserver-admission"]})
        called: Deferred[bytes] = Deferred.fromCoroutine(self._exchange(hook, url, headers, body))
        called.addTimeout(hook.timeout, self._clock, _timed_out(url))
        return await called

    async def close(self) -> None:
        """Close the connections to webhooks."""
        pools, self._pools = self._pools, []
        self._agents.clear()
        for pool in pools:
            await pool.closeCachedConnections()

    async def _exchange(self, hook: Hook, url: str, headers: Headers, body: bytes) -> bytes:
        agent = self._agents.get(hook.ca_pem)
        if agent is None:
            pool: Any = HTTPConnectionPool(self._clock)
            self._pools.append(pool)
            agent = self._agents[hook.ca_pem] = Agent(
                self._clock, _TrustOne(hook.ca_pem), connectTimeout=hook.timeout, pool=pool
            )
        # By default a body is produced in turns of the process's reactor, which simulated time does not run.
        turns = Cooperator(scheduler=lambda turn: self._clock.callLater(0, turn))
        producer = FileBodyProducer(BytesIO(body), cooperator=turns)
        response: Any = await agent.request(b"POST", url.encode(), headers, producer)
        data: bytes = await readBody(response)
        if response.code != 200:
            raise BadAnswer(f"the server answered {response.code}")
        return data


def _timed_out(url: str) -> Callable[[object, float], object]:
    def passed(result: object, seconds: float) -> object:
        raise BadAnswer(f'Post "{url}": context deadline exceeded')

    return passed
