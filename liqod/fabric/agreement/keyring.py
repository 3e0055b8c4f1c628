"""The tunnel's keys as they are now, and their exchange without a gap.

A key is exchanged for the next one when every peer has said that its end takes that already: then the first handshake
with the new key succeeds, and what waits for it goes through. A peer that says nothing is waited for a while only: it
has no session, and is told everything when it has one again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.fabric.agreement.agreement import is_taken
from liqod.fabric.agreement.key import SECRET, Keys, exchange, load_or_create
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import SECRETS
from liqod.model.objects.meta import Object
from liqod.model.records.network import NetworkConfig

PATIENCE: Final = 120.0
"""Seconds that peers may take to say that they take the next key."""


class KeyRing:
    """What the Secret with the keys holds; ``changed`` is called when it may have changed."""

    _log = Logger()

    def __init__(
        self, client: Client, clock: IReactorTime, informers: Informers, namespace: str, changed: Callable[[], None]
    ) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._changed = changed
        self._keys: Keys | None = None
        self._since = 0.0
        # Only that the Secret changed is watched: its content is read when it is needed, and kept nowhere else.
        self._watched: Informer[Object] = informers.of(
            SECRETS, Object, namespace=namespace, fields=f"metadata.name={SECRET}"
        )
        self._end = self._watched.subscribe(lambda key, old, new: self._look(old, new))

    def when_synced(self) -> Deferred[None]:
        """Return a Deferred that fires when the Secret is followed."""
        return self._watched.when_synced()

    def end(self) -> None:
        """Follow it no more."""
        self._end()

    async def keys(self) -> Keys:
        """Return the keys, made when there are none."""
        if self._keys is None:
            self._keys = await load_or_create(self._client, self._namespace)
            self._since = self._clock.seconds()
        return self._keys

    async def advance(self, configs: Sequence[NetworkConfig]) -> None:
        """Exchange the key for the next one where that is planned and every peer takes it."""
        keys = await self.keys()
        if keys.next is None:
            return
        late = self._clock.seconds() - self._since > PATIENCE
        if late or is_taken(configs, keys.next.public):
            self._keys = await exchange(self._client, self._namespace, keys)
            how = "though not every peer has answered" if late else "every peer takes the new one"
            self._log.info("the tunnel's key is exchanged, {how}: it is {key} now", how=how, key=keys.next.public)
            self._changed()

    def _look(self, old: Object | None, new: Object | None) -> None:
        # One that was deleted goes on in use: a new one is made when the daemon starts again.
        if new is not None and old is not None and old.metadata.resource_version != new.metadata.resource_version:
            self._keys = None
            self._changed()
