"""Renews the token of the daemon's own account at half of its life, so that one that was stolen ends by itself.

The new token is kept in the file that the kubeconfig names beside the first one (``tokenFile``), or, where it names
none, in the state directory: the kubeconfig itself belongs to root. A token without end, which earlier versions had
made, is replaced at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from liqod.agent.account.names import account_of, bound_secret_of, liqodctl_as
from liqod.agent.account.objects import token_request
from liqod.audit.events import AuditEvent
from liqod.config.schema import Settings
from liqod.flow.backoff import Backoff
from liqod.flow.clocks import WallClock
from liqod.flow.tasks import Tasks
from liqod.kube.client import Client
from liqod.kube.connection.account_token import AccountToken, Claims, claims_of
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.resources import SERVICEACCOUNTS
from liqod.model.objects.meta import View

_FILE: Final = "home.token"
RENEWED_AT: Final = 0.5
"""Share of its life at which a token is renewed; as much is left for a host that is off."""
LONGEST_WAIT: Final = 3600.0
"""Seconds between two looks at the date, which may be set meanwhile."""
PAUSE: Final = 60.0
"""Seconds between two renewals, should a new token look as old as the one before: a clock is wrong."""
AGAIN: Final = Backoff(initial=5.0, cap=300.0)


class _Answer(View, frozen=True):
    token: str = ""

    def __repr__(self) -> str:
        return "_Answer()"


class _TokenRequest(View, frozen=True):
    status: _Answer = _Answer()


def due(claims: Claims) -> float:
    """Return when a token is to be renewed, in seconds since 1970."""
    if claims.expires is None:
        return 0.0
    return claims.issued + (claims.expires - claims.issued) * RENEWED_AT


class TokenRenewal:
    """Renews a process's token from ``start`` to ``stop``; credentials of anybody else are left as they are.

    ``record`` takes the security events. What fails is tried again, without end.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        settings: Settings,
        wall: WallClock,
        record: Callable[[AuditEvent], None],
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        role = settings.daemon.role
        self._client = client
        self._wall = wall
        self._record = record
        self._environ = environ
        self._namespace = settings.kubernetes.namespace
        self._account = account_of(role)
        self._liqodctl = liqodctl_as(role)
        self._lifetime = settings.kubernetes.token_lifetime
        self._failures = 0
        self._tasks = Tasks()

    def start(self) -> None:
        """Begin, where the kubeconfig has a token of the account."""
        token = self._client.config.token
        if isinstance(token, AccountToken) and self._is_own(token.claims):
            if token.path is None:
                token.path = self._kept_at()
            self._tasks.spawn(self._run(token), f"renewing the token of {self._account}")

    def stop(self) -> Deferred[None]:
        """End; fires when nothing is under way any more."""
        return self._tasks.stopService()

    def _is_own(self, claims: Claims | None) -> bool:
        return claims is not None and claims.subject == f"system:serviceaccount:{self._namespace}:{self._account}"

    def _kept_at(self) -> Path | None:
        # Set by systemd, from StateDirectory=; several are separated by colons (systemd.exec(5)).
        directory = self._environ.get("STATE_DIRECTORY", "").partition(":")[0]
        return Path(directory) / _FILE if directory else None

    async def _run(self, token: AccountToken) -> None:
        while (claims := token.claims) is not None and self._is_own(claims):
            wait = due(claims) - self._wall().timestamp()
            if wait > 0:
                await deferLater(self._client.clock, min(wait, LONGEST_WAIT))
                continue
            try:
                made = await self._request()
            except KubeError as error:
                self._failed(error)
                await deferLater(self._client.clock, AGAIN.delay(self._failures - 1))
                continue
            self._failures = 0
            self._use(token, made, bounded=claims.expires is None)
            await deferLater(self._client.clock, PAUSE)

    async def _request(self) -> str:
        answer: _TokenRequest = await self._client.create(
            SERVICEACCOUNTS,
            token_request(self._account, self._lifetime),
            self._namespace,
            view=_TokenRequest,
            name=self._account,
            subresource="token",
        )
        made = claims_of(answer.status.token)
        if not self._is_own(made):
            raise KubeError("the API server's answer has no token of this account")
        return answer.status.token

    def _use(self, token: AccountToken, made: str, *, bounded: bool) -> None:
        self._event("Bounded" if bounded else "Renewed")
        try:
            token.replace(made)
        except OSError as error:
            self._log.warn(
                "the new token of the daemon's account is not kept in {path}: {error}; a process that is started again "
                "depends on the one in the kubeconfig, which ends",
                path=str(token.path),
                error=str(error.strerror or error),
            )
        if bounded:
            self._log.info(
                "the daemon's account has a token that ends, in place of one that does not; `{liqodctl} install "
                "--daemon-kubeconfig FILE` removes that from the cluster",
                liqodctl=self._liqodctl,
            )

    def _failed(self, error: KubeError) -> None:
        self._failures += 1
        if self._failures > 1:
            return
        self._event("NotRenewed")
        missing = f"; `{self._liqodctl} install` makes the Secret {bound_secret_of(self._account)} that it is bound to"
        self._log.warn(
            "the token of the daemon's account is not renewed: {error}{remedy}; it is tried again until the token ends",
            error=str(error),
            remedy=missing if isinstance(error, NotFound) else "",
        )

    def _event(self, reason: str) -> None:
        about = f"serviceaccount/{self._namespace}/{self._account}"
        self._record(AuditEvent("AccountToken", reason, object=about))
