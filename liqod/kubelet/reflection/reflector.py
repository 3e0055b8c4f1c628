"""Reflects one kind to one lender: one decision for each step, one request for each change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec
from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from liqod.flow.controller import NO_METRICS, After, Controller, ReconcileMetrics, Source, observe
from liqod.flow.tasks import Tasks, stopped
from liqod.kube.errors import AlreadyExists, ApiError, Unreachable
from liqod.kube.events import Recorder
from liqod.kube.writing.refusals import READ_AGAIN
from liqod.kubelet.common.context import Context
from liqod.kubelet.common.informers import NamespacedInformers
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.meta import is_ours
from liqod.kubelet.common.readiness import Readiness
from liqod.kubelet.common.reflection_counts import ReflectionCounts
from liqod.kubelet.common.refusals import NAME_TAKEN_RETRY, Attempts, Meaning, counted_reason
from liqod.kubelet.common.write_limiter import WriteLimiter
from liqod.kubelet.lender.failed_writes import existing, failed_write
from liqod.kubelet.lender.health import LenderHealth
from liqod.kubelet.namespaces.deletion_gate import DeletionGate
from liqod.kubelet.namespaces.remote_namespace import RemoteNamespace
from liqod.kubelet.reflection.decide import Create, Decision, Delete, Keep, Patch, Skip, decide, desired_of
from liqod.kubelet.reflection.forge.classes import Classes
from liqod.kubelet.reflection.forge.reflected import DesiredObject, ForgeInputs, Withheld, portable_only
from liqod.kubelet.reflection.kinds import Kind
from liqod.kubelet.reflection.namespace_pair import NamespacePair, TrackedObject
from liqod.kubelet.reflection.views import Reflectable
from liqod.model.ids import Key
from liqod.model.names import REFLECTION_MANAGER
from liqod.model.objects.portable_metadata import METADATA_POLICY
from liqod.model.records.network import ExportRequests

INCOMPLETE_RETRY: Final = 5.0
"""Seconds until an incomplete object, a part of which is not known yet, is forged again."""
INPUTS_RETRY: Final = 0.2
"""Seconds until an object is forged again because other caches have not synced."""
MAX_OBJECTIONS: Final = 500
"""Maximum length in characters of an event about parts that are not reflected (the API allows 1024)."""


class ReflectorContext(Protocol):
    """What a reflector needs from its virtual kubelet."""

    def inputs(self, kind: Kind, local: str) -> ForgeInputs:
        """Return the inputs for forging objects of a kind in a namespace."""
        ...

    def namespace_missing(self, local: str) -> None:
        """Notify that a namespace which the lender granted does not exist there (404)."""
        ...

    def settled(self, local: str) -> None:
        """Notify that the lender has what there was of a kind in a namespace."""
        ...

    def export_requests_changed(self) -> None:
        """Notify that the set of requested addresses changed."""
        ...


@frozen
class _Object:
    """One object as observed in one step."""

    key: Key
    pair: NamespacePair
    tracked: TrackedObject
    home: Reflectable | None
    name: str
    """The name at the lender."""
    desired: DesiredObject | Withheld | None


class Reflector(Controller[Key]):
    """Reflects the objects of one kind in the open namespaces."""

    def __init__(
        self,
        clock: IReactorTime,
        kind: Kind,
        *,
        context: Context,
        surroundings: ReflectorContext,
        informers: NamespacedInformers,
        health: LenderHealth,
        gate: DeletionGate,
        recorder: Recorder,
        workers: int,
        counts: ReflectionCounts | None = None,
        metrics: ReconcileMetrics = NO_METRICS,
    ) -> None:
        self.name = f"reflection of {kind.home.plural}"
        self.workers = workers
        super().__init__(clock, subject=f"to {context.lender}", metrics=metrics)
        self.kind = kind
        self._context = context
        self._surroundings = surroundings
        self._informers = informers
        self._health = health
        self._recorder = recorder
        self._counts = counts or ReflectionCounts()
        self._gate = gate
        gate.register(kind.home.plural, lambda: sum(len(pair.there) for pair in self._pairs.values()), self.enqueue)
        self._pairs: dict[str, NamespacePair] = {}
        self._write_limiter = WriteLimiter(kind.pause)
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def sources(self) -> Iterable[Source[Key]]:
        yield observe(self._health.state, self._health_changed)

    def open_namespace(self, local: str, remote: RemoteNamespace) -> None:
        """Start reflecting a namespace."""
        self.close_namespace(local)
        pair = self._pairs[local] = NamespacePair(
            self.clock,
            self.kind,
            self._context,
            informers=self._informers,
            local=local,
            remote=remote,
            changed=lambda name: self.enqueue(Key(local, name)),
            deleted=lambda key: self._gate.observe_deletion(self.kind.home.plural, key),
            settled=lambda: self._surroundings.settled(local),
        )
        pair.setServiceParent(self)

    def close_namespace(self, local: str) -> None:
        """Stop reflecting a namespace; its objects at the lender are deleted with the namespace there."""
        pair = self._pairs.pop(local, None)
        if pair is not None:
            self._gate.forget_namespace(self.kind.home.plural, local)
            self._tasks.spawn(stopped(pair), f"closing the watches of {self.kind.home.plural} in {local}")
            if pair.exports:
                self._surroundings.export_requests_changed()

    @property
    def outstanding(self) -> int:
        """The number of home objects with a change that the lender does not have, for whatever reason."""
        return sum(len(pair.changed_at) for pair in self._pairs.values())

    def pair(self, local: str) -> NamespacePair | None:
        """Return the pair of caches of a namespace; None if it is not reflected."""
        return self._pairs.get(local)

    def export_requests(self, namespaces: Iterable[str]) -> ExportRequests:
        """Return the requested addresses; complete when every object of these namespaces was forged once."""
        pairs = [self._pairs.get(local) for local in namespaces]
        requested: frozenset[tuple[str, str]] = frozenset().union(*(pair.exports for pair in pairs if pair is not None))
        return ExportRequests(requested, all(pair is not None and pair.requests_complete for pair in pairs))

    def enqueue_all(self, keep: Callable[[Reflectable], bool] = lambda _: True, namespaces: Iterable[str] = ()) -> None:
        """Enqueue the home objects that ``keep`` selects, in all open namespaces or in the given ones."""
        for local in tuple(namespaces) or tuple(self._pairs):
            pair = self._pairs.get(local)
            for each in pair.home.items() if pair is not None else ():
                if keep(each):
                    self.enqueue(each.metadata.key)

    def _health_changed(self, _: Readiness) -> Iterable[Key]:
        if not self._health.ok:
            return
        self.retry_failed()
        for local, pair in self._pairs.items():
            for name, tracked in pair.tracked.items():
                if tracked.postponed:
                    tracked.postponed = False
                    yield Key(local, name)

    # One step

    async def reconcile(self, key: Key) -> After | None:
        pair = self._pairs.get(key.namespace)
        if pair is None or not pair.synced:
            return None
        again = await self._step_of(key, pair)
        pair.settle()
        return again

    async def _step_of(self, key: Key, pair: NamespacePair) -> After | None:
        inputs = self._surroundings.inputs(self.kind, key.namespace)
        if not inputs.complete:
            return After(INPUTS_RETRY)
        home, tracked = pair.at_home(key.name), pair.tracked.setdefault(key.name, TrackedObject())
        try:
            desired = desired_of(self.kind, home, inputs)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._counts.failed(self.kind.home.kind, "UnreadableObject")
            self._report(home, "UnreadableObject", f"what it holds cannot be read: {clean_message(str(error))}")
            return After(tracked.attempts.delay(Meaning.REFUSED))
        if tracked.portable_only and isinstance(desired, DesiredObject):
            desired = portable_only(desired)
        seen = _Object(key, pair, tracked, home, self.kind.name_there(key.name, self._context), desired)
        self._record_export_requests(seen)
        there = pair.at_lender(seen.name)
        self._note_objections(seen, there)
        if home is None and there is None:
            pair.tracked.pop(key.name, None)
        decision = decide(self.kind, desired, there, name=seen.name, namespace=pair.namespace, context=self._context)
        if isinstance(decision, Delete) and home is None:
            if not self._gate.may_delete(self.kind.home.plural, key):
                return None
        else:
            self._gate.forget(self.kind.home.plural, key, gone=home is not None or there is None)
        again = After(INCOMPLETE_RETRY) if isinstance(desired, DesiredObject) and desired.incomplete else None
        match decision:
            case Keep():
                pair.changed_at.pop(key.name, None)
                return again
            case Skip(why):
                return self._name_taken(home, why)
            case _:
                return await self._write(seen, there, decision) or again

    async def _write(self, seen: _Object, there: Reflectable | None, decision: Decision) -> After | None:
        """Apply a decision, unless the lender does not answer or the write limiter delays it."""
        if not self._health.ok:
            seen.tracked.postponed = True
            return None
        digest, now = _write_digest(decision, seen.desired), self.clock.seconds()
        left = self._write_limiter.wait(seen.key, digest, now)
        if left > 0.001:
            return After(left)
        # Taken away first: what changes while the request is in progress is a change of its own.
        changed_at = seen.pair.changed_at.pop(seen.key.name, None)
        try:
            again = await self._carry_out(seen, there, decision)
        except (ApiError, Unreachable) as error:
            self._note_failure(seen, changed_at, error, creating=isinstance(decision, Create))
            return self._failed(seen, error, creating=isinstance(decision, Create))
        self._note_arrival(seen, changed_at, arrived=again is None)
        self._write_limiter.written(seen.key, digest, self.clock.seconds())
        self._health.request_succeeded()
        if not isinstance(decision, Delete):
            seen.tracked.attempts = Attempts()
        return again

    async def _carry_out(self, seen: _Object, there: Reflectable | None, decision: Decision) -> After | None:
        kind, pair, name = self.kind, seen.pair, seen.name
        match decision:
            case Create(body):
                try:
                    created = await pair.client.create(
                        kind.there, body, pair.namespace, view=kind.there_view, manager=REFLECTION_MANAGER
                    )
                except AlreadyExists as conflict:
                    return await self._exists(seen, conflict)
                pair.mutations.wrote(name, None, created)
            case Patch(patch):
                patched = await pair.client.patch(
                    kind.there, name, patch, pair.namespace, view=kind.there_view, manager=REFLECTION_MANAGER
                )
                pair.mutations.wrote(name, there, patched)
            case Delete(uid):
                await pair.client.delete(kind.there, name, pair.namespace, uid=uid)
                # Finalizers can delay the removal: a POST before the watch reports it would be answered 409.
                pair.mutations.forget(name)
        return None

    async def _exists(self, seen: _Object, conflict: AlreadyExists) -> After | None:
        """Handle 409 on create: read the object that has the name, which the watch by label does not show (yet)."""
        pair, name, kind = seen.pair, seen.name, self.kind
        there = await existing(pair.client, kind.there, name, pair.namespace, view=kind.there_view, conflict=conflict)
        if is_ours(there.metadata, self._context) and self.kind.unless not in there.metadata.labels:
            pair.mutations.wrote(name, None, there)
            return After(0.0)
        why = f"an object {name} that is not ours is in the remote namespace {pair.namespace}; it is left alone"
        return self._name_taken(seen.home, why)

    def _failed(self, seen: _Object, error: ApiError | Unreachable, *, creating: bool) -> After:
        """Handle a failed write; return when to try again. Raises the error itself for 429 and 5xx."""
        now, pair, tracked = self.clock.seconds(), seen.pair, seen.tracked
        try:
            failed = failed_write(
                error, tracked.attempts, self._health, granted_for=now - pair.since, creating=creating
            )
        except (ApiError, Unreachable):
            self._write_limiter.failed(seen.key, READ_AGAIN, now)
            raise
        if failed.meaning is Meaning.NO_ANSWER:
            tracked.postponed = True
            pair.tracked.setdefault(seen.key.name, tracked)
        elif failed.meaning is Meaning.OUTDATED:
            pair.mutations.forget(seen.name)
        if failed.namespace_missing:
            self._surroundings.namespace_missing(seen.key.namespace)
        delay = failed.delay
        if failed.is_refused and METADATA_POLICY in failed.message and not tracked.portable_only:
            tracked.portable_only, delay = True, INPUTS_RETRY
        if failed.is_refused and not failed.namespace_terminating:
            self._report(seen.home, failed.reason, f"the lender refuses it: {failed.message}")
        self._write_limiter.failed(seen.key, delay, now)
        return After(delay)

    # Counts

    def _note_arrival(self, seen: _Object, changed_at: float | None, *, arrived: bool) -> None:
        if changed_at is None:
            return
        if arrived:
            self._counts.arrived(self.kind.home.kind, self.clock.seconds() - changed_at)
        else:
            seen.pair.changed_at[seen.key.name] = changed_at

    def _note_failure(
        self, seen: _Object, changed_at: float | None, error: ApiError | Unreachable, *, creating: bool
    ) -> None:
        granted_for = self.clock.seconds() - seen.pair.since
        self._counts.failed(self.kind.home.kind, counted_reason(error, granted_for=granted_for, creating=creating))
        self._note_arrival(seen, changed_at, arrived=False)

    # Addresses to be exported, and events

    def _record_export_requests(self, seen: _Object) -> None:
        if not self.kind.requests_exports:
            return
        exports = seen.desired.exports if isinstance(seen.desired, DesiredObject) else frozenset()
        before = seen.tracked.exports or frozenset()
        seen.tracked.exports = None if seen.home is None else exports
        if exports != before:
            self._surroundings.export_requests_changed()

    def _note_objections(self, seen: _Object, there: Reflectable | None) -> None:
        """Record an event, once, when the object or a part of it is permanently not reflected, or its class is lost."""
        desired, home = seen.desired, seen.home
        reason, objections = "EndpointNotExported", desired.objections if isinstance(desired, DesiredObject) else ()
        loss = ""
        if isinstance(desired, Withheld) and desired.recorded:
            reason, objections = desired.code, (desired.why,)
        elif isinstance(desired, DesiredObject) and desired.classes is not None:
            loss = self._lost_class(seen.tracked, desired.classes, there)
            reason, objections = "ClassNotOffered", (loss,) if loss else objections
        news = objections != seen.tracked.objections
        seen.tracked.objections = objections if home is not None else ()
        if home is None or not objections or not news:
            return
        if loss:
            self._record(home, reason, f"at {self._context.lender}: {loss}")
        else:
            self._report(home, reason, "; ".join(objections)[:MAX_OBJECTIONS])

    def _lost_class(self, tracked: TrackedObject, classes: Classes, there: Reflectable | None) -> str:
        """Return what to say of the class that the object has at the lender; empty while that is offered."""
        if there is None or there.metadata.deleting:
            return ""
        used = str((there.content().get("spec") or {}).get(self.kind.class_field) or "")
        lost = classes.has_lost(used, was_offered=used == tracked.offered_class)
        if used in (classes.offered or ()):
            tracked.offered_class = used
        return classes.loss(clean_message(used)) if lost else ""

    def _name_taken(self, home: Reflectable | None, why: str) -> After | None:
        if home is None:
            return None
        self._counts.failed(self.kind.home.kind, "RemoteNameTaken")
        self._report(home, "RemoteNameTaken", f"{why} (rename this one, or ask the lender's administrator)")
        return After(NAME_TAKEN_RETRY)

    def _report(self, home: Reflectable | None, reason: str, message: str) -> None:
        if home is None:
            return
        self._record(home, reason, f"not reflected to {self._context.lender}: {message}")

    def _record(self, home: Reflectable, reason: str, message: str) -> None:
        meta = home.metadata
        regarding: Mapping[str, Any] = {
            "apiVersion": self.kind.home.api_version,
            "kind": self.kind.home.kind,
            "name": meta.name,
            "namespace": meta.namespace,
            "uid": meta.uid,
        }
        self._recorder.record_event(regarding, "Warning", reason, message)


def _write_digest(decision: Decision, desired: DesiredObject | Withheld | None) -> Any:
    """Return the content by which the write limiter recognises a repeated write."""
    if isinstance(desired, DesiredObject) and not isinstance(decision, Delete):
        return [desired.labels, desired.annotations, desired.content]
    return type(decision).__name__
