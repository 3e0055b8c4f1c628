"""Bearer tokens of service accounts: signed claims (JWT, HS256) that authenticate the account until they expire."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

import attrs
import msgspec

ISSUER: Final = "https://kubernetes.default.svc.cluster.local"


@attrs.frozen
class User:
    """The user of a request. ``account`` is the (namespace, name, UID) of a service account's token.

    ``secret`` is the (name, UID) of the Secret that the token is bound to.
    """

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    account: tuple[str, str, str] | None = None
    secret: tuple[str, str] | None = None


ANONYMOUS: Final = User("system:anonymous", ("system:unauthenticated",))
ADMIN: Final = User("kubernetes-admin", ("system:masters", "system:authenticated"))


def system(name: str) -> User:
    """Return a component of the control plane; it may do everything, as in-process callers do."""
    return User(f"system:{name}", ("system:masters", "system:authenticated"))


def account_user(namespace: str, name: str, uid: str, secret: tuple[str, str] | None = None) -> User:
    """Return a service account as a user, with its groups."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups, account=(namespace, name, uid), secret=secret)


def sign(
    secret: bytes,
    namespace: str,
    name: str,
    uid: str,
    *,
    now: float,
    seconds: int,
    audiences: Sequence[str] = (ISSUER,),
    bound: tuple[str, str, str] | None = None,
) -> str:
    """Return a token for a service account, valid from ``now`` (seconds since 1970) for a while.

    ``bound`` is what it is bound to: ``pod`` or ``secret``, its name and its UID.
    """
    to = {} if bound is None else {bound[0]: {"name": bound[1], "uid": bound[2]}}
    claims = {
        "aud": list(audiences) or [ISSUER],
        "exp": int(now) + seconds,
        "iat": int(now),
        "nbf": int(now),
        "iss": ISSUER,
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}, **to},
        "sub": f"system:serviceaccount:{namespace}:{name}",
    }
    head = _encode(b'{"alg":"HS256","typ":"JWT"}')
    body = f"{head}.{_encode(msgspec.json.encode(claims))}"
    return f"{body}.{_encode(_mac(secret, body))}"


def read(secret: bytes, token: str, now: float) -> User | None:
    """Return the user of a token, or None if its signature or audience is wrong or it has expired."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    body, _, signature = token.rpartition(".")
    try:
        if not hmac.compare_digest(_decode(signature), _mac(secret, body)):
            return None
        claims: dict[str, Any] = msgspec.json.decode(_decode(parts[1]))
        own = claims["kubernetes.io"]
        account, bearer = own["serviceaccount"], own.get("secret")
        if claims["exp"] <= now or ISSUER not in claims["aud"]:
            return None
        bound = (bearer["name"], bearer["uid"]) if bearer else None
        return account_user(own["namespace"], account["name"], account["uid"], bound)
    except (ValueError, KeyError, TypeError):
        return None


def _mac(secret: bytes, body: str) -> bytes:
    return hmac.new(secret, body.encode(), hashlib.sha256).digest()


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
