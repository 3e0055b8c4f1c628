"""Pairing tokens on both sides: redeems the tokens that this cluster issued, and uses the invitations that it got.

Both are in Secrets of liqod's namespace, written by ``liqodctl``. The issuer stores a verifier instead of the secret,
an expiry, and the number of failed attempts; a token is bound to the first key that proves it, so that a broken session
can be retried. Once a session is established, the token is spent, and stays recorded as spent until it expires.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.audit.events import NO_AUDIT, Audit, AuditEvent
from liqod.flow.clocks import wall_clock
from liqod.identity.pairing import BadToken, Token, is_proven, proof, read_token, verifier
from liqod.identity.tls import PeerTLS
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.errors import Conflict, NotFound
from liqod.kube.resources import SECRETS
from liqod.model.ids import ClusterID, Fingerprint, Key
from liqod.model.objects.meta import Object
from liqod.model.records.invitations import (
    ATTEMPTS,
    EXPIRES,
    INVITATION,
    INVITATION_LABEL,
    MAX_ATTEMPTS,
    SPENT,
    TOKEN_LABEL,
    USED_BY,
    VERIFIER,
    invitation_name,
    token_name,
)
from liqod.model.records.offer import Refusal
from liqod.model.timestamps import parse_rfc3339
from liqod.wire.events import Join

JOIN_REFUSED: Final = "TokenRefused"
GUESSES: Final = 30
"""Joins per minute with an unknown token; beyond that such are refused without a request to the API server."""
RACES: Final = 4
_TOKEN_ID: Final = re.compile(r"[0-9a-f]{1,16}")


class Secret(Object, frozen=True):
    """A Secret with its data, which ``repr`` hides."""

    data: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.key})"


class PairingTokens:
    """The issuer's side. ``is_issued``: whether a token is known to be there, by the name of its Secret."""

    _log = Logger()

    def __init__(
        self,
        client: Client,
        clock: IReactorTime,
        namespace: str,
        tls: PeerTLS,
        audit: Audit = NO_AUDIT,
        *,
        is_issued: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._client = client
        self._clock = clock
        self._audit = audit
        self._is_issued = is_issued
        self._namespace = namespace
        self._tls = tls
        self._minute = 0
        self._guesses = 0

    async def redeem(self, join: Join, binding: bytes, key: Fingerprint, peer: ClusterID) -> None:
        """Redeem a token for a key.

        Raises Refusal when it is unknown, expired, dead, used by another key, tried by others or not proven, and while
        too many unknown ones were tried: by anybody, so that one that is known to be there is not refused for that.
        """
        if self._is_guessing() and not self._is_issued(token_name(join.token)):
            raise Refusal(JOIN_REFUSED, "too many unknown tokens were tried here; wait a minute")
        for _ in range(RACES):
            try:
                found = await self._client.get(SECRETS, token_name(join.token), self._namespace, view=Secret)
            except NotFound:
                self._guesses += 1
                raise Refusal(JOIN_REFUSED, "there is no such token (any more): ask for a new one") from None
            try:
                if await self._try(found, join, binding, key):
                    self._log.info("token {token_id} was used by {peer}", token_id=join.token, peer=peer)
                    return
            except Conflict:
                continue
        raise Refusal(JOIN_REFUSED, "the token is being tried by others at the same moment: try again")

    async def _try(self, found: Secret, join: Join, binding: bytes, key: Fingerprint) -> bool:
        used_by, attempts = text_of(found, USED_BY), int(text_of(found, ATTEMPTS) or 0)
        expires = parse_rfc3339(text_of(found, EXPIRES))
        if expires is None or wall_clock(self._clock)() >= expires:
            await self._client.delete(SECRETS, found.metadata.name, self._namespace, uid=found.metadata.uid)
            raise Refusal(JOIN_REFUSED, "the token has expired: ask for a new one")
        if attempts >= MAX_ATTEMPTS:
            raise Refusal(
                JOIN_REFUSED, f"the token was tried wrongly {MAX_ATTEMPTS} times and is dead: ask for a new one"
            )
        expected = proof(_raw(found, VERIFIER), binding, join.token, key, self._tls.keypair.fingerprint)
        if not is_proven(join.proof, expected):
            await self._write(found, {ATTEMPTS: str(attempts + 1)})
            raise Refusal(JOIN_REFUSED, "the token's secret was not proven")
        if used_by and used_by != key:
            raise Refusal(JOIN_REFUSED, "the token was used by another cluster: a token is good for one")
        if text_of(found, SPENT):
            raise Refusal(JOIN_REFUSED, "the token was used already, and is good for once: ask for a new one")
        if not used_by:
            await self._write(found, {USED_BY: key})
        return True

    async def spend(self, token_id: str) -> None:
        """Mark a token as spent: it cannot be used again. Raises KubeError."""
        with suppress(NotFound):
            await self._client.patch(
                SECRETS, token_name(token_id), {"data": encoded({SPENT: "true"})}, self._namespace, view=None
            )

    async def revoke(self, key: str) -> None:
        """Spend all tokens that a key used; raises KubeError."""
        page = await self._client.list(SECRETS, self._namespace, labels=f"{TOKEN_LABEL}=true", view=Secret)
        for found in page.items:
            if text_of(found, USED_BY) == key and not text_of(found, SPENT):
                token_id = found.metadata.name.removeprefix(token_name(""))
                await self.spend(token_id)
                self._audit.record(
                    AuditEvent("TokenRevoked", "TrustWithdrawn", fingerprint=key, object=token_object(token_id))
                )

    async def _write(self, found: Secret, change: Mapping[str, str]) -> None:
        data = {name: base64.b64encode(text.encode()).decode() for name, text in change.items()}
        # Two sessions may try one token at the same time: with the version one of them gets 409, and no attempt goes
        # uncounted.
        patch = {"metadata": {"resourceVersion": found.metadata.resource_version}, "data": data}
        await self._client.patch(SECRETS, found.metadata.name, patch, self._namespace, view=None)

    def _is_guessing(self) -> bool:
        minute = int(self._clock.seconds() // 60)
        if minute != self._minute:
            self._minute, self._guesses = minute, 0
        return self._guesses >= GUESSES


@attrs.frozen
class _Invited:
    token: Token
    uid: str


class Invitations:
    """The guest's side: tokens that other clusters issued for this one, by issuer."""

    _log = Logger()

    def __init__(self, client: Client, informers: Informers, namespace: str, tls: PeerTLS) -> None:
        self.informer: Informer[Secret] = informers.of(
            SECRETS, Secret, namespace=namespace, labels=f"{INVITATION_LABEL}=true"
        )
        self._client = client
        self._namespace = namespace
        self._tls = tls

    def of(self, issuer: ClusterID) -> Token | None:
        """Return the token that a cluster issued for us, or None."""
        invited = self._find(issuer)
        return invited.token if invited is not None else None

    def join(self, issuer: ClusterID, binding: bytes) -> Join | None:
        """Return the proof of the token for one TLS session with the issuer."""
        token = self.of(issuer)
        if token is None:
            return None
        made = proof(verifier(token.secret), binding, token.id, self._tls.keypair.fingerprint, token.fingerprint)
        return Join(token.id, made)

    async def delete(self, issuer: ClusterID, token_id: str = "") -> None:
        """Delete an invitation that was used, or cannot be; with ``token_id`` only if it is the one of that token."""
        invited = self._find(issuer)
        if invited is not None and token_id in ("", invited.token.id):
            await self._client.delete(SECRETS, invitation_name(issuer), self._namespace, uid=invited.uid)

    def _find(self, issuer: ClusterID) -> _Invited | None:
        found = self.informer.get(Key(self._namespace, invitation_name(issuer)))
        if found is None:
            return None
        try:
            token = read_token(text_of(found, INVITATION))
        except BadToken:
            return None
        return _Invited(token, found.metadata.uid) if token.issuer == issuer else None


def _raw(secret: Secret, key: str) -> bytes:
    try:
        return base64.b64decode(secret.data.get(key, ""), validate=True)
    except binascii.Error:
        return b""


def text_of(secret: Secret, key: str) -> str:
    """Return a value of a Secret as text; an empty one where there is none."""
    return _raw(secret, key).decode("utf-8", "replace")


def token_object(token_id: str) -> str:
    """Return a token's name for the audit; a peer that sends something else as one may have mixed up ID and secret."""
    return f"token/{token_id}" if _TOKEN_ID.fullmatch(token_id) else "token/unknown"


def encoded(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values (text or bytes) as the data of a Secret."""
    return {
        name: base64.b64encode(value if isinstance(value, bytes) else str(value).encode()).decode()
        for name, value in values.items()
    }
