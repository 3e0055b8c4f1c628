"""Records for the audit which pairing tokens come and go; ``liqodctl`` writes and deletes their Secrets."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from liqod.audit.events import Audit, AuditEvent
from liqod.flow.clocks import wall_clock
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.resources import SECRETS
from liqod.model.ids import Key
from liqod.model.records.invitations import EXPIRES, SPENT, TOKEN_LABEL, token_name
from liqod.model.timestamps import parse_rfc3339
from liqod.peering.trust.pairing import Secret, text_of, token_object


class IssuedTokens:
    """Watches the Secrets of this cluster's own tokens."""

    def __init__(self, informers: Informers, clock: IReactorTime, namespace: str, audit: Audit) -> None:
        self.informer = informers.of(SECRETS, Secret, namespace=namespace, labels=f"{TOKEN_LABEL}=true")
        self._clock = clock
        self._namespace = namespace
        self._audit = audit
        self._started = False

    def is_issued(self, name: str) -> bool:
        """Return whether a token is known to be there, by the name of its Secret; one that is new may not be yet."""
        return self.informer.get(Key(self._namespace, name)) is not None

    def start(self) -> Callable[[], None]:
        """Record the tokens there are, and every later change; returns what ends that."""
        self._started = False
        end = self.informer.subscribe(self._changed)
        self._started = True
        return end

    def _changed(self, key: Key, old: Secret | None, new: Secret | None) -> None:
        name = token_object(key.name.removeprefix(token_name("")))
        if old is None and new is not None:
            # A token that a user made while no daemon led is first seen here, beside those of before a restart.
            if not text_of(new, SPENT):
                self._audit.record(AuditEvent("TokenCreated", "Created" if self._started else "Present", object=name))
        elif new is None and old is not None and not text_of(old, SPENT):
            expires = parse_rfc3339(text_of(old, EXPIRES))
            expired = expires is None or wall_clock(self._clock)() >= expires
            self._audit.record(AuditEvent("TokenRevoked", "Expired" if expired else "Deleted", object=name))
