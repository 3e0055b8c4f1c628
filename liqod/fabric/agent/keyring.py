"""The tunnel's keys, and their rotation without a gap.

The next key becomes the current one when every peer has confirmed that its tunnel accepts it: WireGuard knows a peer by
its public key alone, so a handshake with a key that the peer has not configured gets no answer. The wait for a peer
that does not confirm is bounded: it has no session, and gets the current parameters when its session is re-established.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.fabric.agent.key import SECRET, TunnelKeys, exchange, load_or_create
from liqod.flow.controller import Source, watch
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import NETWORKCONFIGS, SECRETS
from liqod.model.ids import Key
from liqod.model.objects.meta import Object
from liqod.model.records.network import NetworkConfig

CONFIRM_TIMEOUT: Final = 120.0
"""Seconds that peers have to confirm the next key."""


class KeyRing:
    """Reads the Secret with the keys when it has changed, and rotates them."""

    _log = Logger()

    def __init__(self, client: Client, clock: IReactorTime, informers: Informers, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
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
        return gatherResults([self._watched.when_synced(), self._configs.when_synced()], consumeErrors=True)

    async def keys(self) -> TunnelKeys:
        """Return the keys; creates them where there are none."""
        if self._keys is None:
            self._keys = await load_or_create(self._client, self._namespace)
            self._since = self._clock.seconds()
        return self._keys

    async def rotated(self) -> TunnelKeys:
        """Return the keys; makes the next one the current one first, where there is one and every peer accepts it."""
        return await self.rotate(self._configs.items())

    async def rotate(self, configs: Iterable[NetworkConfig]) -> TunnelKeys:
        """Make the next key the current one, where there is one and all peers accept it; return the keys after that."""
        keys = await self.keys()
        if keys.next is None:
            return keys
        late = self._clock.seconds() - self._since > CONFIRM_TIMEOUT
        if late or all_accept(configs, keys.next.public):
            keys = self._keys = await exchange(self._client, self._namespace, keys)
            why = "not every peer has confirmed it in time" if late else "every peer accepts it"
            self._log.info("the tunnel's key is {public_key} now: {detail}", public_key=keys.current.public, detail=why)
        return keys


def all_accept(configs: Iterable[NetworkConfig], next_key: str) -> bool:
    """Return whether every peer with which all is agreed accepts our next key already."""
    return all(config.status.ack.known_key == next_key for config in configs if config.status.phase == "Agreed")


def _answer(config: NetworkConfig | None) -> object:
    return (config.status.phase, config.status.ack.known_key) if config is not None else None
