"""Observes the health of a lender's API server, from the results of other requests and by probes (GET /readyz)."""

from __future__ import annotations

from math import isfinite
from typing import Final

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.aligned_timer import in_step
from liqod.flow.observe import Latest
from liqod.flow.timer import Timer
from liqod.kube.cache.listwatch import SILENCE
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, KubeError, ServerError, Throttled, Unauthorized
from liqod.kubelet.common.messages import clean_message
from liqod.kubelet.common.readiness import CREDENTIAL_REJECTED, Readiness, not_known, not_ready

PROBE_TIMEOUT: Final = 5.0
RETRY_INTERVAL: Final = 3.0
"""Seconds between probes while the lender does not answer."""

REACHABLE_REASONS: Final = frozenset((CREDENTIAL_REJECTED, "PeerNotReady"))
"""Not-Ready reasons of a lender that answers: the network path to it works."""

ANSWERS: Final = Readiness(ready=True, reason="LenderAnswers", message="the lender's API server answers")


async def probe(clock: IReactorTime, client: Client) -> Readiness:
    """Ask an API server whether it is ready and accepts our credential (GET /readyz).

    Return ``ANSWERS``, or the reason: CredentialRejected, PeerNotReady, or PeerUnreachable without an answer.
    """
    request = Deferred.fromCoroutine(client.raw("GET", "/readyz")).addTimeout(PROBE_TIMEOUT, clock)
    try:
        await request
    except Unauthorized as error:
        # A relay says so of a key that its cluster does not trust any more: without a session nothing else does.
        return not_ready(
            CREDENTIAL_REJECTED,
            "the lender does not accept the credential it granted; a new one comes when the clusters are connected "
            f"(the lender says: {clean_message(error.message)[:200]})",
        )
    except (ServerError, Throttled) as error:
        return not_ready("PeerNotReady", f"the lender's API server is not ready: {error.message[:200]}")
    except ApiError:
        # 403 and 404 are answers to an authenticated request: the server is up and accepts our credential.
        return ANSWERS
    except DeferredTimeout:
        return not_ready("PeerUnreachable", f"the lender's API server did not answer within {PROBE_TIMEOUT:g} s")
    except KubeError as error:
        return not_ready("PeerUnreachable", f"the lender's API server does not answer: {error}")
    return ANSWERS


@frozen
class _Outage:
    """The requests of ``client`` have had no answer since ``since``; the last failed probe started at ``until``.

    Connections opened after ``until`` use a working path.
    """

    client: Client
    since: float
    until: float


class LenderHealth(Service):
    """Observes whether one lender answers (``state``); after ``interval`` seconds without a request it is probed.

    After an outage the client is notified that its old connections are dead before ``state`` becomes ready, so that the
    next requests do not use them: TCP doubles its retransmission timeout up to minutes (RFC 6298).
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, client: Latest[Client | None], interval: float) -> None:
        self.state: Latest[Readiness] = Latest(not_known("the lender was not contacted yet"))
        self._clock = clock
        self._client = client
        self._interval = interval
        self._succeeded_at = float("-inf")
        self._outage: _Outage | None = None
        self._timer = Timer(clock)
        self._probe: Deferred[None] | None = None
        self._unsubscribe = lambda: None

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = self._client.subscribe(lambda _: self.probe_now())
        self._arm(0)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._unsubscribe()
        self._timer.cancel()
        probe, self._probe = self._probe, None
        if probe is None:
            return succeed(None)
        probe.cancel()
        return probe

    @property
    def ok(self) -> bool:
        """Whether the last request or probe found the lender ready, and our credential accepted."""
        return self.state.value.ready

    def request_succeeded(self) -> None:
        """Record that the lender answered a request, which counts as a successful probe."""
        now = self._succeeded_at = self._clock.seconds()
        outage, self._outage = self._outage, None
        client = self._client.value
        if outage is not None and client is not None:
            self._log.info(
                "{server} answers again, {seconds:.1f} s after the first request without an answer",
                server=client.config.server,
                seconds=now - outage.since,
            )
            # A client created during the outage has no older connections.
            if client is outage.client:
                client.path_is_new(outage.until)
        elif client is not None and self.state.value.reason in REACHABLE_REASONS:
            # Refused requests (401, 5xx) are in back-off and may be retried now. The path itself worked: dated back by
            # SILENCE, the notification does not restart watches that received something within that time.
            client.path_since.set(now - SILENCE)
        self.state.set(ANSWERS)

    def session_resumed(self) -> None:
        """Probe at once: the peering session was resumed, so the API server is probably reachable again."""
        if self.ok or not self.running:
            return
        probe = self._probe
        if probe is not None:
            # Its connection may wait for a TCP retransmission since the interruption.
            probe.cancel()
        self._succeeded_at = float("-inf")
        self._arm(0)

    def recheck(self) -> None:
        """Probe at once, whatever answered before: a request got no answer or a 401, or the token was renewed."""
        self._succeeded_at = float("-inf")
        self.probe_now()

    def probe_now(self) -> None:
        """Probe at once unless a probe is under way."""
        if self.running and self._probe is None:
            self._arm(0)

    def _arm(self, seconds: float) -> None:
        self._timer.start(seconds, self._probe_or_wait)

    def _probe_or_wait(self) -> None:
        last = self._succeeded_at
        if self.ok and isfinite(last):
            wait = last + in_step(last, self._interval) - self._clock.seconds()
            if wait > 0:
                self._arm(wait)
                return
        probe = self._probe = Deferred.fromCoroutine(self._probe_once())
        probe.addErrback(self._probe_failed)
        probe.addCallback(self._probed)

    def _probe_failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("probing the lender failed", failure)

    def _probed(self, _: object) -> None:
        self._probe = None
        if self.running:
            self._arm(in_step(self._clock.seconds(), self._interval) if self.ok else RETRY_INTERVAL)

    async def _probe_once(self) -> None:
        client = self._client.value
        if client is None:
            # LenderAccess reports a missing credential; the health of the lender stays unknown.
            return
        started = self._clock.seconds()
        health = await probe(self._clock, client)
        if health.ready:
            self.request_succeeded()
            return
        if health.reason not in REACHABLE_REASONS:
            self._note_outage(client, started)
        self.state.set(health)

    def _note_outage(self, client: Client, started: float) -> None:
        since = self._clock.seconds() if self._outage is None else self._outage.since
        self._outage = _Outage(client, since, started)
        client.path_is_doubtful()
