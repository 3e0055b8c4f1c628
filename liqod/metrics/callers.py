"""Lets those read the pages whom the cluster lets: by bearer token, as components of Kubernetes do.

The API server is asked who has a token (TokenReview), and whether that user may ``get`` the page's path, a right that
RBAC has as ``nonResourceURLs`` (SubjectAccessReview). Answers are remembered for a while. Those whom the API server
refuses have a memory of their own, so that a flood of invalid tokens makes none of the valid ones be forgotten.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from typing import Final

import attrs
from twisted.internet.defer import Deferred, DeferredSemaphore
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime

from liqod.kube.client import Client
from liqod.kube.errors import KubeError
from liqod.kube.reviews import Recent, is_allowed, user_of_token
from liqod.metrics.access import MAX_TOKEN, Denied, unknown_caller
from liqod.model.text import clean_text

KEPT_FOR: Final = 60.0
"""Seconds for which a caller that was admitted is not reviewed again: two scrapes, where one is made each 30 s."""
REFUSED_FOR: Final = 10.0
"""Seconds for which one that was refused is not reviewed again: who is given the right waits no longer."""
KEPT: Final = 64
"""Answers of each of the two kinds that are remembered."""
REVIEWS: Final = 2
"""Callers that are reviewed at a time, of all that the API server is asked by this daemon."""
WAITING: Final = 32
"""Callers that are reviewed, or wait for that, at a time."""
WAITING_PER_SOURCE: Final = 8
"""The same from one address, so that no address takes all the room."""
PATIENCE: Final = 5.0
"""Seconds until a review without an answer ends: less than the 10 s in which Prometheus has a page by default."""


class ClusterAccess:
    """Admits whom the cluster lets get a path; ``client`` returns one of its API server, None before there is one."""

    def __init__(self, client: Callable[[], Client | None], clock: IReactorTime) -> None:
        self._client = client
        self._clock = clock
        self._admitted: Recent[bool] = Recent(clock, KEPT_FOR, KEPT)
        self._refused: Recent[Denied] = Recent(clock, REFUSED_FOR, KEPT)
        self._slots = DeferredSemaphore(REVIEWS)
        self._waiting: Counter[str] = Counter()

    async def admit(self, token: bytes, path: str, source: str) -> None:
        """Return if the holder of a token may get a path; raises Denied."""
        if not token or len(token) > MAX_TOKEN or not token.isascii():
            raise unknown_caller()
        # A digest, so that no token stays in memory.
        key = hashlib.sha256(token).digest(), path
        if self._admitted.get(key):
            return
        denied = self._refused.get(key)
        if denied is None:
            denied = await self._reviewed(token.decode("ascii"), path, source)
            if denied is None:
                self._admitted.put(key, True)
                return
            self._refused.put(key, denied)
        raise attrs.evolve(denied)

    async def _reviewed(self, token: str, path: str, source: str) -> Denied | None:
        """Return why a caller is refused, None for one that is admitted; raises Denied where that is not known."""
        client = self._client()
        if client is None:
            raise _not_reviewed("this daemon does not reach its API server yet")
        if self._waiting.total() >= WAITING or self._waiting[source] >= WAITING_PER_SOURCE:
            raise _not_reviewed("too many callers wait for the API server; try again shortly")
        self._waiting[source] += 1
        review = Deferred.fromCoroutine(self._review(client, token, path))
        review.addTimeout(PATIENCE, self._clock)
        try:
            return await review
        except DeferredTimeout:
            raise _not_reviewed(f"the API server did not say within {PATIENCE:g} s who calls") from None
        except KubeError as error:
            raise _not_reviewed("it could not be found out who calls; the log of liqod has more", str(error)) from error
        finally:
            self._waiting[source] -= 1
            if not self._waiting[source]:
                del self._waiting[source]

    async def _review(self, client: Client, token: str, path: str) -> Denied | None:
        await self._slots.acquire()
        try:
            user = await user_of_token(client, token)
            if user is None:
                return unknown_caller()
            if await is_allowed(client, user, {"nonResourceAttributes": {"path": path, "verb": "get"}}):
                return None
        finally:
            self._slots.release()
        name = clean_text(user.username, 200)
        return Denied(403, "ScrapeForbidden", f"forbidden: {name} may not get {path} (nonResourceURLs)")


def _not_reviewed(message: str, detail: str = "") -> Denied:
    return Denied(503, "ScrapeNotReviewed", message, detail)
