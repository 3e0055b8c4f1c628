"""Whether the lender's API server answers: heard from requests that are made anyway, else asked now and then."""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

from attrs import frozen
from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from liqod.flow.aligned_timer import in_step
from liqod.flow.observe import Latest
from liqod.kube.cache.listwatch import SILENCE
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, KubeError, ServerError, Throttled, Unauthorized
from liqod.kubelet.common.readiness import Readiness, not_known, not_ready

PROBE_TIMEOUT: Final = 5.0
IMPATIENT: Final = 3.0
"""Seconds between probes while there is no answer."""

HEARD: Final = frozenset(("CredentialRejected", "PeerNotReady"))
"""Reasons by which the lender cannot be used, though something answers there: the path to it is whole."""

ANSWERS: Final = Readiness(ready=True, reason="LenderAnswers", message="the lender's API server answers")


async def answers(reactor: Any, client: Client) -> bool:
    """Tell whether a lender's API server answers by the way of a client, is ready and knows us."""
    asking = Deferred.fromCoroutine(client.raw("GET", "/readyz")).addTimeout(PROBE_TIMEOUT, reactor)
    try:
        await asking
    except (Unauthorized, ServerError, Throttled):
        return False
    except ApiError:
        return True
    except (KubeError, DeferredTimeout):
        return False
    return True


@frozen
class _Silence:
    """No answer to ``client``: found out at ``since``, true still when the last probe began that failed (``until``).

    A connection that was made later came about over a path that is whole.
    """

    client: Client
    since: float
    until: float


class Reach(Service):
    """Keeps ``state``; ``every`` is the number of seconds of silence after which the lender is asked (GET /readyz).

    After an interruption the client is told that the path is new before ``state`` says that the lender answers.
    """

    _log = Logger()

    def __init__(self, reactor: Any, client: Latest[Client | None], every: float) -> None:
        self.state: Latest[Readiness] = Latest(not_known("the lender was not contacted yet"))
        self._reactor = reactor
        self._client = client
        self._every = every
        self._heard = float("-inf")
        self._silent: _Silence | None = None
        self._timer: IDelayedCall | None = None
        self._probe: Deferred[None] | None = None
        self._unsubscribe = lambda: None

    def startService(self) -> None:
        super().startService()
        self._unsubscribe = self._client.subscribe(lambda _: self.probe_now())
        self._arm(0)

    def stopService(self) -> Deferred[None]:
        super().stopService()
        self._unsubscribe()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        probe, self._probe = self._probe, None
        if probe is None:
            return succeed(None)
        probe.cancel()
        return probe

    @property
    def ok(self) -> bool:
        """Whether the lender answered last time."""
        return self.state.value.ready

    def heard(self) -> None:
        """The lender answered a request: that is as good as a probe."""
        now = self._heard = self._reactor.seconds()
        silent, self._silent = self._silent, None
        client = self._client.value
        if silent is not None and client is not None:
            self._log.info(
                "{server} answers, {seconds:.1f} s after the lender was found silent",
                server=client.config.server,
                seconds=now - silent.since,
            )
            # A client that was made since has no connection of before.
            if client is silent.client:
                client.path_is_new(silent.until)
        elif client is not None and self.state.value.reason in HEARD:
            # What the lender refused meanwhile waits to be tried again, ever longer: that is over. Its path is no other
            # than before: a watch that lives was heard within SILENCE, and stays.
            client.path_since.set(now - SILENCE)
        self.state.set(ANSWERS)

    def returned(self) -> None:
        """The lender was heard of by another way after an interruption: ask at once whether its API is back, too."""
        if self.ok or not self.running:
            return
        probe = self._probe
        if probe is not None:
            # It may hang on what was sent while nothing passed.
            probe.cancel()
        self._heard = float("-inf")
        self._arm(0)

    def suspect(self) -> None:
        """A request got no answer, or one that casts doubt: find out now."""
        self._heard = float("-inf")
        self.probe_now()

    def probe_now(self) -> None:
        """Probe at once unless a probe is under way."""
        if self.running and self._probe is None:
            self._arm(0)

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._reactor.callLater(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        heard = self._heard
        if self.ok and isfinite(heard):
            wait = heard + in_step(heard, self._every) - self._reactor.seconds()
            if wait > 0:
                self._arm(wait)
                return
        probe = self._probe = Deferred.fromCoroutine(self._ask())
        probe.addErrback(self._failed)
        probe.addCallback(self._asked)

    def _failed(self, failure: Any) -> None:
        if not failure.check(CancelledError):
            self._log.failure("asking the lender failed", failure)

    def _asked(self, _: object) -> None:
        self._probe = None
        if self.running:
            self._arm(in_step(self._reactor.seconds(), self._every) if self.ok else IMPATIENT)

    async def _ask(self) -> None:
        client = self._client.value
        if client is None:
            # That there is no credential (yet) is told by whoever looks for it; about the lender it says nothing.
            return
        asked = self._reactor.seconds()
        asking = Deferred.fromCoroutine(client.raw("GET", "/readyz")).addTimeout(PROBE_TIMEOUT, self._reactor)
        try:
            await asking
        except Unauthorized:
            self.state.set(
                not_ready(
                    "CredentialRejected",
                    "the lender does not accept the credential it granted; a new one comes when the clusters are "
                    "connected",
                )
            )
        except (ServerError, Throttled) as error:
            self.state.set(not_ready("PeerNotReady", f"the lender's API server is not ready: {error.message[:200]}"))
        except ApiError:
            # Whatever it says, it is there and knows us.
            self.heard()
        except DeferredTimeout:
            self._is_silent(client, asked, f"the lender's API server did not answer within {PROBE_TIMEOUT:g} s")
        except KubeError as error:
            self._is_silent(client, asked, f"the lender's API server does not answer: {error}")
        else:
            self.heard()

    def _is_silent(self, client: Client, asked: float, message: str) -> None:
        since = self._reactor.seconds() if self._silent is None else self._silent.since
        self._silent = _Silence(client, since, asked)
        client.path_is_doubtful()
        self.state.set(not_ready("PeerUnreachable", message))
