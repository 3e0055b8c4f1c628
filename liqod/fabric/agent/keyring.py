"""The tunnel's keys, and their rotation without a gap.

The next key becomes the current one when every peer has confirmed that its tunnel accepts it: WireGuard knows a peer by
its public key alone, so a handshake with a key that the peer has not configured gets no answer. The wait for a peer
that does not confirm is bounded: it has no session, and gets the current parameters when its session is re-established.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.fabric.agent.key import SECRET, TunnelKeys, exchange, load_or_create, plan_next
from liqod.flow.controller import Source, watch
from liqod.flow.tasks import together
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NETWORKCONFIGS, SECRETS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from liqod.model.records.network import NetworkConfig

KeyStep = Literal["keep", "note", "begin", "exchange"]
CONFIRM_TIMEOUT: Final = 120.0
"""Seconds that peers have to confirm the next key."""
TAKEOVER_TIMEOUT: Final = 86400.0
"""The same in seconds where the key is exchanged because another host is the gateway."""


class KeyRing:
    """Reads the Secret with the keys when it has changed, and rotates them; ``host`` is the address of this host."""

    _log = Logger()

    def __init__(self, client: Client, clock: IReactorTime, informers: Informers, namespace: str, host: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._host = host
        self._keys: TunnelKeys | None = None
        self._since = 0.0
        # The view has no data: the cache must not hold the private key, which is read when it is needed.
        self._watched: Informer[Object] = informers.of(
            SECRETS, Object, namespace=namespace, fields=f"metadata.name={SECRET}"
        )
        self._configs: Informer[NetworkConfig] = informers.of(NETWORKCONFIGS, NetworkConfig)

    def sources(self, key: str) -> Iterable[Source[str]]:
        """Yield what enqueues ``key`` when the Secret changed."""

        def changed(_: Key, old: Object | None, new: Object | None) -> Iterable[str]:
            # One that was deleted stays in use: the tunnels have its key. Another is created at the next start.
            if old is None or new is None or old.metadata.resource_version == new.metadata.resource_version:
                return ()
            self._keys = None
            return (key,)

        yield watch(self._watched, changed)
        yield watch(self._configs, lambda _, old, new: (key,) if _answer(old) != _answer(new) else ())

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when the Secret, and what peers have confirmed, was listed."""
        return Deferred.fromCoroutine(together([self._watched.when_synced(), self._configs.when_synced()]))

    async def keys(self) -> TunnelKeys:
        """Return the keys; creates them where there are none."""
        if self._keys is None:
            self._keys = await load_or_create(self._client, self._namespace)
            self._since = self._clock.seconds()
        return self._keys

    async def rotated(self) -> TunnelKeys:
        """Return the keys after the next step of a rotation, as far as peers have confirmed the next one."""
        return await self.rotate(self._configs.items())

    async def rotate(self, configs: Iterable[NetworkConfig]) -> TunnelKeys:
        """Take the next step of a rotation (``key_step``); return the keys after that."""
        keys = await self.keys()
        limit = TAKEOVER_TIMEOUT if keys.host and keys.host != self._host else CONFIRM_TIMEOUT
        late = self._clock.seconds() - self._since > limit
        accepted = keys.next is not None and all_accept(configs, keys.next.public)
        step = key_step(keys, self._host, accepted=accepted, late=late)
        if step == "begin":
            self._log.info(
                "the gateway was {address} before: the tunnel's key is exchanged for one that only this host has",
                address=keys.host,
            )
            following = await plan_next(self._client, self._namespace)
            keys = self._keys = attrs.evolve(keys, next=following)
        elif step != "keep":
            keys = self._keys = await exchange(self._client, self._namespace, keys, self._host)
        if step == "exchange":
            why = "every peer accepts it" if accepted else "not every peer has confirmed it in time"
            self._log.info("the tunnel's key is {public_key} now: {detail}", public_key=keys.current.public, detail=why)
        return keys


def key_step(keys: TunnelKeys, host: str, *, accepted: bool, late: bool) -> KeyStep:
    """Return the next step for the keys on a host: pure. ``accepted``: all peers accept the next key.

    An empty ``host`` is one whose address is not known: it neither notes itself nor takes over.

    A former gateway that lost its API server goes on with the present key, and peers cannot tell the two hosts apart:
    so another host begins a rotation, whose end makes peers drop what the former one sends. Where nobody takes over
    nothing changes. That rotation waits for peers for a day: those that do not know the next key yet, such as one whose
    own API server is away, keep their tunnels by the present one.
    """
    if keys.next is not None:
        return "exchange" if accepted or late else "keep"
    if host and keys.host and keys.host != host:
        return "begin"
    return "keep" if keys.host or not host else "note"


def all_accept(configs: Iterable[NetworkConfig], next_key: str) -> bool:
    """Return whether every peer with which all is agreed accepts our next key already."""
    return all(config.status.ack.known_key == next_key for config in configs if config.status.phase == "Agreed")


def _answer(config: NetworkConfig | None) -> object:
    return (config.status.phase, config.status.ack.known_key) if config is not None else None
