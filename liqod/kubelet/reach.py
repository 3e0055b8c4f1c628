"""Whether the lender's API server answers: heard from requests that are made anyway, else asked now and then."""

from __future__ import annotations

from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

from liqod.flow.observe import Latest
from liqod.kube.client import Client
from liqod.kube.errors import ApiError, KubeError, ServerError, Throttled, Unauthorized
from liqod.kubelet.forge.node import Readiness
from liqod.kubelet.readiness import not_known, not_ready

PROBE_TIMEOUT: Final = 5.0
IMPATIENT: Final = 3.0
"""Seconds between probes while there is no answer."""

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


class Reach(Service):
    """Keeps ``state``; ``every`` is the number of seconds of silence after which the lender is asked (GET /readyz)."""

    _log = Logger()

    def __init__(self, reactor: Any, client: Latest[Client | None], every: float) -> None:
        self.state: Latest[Readiness] = Latest(not_known("the lender was not contacted yet"))
        self._reactor = reactor
        self._client = client
        self._every = every
        self._heard = float("-inf")
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
        self._heard = self._reactor.seconds()
        self.state.set(ANSWERS)

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
        silence = self._reactor.seconds() - self._heard
        if silence < self._every and self.ok:
            self._arm(self._every - silence)
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
            self._arm(self._every if self.ok else IMPATIENT)

    async def _ask(self) -> None:
        client = self._client.value
        if client is None:
            # That there is no credential (yet) is told by whoever looks for it; about the lender it says nothing.
            return
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
            self.state.set(
                not_ready("PeerUnreachable", f"the lender's API server did not answer within {PROBE_TIMEOUT:g} s")
            )
        except KubeError as error:
            self.state.set(not_ready("PeerUnreachable", f"the lender's API server does not answer: {error}"))
        else:
            self.heard()
