"""Leader election by a Lease: one daemon of a cluster acts, the others wait as candidates.

Clocks of different hosts are never compared: a lease has expired when the local clock observed it unchanged for its
duration. Every write carries the resource version it was decided on. Source: client-go ``tools/leaderelection``.
"""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from typing import Final

import msgspec
from twisted.internet.defer import CancelledError, Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.clocks import WallClock, utc_now
from liqod.flow.observe import Gate, Latest
from liqod.flow.tasks import Loop
from liqod.flow.timer import Timer
from liqod.kube.client import Client
from liqod.kube.connection.seen_versions import revision
from liqod.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Unreachable
from liqod.kube.resources import LEASES
from liqod.model.objects.meta import Object, ObjectMeta, View
from liqod.model.timestamps import rfc3339_micro

AFTER_THE_END: Final = 0.001
"""Seconds after the end of another's lease at which it is tried for: rounding must not make it a moment before."""


class LeaseSpec(View, frozen=True):
    """``coordination.k8s.io/v1`` LeaseSpec; times are RFC 3339 with microseconds."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(Object, frozen=True):
    """A Lease: its holder, duration and last renewal."""

    spec: LeaseSpec = LeaseSpec()


def _ignore() -> None:
    """Do nothing when the lease is lost."""


class LeaderLease(Loop):
    """One candidate of the election, named ``identity``.

    Leads as long as renewals succeed; after two thirds of the duration without a success, ``on_lost`` is called,
    before another candidate can acquire the lease, and it remains a candidate. Use a separate client: a renewal must
    not queue behind other requests. ``stopService`` releases the lease, so that a successor can acquire it at once.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_duration: int,
        renew_interval: float,
        retry_interval: float,
        on_lost: Callable[[], None] = _ignore,
        wall: WallClock = utc_now,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self.identity = identity
        self.leading = False
        self.holder: Latest[str] = Latest("")
        """The identity of the last observed holder; empty for none."""
        self.error = ""
        self.on_lost = on_lost
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._duration = lease_duration
        self._renew_interval = renew_interval
        self._retry_interval = retry_interval
        # The ratio of client-go's defaults, LeaseDuration 15 s to RenewDeadline 10 s (tools/leaderelection).
        self._deadline = lease_duration * 2 / 3
        self._wall = wall
        self._random = random
        self._gate = Gate()
        self._woken = Gate()
        self._rest_ends = Timer(clock)
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._renewed_at = 0.0

    def when_leading(self) -> Deferred[None]:
        """Return a Deferred that fires when this candidate leads."""
        return self._gate.wait()

    def note(self, lease: Lease) -> None:
        """Take notice of the Lease as a watch shows it: sooner than by asking for it now and then."""
        seen = self._seen
        if not self.running or self.leading or seen is None:
            return
        if revision(lease.metadata.resource_version) > revision(seen.metadata.resource_version):
            self._observe(lease)
            if not lease.spec.holder_identity:
                self._woken.open()

    def failed(self, failure: Failure) -> None:
        """Log what ended the election, and no longer lead."""
        self._log.failure("the leader election ended", failure)
        self._lose("the election failed; see the log")

    async def work(self) -> None:
        """Campaign for the lease, and renew it while it is held."""
        # A subscriber may stop this service from inside this loop: cancelling a coroutine that runs now has no effect.
        while self.running:
            started = self._clock.seconds()
            held = await self._attempt()
            if held:
                self._renewed_at = started
                self._win()
            if self.running:
                await self._rest(self._pause(held, started))

    async def _rest(self, seconds: float) -> None:
        """Wait so long, or until it is seen that nobody holds the lease."""
        woken = self._woken = Gate()
        self._rest_ends.start(seconds, woken.open)
        try:
            await woken.wait()
        finally:
            self._rest_ends.cancel()

    async def _attempt(self) -> bool:
        """Try once to acquire or renew the lease, limited to the renewal deadline; return whether it is held."""
        attempt = Deferred.fromCoroutine(self._acquire_or_renew())
        left = self._deadline
        if self.leading:
            left = max(0.05, self._renewed_at + self._deadline - self._clock.seconds())
        attempt.addTimeout(left, self._clock)
        held = False
        try:
            held = await attempt
            self.error = ""
        except TimeoutError:
            self._failed(Unreachable(f"the lease {self._namespace}/{self._name}: no answer in {left:.1f} s"))
        except KubeError as error:
            self._failed(error)
        except CancelledError:
            raise
        except Exception as error:
            self._failed_unexpectedly(error)
        if self.leading and not held:
            if self.holder.value != self.identity:
                self._lose(f"{self.holder.value or 'nobody'} holds the lease")
            elif self._clock.seconds() - self._renewed_at >= self._deadline - 0.001:
                self._lose(f"it was not renewed for {self._deadline:.1f} s: {self.error or 'no answer'}")
        return held

    def _pause(self, held: bool, started: float) -> float:
        now = self._clock.seconds()
        # Measured from the start of the request: the server renewed the lease at some time before its response.
        # Else with jitter, as client-go (JitterFactor), so that candidates that started together do not stay in step.
        pause = started + self._renew_interval - now if held else self._retry_interval * (1.0 + 0.2 * self._random())
        if self.leading:
            pause = min(pause, self._renewed_at + self._deadline - now)
        elif (ends := self._end_of_another()) > now:
            # To look only after the usual pause would add a part of it to each takeover.
            pause = min(pause, ends + AFTER_THE_END - now)
        return max(0.0, pause)

    def _end_of_another(self) -> float:
        """Return when the lease of another holder ends unless it is renewed, by this clock; 0 without one."""
        seen = self._seen
        if seen is None or seen.spec.holder_identity in ("", self.identity):
            return 0.0
        return self._seen_at + seen.spec.lease_duration_seconds

    async def _acquire_or_renew(self) -> bool:
        if not self.leading or self._seen is None:
            try:
                self._observe(await self._client.get(LEASES, self._name, self._namespace, view=Lease))
            except NotFound:
                return await self._create()
        seen = self._seen
        if seen is None:
            return False
        if self._clock.seconds() < self._end_of_another():
            return False
        return await self._write(seen)

    async def _create(self) -> bool:
        stamp = self._stamp()
        lease = Lease(
            metadata=ObjectMeta(name=self._name, namespace=self._namespace),
            spec=LeaseSpec(
                holder_identity=self.identity,
                lease_duration_seconds=self._duration,
                acquire_time=stamp,
                renew_time=stamp,
            ),
        )
        try:
            self._observe(await self._client.create(LEASES, lease, view=Lease))
        except AlreadyExists:
            return False
        return True

    async def _write(self, seen: Lease) -> bool:
        stamp = self._stamp()
        ours = seen.spec.holder_identity == self.identity
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._duration,
            acquire_time=(seen.spec.acquire_time or stamp) if ours else stamp,
            renew_time=stamp,
            # How often the holder changed: for people who look at the Lease (coordination.k8s.io/v1, LeaseSpec).
            lease_transitions=seen.spec.lease_transitions + (0 if ours else 1),
        )
        try:
            self._observe(
                await self._client.replace(
                    LEASES, msgspec.structs.replace(seen, spec=spec), self._name, self._namespace, view=Lease
                )
            )
        except (Conflict, NotFound):
            # 409: another candidate wrote first. 404: the Lease was deleted. Read it again before the next attempt.
            self._seen = None
            try:
                self._observe(await self._client.get(LEASES, self._name, self._namespace, view=Lease))
            except NotFound:
                self.holder.set("")
            return False
        return True

    def _observe(self, lease: Lease) -> None:
        before = self._seen.spec if self._seen is not None else None
        self._seen = lease
        self.holder.set(lease.spec.holder_identity)
        if lease.spec != before:
            self._seen_at = self._clock.seconds()

    async def end(self) -> None:
        """Release the lease, so that a successor acquires it at once."""
        seen, leading = self._seen, self.leading
        self.leading = False
        self._gate = Gate()
        if not leading or seen is None:
            return
        release = Deferred.fromCoroutine(self._clear_holder(seen))
        release.addTimeout(min(3.0, self._deadline), self._clock)
        try:
            await release
        except (KubeError, TimeoutError) as error:
            self._log.info(
                "the lease {name} was not released: {error}; it expires by itself", name=self._name, error=str(error)
            )

    async def _clear_holder(self, seen: Lease) -> None:
        """Write the Lease with an empty holder, while this candidate holds it."""
        while seen.spec.holder_identity == self.identity:
            # 1, because the API server accepts only a positive duration (ValidateLeaseSpec); client-go's release() does
            # the same.
            spec = msgspec.structs.replace(
                seen.spec, holder_identity="", lease_duration_seconds=1, renew_time=self._stamp()
            )
            body = msgspec.structs.replace(seen, spec=spec)
            try:
                await self._client.replace(LEASES, body, self._name, self._namespace, view=None)
                return
            except Conflict:
                # The renewal that stopService cancelled was already executed by the server.
                seen = await self._client.get(LEASES, self._name, self._namespace, view=Lease)

    def _win(self) -> None:
        if not self.leading:
            self.leading = True
            self._log.info("leading as {identity}", identity=self.identity)
            self._gate.open()

    def _lose(self, why: str) -> None:
        if not self.leading:
            return
        self.leading = False
        self._gate = Gate()
        self._log.warn("no longer leading: {detail}", detail=why)
        try:
            self.on_lost()
        except Exception:
            self._log.failure("the callback for a lost lease failed")

    def _failed(self, error: KubeError) -> None:
        if str(error) != self.error:
            self.error = str(error)
            self._log.warn("the lease {name}: {error}", name=self._name, error=self.error)

    def _failed_unexpectedly(self, error: Exception) -> None:
        """Note a failure that is no answer of the API server; this candidate goes on trying.

        One that ended here would stand by forever without anybody noticing, and its cause may pass, such as a Lease
        that another program wrote.
        """
        what = f"{type(error).__name__}: {error}"
        if what != self.error:
            self.error = what
            self._log.failure("an attempt at the lease {name} failed; it is tried again", name=self._name)

    def _stamp(self) -> str:
        return rfc3339_micro(self._wall())
