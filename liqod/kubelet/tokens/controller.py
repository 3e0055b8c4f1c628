"""Keeps the tokens that offloaded pods mount: minted at home, put into a secret at the lender, renewed, taken away.

Each pod on the virtual node is a key. At rest nothing is asked: a pod is looked at again when its tokens are due.
Tokens pass through; they are not kept here, and no log or ``repr`` shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger

from liqod.flow.backoff import Backoff
from liqod.flow.clocks import wall_clock
from liqod.flow.tasks import Tasks
from liqod.flow.workqueue import Workers, WorkQueue
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServerError,
    Throttled,
    Unauthorized,
    Unreachable,
)
from liqod.kube.resources import SECRETS, SERVICEACCOUNTS
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.mutation_cache import Overlay
from liqod.kubelet.common.views import HomePod
from liqod.kubelet.common.write_limiter import WriteLimiter
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.ports import Recorder
from liqod.kubelet.tokens import secret
from liqod.kubelet.tokens.projection import secret_name
from liqod.kubelet.tokens.secret import ACCOUNT_LABEL, NEVER, Mint, Minted, Remove, Rest, Taken
from liqod.model.ids import Key
from liqod.model.names import REFLECTION_MANAGER
from liqod.model.objects.meta import Object, View, label_selector, reference_to
from liqod.model.timestamps import parse_rfc3339

EARLY: Final = 0.3
LATE: Final = Backoff(initial=5.0, factor=2.0, cap=300.0)
NAME_TAKEN_RETRY: Final = 60.0
UNSENT: Final = 30.0
"""Seconds that tokens which the lender did not take are kept for the next attempt."""
FRESH: Final = 10.0
"""Seconds after a namespace was granted in which a refusal may only mean that the grant has not taken effect yet."""


class _Status(View, frozen=True):
    token: str = ""
    expiration_timestamp: str = ""

    def __repr__(self) -> str:
        return "_Status()"


class _Spec(View, frozen=True):
    expiration_seconds: int = 0


class _Answer(View, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class Refused(Exception):
    """The home cluster does not give a pod its token."""


class TokenController(MultiService):
    """The tokens of the pods of one virtual node; ``client`` is the home cluster's."""

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        client: Client,
        context: Context,
        pods: Informer[HomePod],
        namespaces: NamespaceController,
        health: LenderHealth,
        recorder: Recorder,
        workers: int,
    ) -> None:
        super().__init__()
        self._reactor = reactor
        self._client = client
        self._context = context
        self._pods = pods
        self._namespaces = namespaces
        self._health = health
        self._recorder = recorder
        self._watches: dict[str, tuple[RemoteNamespace, Informer[Object]]] = {}
        self._written: Overlay[Key, Object] = Overlay(reactor)
        self._write_limiter = WriteLimiter(0.0)
        self._attempts: dict[Key, int] = {}
        self._due: dict[Key, tuple[str, float]] = {}
        self._unsent: dict[Key, tuple[str, float, Minted]] = {}
        self._postponed: set[Key] = set()
        what = f"tokens for {context.lender}"
        self._queue: WorkQueue[Key] = WorkQueue(reactor, what)
        self._workers: Workers[Key] = Workers(self._queue, workers, self._process, f"keeping {what}: pod")
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)
        self._unsubscribe: list[Callable[[], None]] = []

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = [
            self._namespaces.subscribe(self._served),
            self._pods.subscribe(self._pod_changed),
            self._health.state.subscribe(lambda _: self._retry_postponed()),
        ]
        self._tasks.spawn(self._begin(), f"keeping the tokens of pods at {self._context.lender}")

    def stopService(self) -> Deferred[Any]:
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        self._queue.close()
        return maybeDeferred(super().stopService)

    async def _begin(self) -> None:
        # Absence means absence from here on: only now may a secret be removed.
        await self._namespaces.when_synced()
        self._workers.setServiceParent(self)

    @property
    def troubles(self) -> dict[Key, str]:
        """The pods whose last turn failed, with the reason."""
        return self._workers.troubles

    def _served(self, local: str, remote: RemoteNamespace | None) -> None:
        known = self._watches.pop(local, None)
        if known is not None:
            self._tasks.spawn(_stopped(known[1]), f"closing the watch of tokens in {local}")
        if remote is None:
            return
        selector = f"{label_selector(secret.labels(self._context))},{ACCOUNT_LABEL}"
        watch: Informer[Object] = Informer(
            remote.client, SECRETS, Object, self._reactor, namespace=remote.namespace, labels=selector
        )

        def changed(key: Key, old: Object | None, new: Object | None) -> None:
            shown = new or old
            pod = secret.pod_of(shown) if shown is not None else ""
            if new is None:
                self._written.drop(Key(local, pod))
            if pod and watch.synced:
                self._queue.add(Key(local, pod))

        self._watches[local] = (remote, watch)
        watch.subscribe(changed)
        watch.setServiceParent(self)
        watch.when_synced().addCallbacks(lambda _: self._enqueue_all(local, watch), lambda _: None)

    def _enqueue_all(self, local: str, watch: Informer[Object]) -> None:
        for pod in self._pods.items():
            if pod.metadata.namespace == local:
                self._queue.add(pod.metadata.key)
        for there in watch.items():
            if pod_name := secret.pod_of(there):
                self._queue.add(Key(local, pod_name))

    def _pod_changed(self, key: Key, old: HomePod | None, new: HomePod | None) -> None:
        is_news = old is None or new is None or old.metadata.uid != new.metadata.uid
        if is_news or (old is not None and new is not None and bytes(old.status) != bytes(new.status)):
            self._queue.add(key)

    def _retry_postponed(self) -> None:
        if self._health.ok:
            self._queue.hasten()
            postponed, self._postponed = self._postponed, set()
            for key in postponed:
                self._queue.add(key)

    async def _process(self, key: Key) -> float | None:
        home = self._pods.get(key)
        if home is None:
            self._attempts.pop(key, None)
            self._due.pop(key, None)
            self._unsent.pop(key, None)
            self._postponed.discard(key)
        remote, watch = self._watches.get(key.namespace, (None, None))
        if remote is None or watch is None or not watch.synced:
            return None
        name = secret_name(key.name)
        there = self._written.newest(key, watch.get(Key(remote.namespace, name)))
        now = self._reactor.seconds()
        uid, due = self._due.get(key, ("", None))
        known = due if home is not None and uid == home.metadata.uid else None
        left = known - now if known is not None else None
        step = secret.plan(home, there, self._context, now=wall_clock(self._reactor)(), left=left)
        match step:
            case Rest(seconds):
                return seconds
            case Taken():
                return self._name_taken(home, name, remote)
        if not self._health.ok:
            self._postponed.add(key)
            return None
        what = home.metadata.uid if home is not None and isinstance(step, Mint) else "removed"
        # A lender that takes the secret away again and again gets it back ever more slowly.
        left = self._write_limiter.wait(key, what, now)
        if left > 0.001:
            return left
        try:
            if isinstance(step, Mint) and home is not None:
                again = await self._mint(key, home, remote, step)
            elif isinstance(step, Remove):
                await remote.client.delete(SECRETS, name, remote.namespace, uid=step.uid)
                again = None
        except Refused as refused:
            self._record_event(home, "ServiceAccountTokenRefused", str(refused))
            return self._late(key)
        except (ApiError, Unreachable) as error:
            delay = self._refused(key, home, remote, error)
            if isinstance(error, Throttled | ServerError):
                raise
            return delay
        self._write_limiter.written(key, what, now)
        self._attempts.pop(key, None)
        self._health.request_succeeded()
        return again

    async def _mint(self, key: Key, home: HomePod, remote: RemoteNamespace, step: Mint) -> float | None:
        minted = await self._minted(key, home, step)
        body = secret.forge(home.metadata, step.account, minted, self._context)
        name = str(body["metadata"]["name"])
        if step.uid:
            body["metadata"]["uid"] = step.uid
            made = await remote.client.patch(
                SECRETS, name, body, remote.namespace, view=Object, manager=REFLECTION_MANAGER
            )
        else:
            try:
                made = await remote.client.create(
                    SECRETS, body, remote.namespace, view=Object, manager=REFLECTION_MANAGER
                )
            except AlreadyExists:
                # The watch selects by label and does not show it: it is another one's, or not seen yet.
                found = await remote.client.get(SECRETS, name, remote.namespace, view=Object)
                self._written.put(key, found)
                return 0.0
        self._written.put(key, made)
        del self._unsent[key]
        uid = home.metadata.uid
        self._due[key] = (uid, self._reactor.seconds() + secret.renewed_after(uid, minted.life))
        # Looked at once more: then it rests until the tokens are due.
        return 0.0

    async def _minted(self, key: Key, home: HomePod, step: Mint) -> Minted:
        """Return tokens for a pod: those that the lender did not take a moment ago, or new ones."""
        uid, since, minted = self._unsent.get(key, ("", 0.0, Minted({}, NEVER)))
        now = self._reactor.seconds()
        if uid != home.metadata.uid or now - since > UNSENT:
            minted = await self._request(home, step)
            self._unsent[key] = (home.metadata.uid, now, minted)
        return minted

    async def _request(self, home: HomePod, step: Mint) -> Minted:
        """Have the tokens made at home, those of one audience and life only once; raises Refused."""
        made: dict[tuple[str, int], _Answer] = {}
        meta = home.metadata
        for source in step.sources:
            kind = (source.audience, source.seconds)
            if kind not in made:
                try:
                    answer = await self._client.create(
                        SERVICEACCOUNTS,
                        secret.request(source, meta),
                        meta.namespace,
                        name=step.account,
                        subresource="token",
                        view=_Answer,
                    )
                except (Throttled, ServerError):
                    raise
                except ApiError as error:
                    raise Refused(
                        f"the service account {step.account} has no token for this pod: {clean_message(error.message)}"
                    ) from None
                made[kind] = answer
        ends = [parse_rfc3339(answer.status.expiration_timestamp) for answer in made.values()]
        expires = min((end for end in ends if end is not None), default=NEVER)
        tokens = {source.key: made[source.audience, source.seconds].status.token for source in step.sources}
        life = min(answer.spec.expiration_seconds or seconds for (_, seconds), answer in made.items())
        return Minted(tokens, expires, life)

    def _refused(
        self, key: Key, home: HomePod | None, remote: RemoteNamespace, error: ApiError | Unreachable
    ) -> float | None:
        self._written.drop(key)
        if isinstance(error, Unreachable | Unauthorized):
            self._health.request_failed()
            self._postponed.add(key)
            return LATE.delay(0)
        if isinstance(error, Conflict | NotFound):
            return EARLY if isinstance(error, Conflict) else LATE.delay(0)
        if isinstance(error, Throttled | ServerError):
            return error.retry_after or EARLY
        if isinstance(error, Forbidden) and self._reactor.seconds() - remote.since < FRESH:
            return EARLY
        message = f"its tokens are not kept at {self._context.lender}: {clean_message(error.message)}"
        self._record_event(home, f"Remote{type(error).__name__}", message)
        return self._late(key)

    def _late(self, key: Key) -> float:
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        return LATE.delay(attempt)

    def _name_taken(self, home: HomePod | None, name: str, remote: RemoteNamespace) -> float | None:
        why = f"a secret {name} that is not ours is in the remote namespace {remote.namespace}; it is left alone"
        self._record_event(home, "RemoteNameTaken", f"{why}, and this pod waits for its tokens")
        return NAME_TAKEN_RETRY

    def _record_event(self, home: HomePod | None, reason: str, message: str) -> None:
        if home is None:
            return
        self._recorder.emit(reference_to("v1", "Pod", home.metadata), "Warning", reason, message)


async def _stopped(watch: Informer[Object]) -> None:
    await maybeDeferred(watch.disownServiceParent)
