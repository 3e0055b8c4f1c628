"""Requests the tokens of offloaded pods at home, writes them to Secrets at the lender, renews and deletes them.

A pod is enqueued again when its tokens are due; nothing is polled. A token is kept in memory only until the lender
accepts it, and no log or ``repr`` shows one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from attrs import Factory, define, field, frozen
from twisted.internet.interfaces import IReactorTime

from liqod.flow.clocks import wall_clock
from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe, watch
from liqod.flow.tasks import Tasks, stopped
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, ApiError, ServerError, Throttled, Unreachable
from liqod.kube.events import Recorder
from liqod.kube.resources import SECRETS, SERVICEACCOUNTS
from liqod.kube.writing.mutation_cache import Mutations
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.meta import ownership
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.common.refusals import NAME_TAKEN_RETRY, Attempts, Meaning
from liqod.kubelet.common.views import HomePod, is_waiting
from liqod.kubelet.common.write_limiter import WriteLimiter
from liqod.kubelet.lender.failed_writes import existing, failed_write
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.controller import NamespaceController
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.tokens import secret
from liqod.kubelet.tokens.projection import secret_name
from liqod.kubelet.tokens.secret import ACCOUNT_LABEL, NEVER, Mint, Minted, Remove, Rest, Taken
from liqod.model.ids import Key
from liqod.model.names import REFLECTION_MANAGER
from liqod.model.objects.meta import Object, View, label_selector, reference_to
from liqod.model.records.offer import Refusal
from liqod.model.timestamps import parse_rfc3339

KEEP_UNSENT: Final = 30.0
"""Seconds for which tokens that the lender did not accept are kept for the next attempt, to save TokenRequests."""
SHADOW_INTERVAL: Final = 2.0
"""Seconds between two looks whether the ShadowPod of a pod that is missing at home is gone."""


@frozen
class _Unsent:
    """Tokens of a pod that the lender has not accepted yet."""

    uid: str
    since: float
    minted: Minted = field(repr=False)


@define
class TrackedTokens:
    """The record of one pod's tokens between reconciles; times are seconds of the reactor's clock."""

    uid: str = ""
    """UID of the pod for which this daemon wrote the tokens at the lender; empty: it wrote none."""
    due: float = 0.0
    """When the tokens must be renewed."""
    unsent: _Unsent | None = None
    attempts: Attempts = Factory(Attempts)
    """Failed writes at the lender, and refusals at home."""
    postponed: bool = False
    """Waits until the lender answers."""


@frozen
class _Watched:
    """The token Secrets in one remote namespace, of all virtual nodes."""

    remote: RemoteNamespace
    secrets: Informer[Object]


@frozen
class _Pod:
    """One pod as observed in one step; ``there`` is its Secret at the lender."""

    key: Key
    tracked: TrackedTokens
    home: HomePod | None
    remote: RemoteNamespace
    there: Object | None


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


def token_secrets(clock: IReactorTime, remote: RemoteNamespace, context: Context) -> Informer[Object]:
    """Return a new cache of the tokens' Secrets in a remote namespace.

    Those of all virtual nodes: a removed one leaves some, and a pod of their name waits until they are gone.
    """
    selector = f"{label_selector(ownership(context))},{ACCOUNT_LABEL}"
    return Informer(remote.client, SECRETS, Object, clock, namespace=remote.namespace, labels=selector)


class TokenController(Controller[Key]):
    """Reconciles the tokens of one virtual node's pods, by the pod's key; ``client`` is the home cluster's."""

    name = "tokens"

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        *,
        context: Context,
        pods: Informer[HomePod],
        namespaces: NamespaceController,
        health: LenderHealth,
        recorder: Recorder,
        workers: int,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        self.workers = workers
        super().__init__(clock, subject=f"at {context.lender}", metrics=metrics)
        self._client = client
        self._context = context
        self._pods = pods
        self._namespaces = namespaces
        self._health = health
        self._recorder = recorder
        self._watches: dict[str, _Watched] = {}
        self._mutations: Mutations[Key, Object] = Mutations(clock)
        self._write_limiter = WriteLimiter(0.0)
        self._tracked: dict[Key, TrackedTokens] = {}
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def sources(self) -> Iterable[Source[Key]]:
        yield watch(self._pods, _pod_changed)
        yield observe(self._health.state, self._health_changed)
        yield observe(self._context.egress, lambda _: [pod.metadata.key for pod in self._pods.items()])

    def fair_by(self, key: Key) -> Hashable:
        # After a restart all pods are enqueued at once. Two lanes, served in turn: a new pod does not wait until
        # thousands of running ones were looked at.
        return is_waiting(self._pods.get(key))

    async def prepare(self) -> None:
        # Before the first full list a pod missing from the cache may exist: no Secret may be deleted for its absence.
        await self._namespaces.when_synced()

    def startService(self) -> None:
        super().startService()
        self._unsubscribe.append(self._namespaces.subscribe(self._namespace_changed))

    def _namespace_changed(self, local: str, remote: RemoteNamespace | None) -> None:
        known = self._watches.pop(local, None)
        if known is not None:
            self._tasks.spawn(stopped(known.secrets), f"closing the watch of tokens in {local}")
        if remote is None:
            return
        secrets = token_secrets(self.clock, remote, self._context)

        def changed(key: Key, old: Object | None, new: Object | None) -> None:
            shown = new or old
            pod = secret.pod_of(shown) if shown is not None else ""
            if new is None:
                self._mutations.forget(Key(local, pod))
            if pod and secrets.synced:
                self.enqueue(Key(local, pod))

        self._watches[local] = _Watched(remote, secrets)
        secrets.subscribe(changed)
        secrets.setServiceParent(self)
        secrets.when_synced().addCallbacks(lambda _: self._enqueue_namespace(local, secrets), lambda _: None)

    def _enqueue_namespace(self, local: str, secrets: Informer[Object]) -> None:
        for pod in self._pods.items():
            if pod.metadata.namespace == local:
                self.enqueue(pod.metadata.key)
        for there in secrets.items():
            if pod_name := secret.pod_of(there):
                self.enqueue(Key(local, pod_name))

    def _health_changed(self, _: Readiness) -> Iterable[Key]:
        if not self._health.ok:
            return
        self.retry_failed()
        for key, tracked in self._tracked.items():
            if tracked.postponed:
                tracked.postponed = False
                yield key

    # One step

    async def reconcile(self, key: Key) -> After | None:
        home, watched = self._pods.get(key), self._watches.get(key.namespace)
        tracked = self._tracked.pop(key, None) or TrackedTokens()
        if home is None:
            tracked = TrackedTokens()
        else:
            self._tracked[key] = tracked
        if watched is None or not watched.secrets.synced:
            return None
        remote, name = watched.remote, secret_name(key.name)
        there = self._mutations.newest(key, watched.secrets.get(Key(remote.namespace, name)))
        now = self.clock.seconds()
        left = tracked.due - now if home is not None and tracked.uid == home.metadata.uid else None
        step = secret.plan(home, there, self._context, now=wall_clock(self.clock)(), left=left)
        match step:
            case Rest(seconds):
                return None if seconds is None else After(seconds)
            case Taken():
                return self._name_taken(home, name, remote)
        if home is None and (not remote.synced or secret.is_in_use(there, remote.shadow(key.name))):
            return After(SHADOW_INTERVAL)
        if not self._health.ok:
            self._postpone(key, tracked)
            return None
        what = home.metadata.uid if home is not None and isinstance(step, Mint) else "removed"
        # If somebody at the lender deletes the Secret repeatedly, the back-off grows.
        if (wait := self._write_limiter.wait(key, what, now)) > 0.001:
            return After(wait)
        pod = _Pod(key, tracked, home, remote, there)
        try:
            if isinstance(step, Mint) and home is not None:
                await self._mint(pod, home, step)
                # The next step finds the Secret up to date and waits until the tokens are due.
                again = After(0.0)
            elif isinstance(step, Remove):
                await remote.client.delete(SECRETS, name, remote.namespace, uid=step.uid)
                again = None
        except Refusal as refused:
            self._report(home, refused.reason, refused.message)
            return After(tracked.attempts.delay(Meaning.REFUSED))
        except (ApiError, Unreachable) as error:
            return self._failed(pod, error)
        self._write_limiter.written(key, what, now)
        tracked.attempts = Attempts()
        self._health.request_succeeded()
        return again

    async def _mint(self, pod: _Pod, home: HomePod, step: Mint) -> None:
        """Write tokens to the lender: those of a recent failed attempt, or new ones."""
        tracked, remote, now = pod.tracked, pod.remote, self.clock.seconds()
        unsent = tracked.unsent
        if unsent is None or unsent.uid != home.metadata.uid or now - unsent.since > KEEP_UNSENT:
            unsent = tracked.unsent = _Unsent(home.metadata.uid, now, await self._request(home, step))
        body = secret.forge(home.metadata, step.account, unsent.minted, self._context)
        name = str(body["metadata"]["name"])
        if step.uid:
            body["metadata"]["uid"] = step.uid
            written = await remote.client.patch(
                SECRETS, name, body, remote.namespace, view=Object, manager=REFLECTION_MANAGER
            )
        else:
            try:
                written = await remote.client.create(
                    SECRETS, body, remote.namespace, view=Object, manager=REFLECTION_MANAGER
                )
            except AlreadyExists as conflict:
                found = await existing(remote.client, SECRETS, name, remote.namespace, view=Object, conflict=conflict)
                self._mutations.wrote(pod.key, None, found)
                return
        self._mutations.wrote(pod.key, pod.there, written)
        tracked.unsent, tracked.uid = None, home.metadata.uid
        tracked.due = self.clock.seconds() + secret.renewed_after(tracked.uid, unsent.minted.life)

    async def _request(self, home: HomePod, step: Mint) -> Minted:
        """Request the tokens at home, one for each pair of audience and lifetime; raises Refusal.

        Source: Kubernetes API, TokenRequest (subresource ``token`` of ServiceAccounts).
        """
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
                    raise Refusal(
                        "ServiceAccountTokenRefused",
                        f"the service account {step.account} has no token for this pod: {clean_message(error.message)}",
                    ) from None
                made[kind] = answer
        # The API server may shorten a lifetime (--service-account-max-token-expiration): its answer counts.
        ends = [parse_rfc3339(answer.status.expiration_timestamp) for answer in made.values()]
        expires = min((end for end in ends if end is not None), default=NEVER)
        tokens = {source.key: made[source.audience, source.seconds].status.token for source in step.sources}
        life = min(answer.spec.expiration_seconds or seconds for (_, seconds), answer in made.items())
        return Minted(tokens, expires, life)

    def _failed(self, pod: _Pod, error: ApiError | Unreachable) -> After:
        """Handle a failed write at the lender; return when to try again. Raises the error itself for 429 and 5xx."""
        self._mutations.forget(pod.key)
        granted_for, creating = self.clock.seconds() - pod.remote.since, pod.there is None
        failed = failed_write(error, pod.tracked.attempts, self._health, granted_for=granted_for, creating=creating)
        if failed.meaning is Meaning.NO_ANSWER:
            self._postpone(pod.key, pod.tracked)
        if failed.namespace_missing:
            self._namespaces.request_again(pod.key.namespace)
        if failed.is_refused:
            message = f"its tokens are not kept at {self._context.lender}: {failed.message}"
            self._report(pod.home, failed.reason, message)
        return After(failed.delay)

    def _postpone(self, key: Key, tracked: TrackedTokens) -> None:
        tracked.postponed = True
        self._tracked[key] = tracked

    def _name_taken(self, home: HomePod | None, name: str, remote: RemoteNamespace) -> After:
        why = f"a secret {name} that is not ours is in the remote namespace {remote.namespace}; it is left alone"
        self._report(home, "RemoteNameTaken", f"{why}, and this pod waits for its tokens")
        return After(NAME_TAKEN_RETRY)

    def _report(self, home: HomePod | None, reason: str, message: str) -> None:
        if home is not None:
            self._recorder.record_event(reference_to("v1", "Pod", home.metadata), "Warning", reason, message)


def _pod_changed(key: Key, old: HomePod | None, new: HomePod | None) -> Iterable[Key]:
    """Return the key of a pod that was created, replaced or deleted, may have finished, or may leave home or not."""
    if old is None or new is None or old.metadata.uid != new.metadata.uid or bytes(old.status) != bytes(new.status):
        return (key,)
    return (key,) if old.metadata.labels != new.metadata.labels else ()
