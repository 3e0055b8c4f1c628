"""Authenticates requests by client certificate or bearer token, and applies impersonation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cryptography.x509.oid import NameOID
from twisted.web.http import Request

from kubesandbox.auth import tokens
from kubesandbox.auth.rbac import Access, Roles
from kubesandbox.auth.tokens import ANONYMOUS, User
from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import SECRETS, SERVICEACCOUNTS, GroupResource, Key
from kubesandbox.store.state import Store

_EVERYBODY = "system:authenticated"


class Authenticator:
    """Authenticates users. ``secret`` signs the tokens of service accounts; ``fixed`` maps static tokens to users."""

    def __init__(self, store: Store, secret: bytes, wall: Callable[[], float], fixed: dict[str, User]) -> None:
        self._store = store
        self._secret = secret
        self._wall = wall
        self._fixed = fixed

    def accept(self, token: str, user: User) -> None:
        """Accept a fixed token for a user."""
        self._fixed[token] = user

    def user_of(self, request: Request) -> User:
        """Return the user of a request; raise Unauthorized for an invalid token."""
        header = request.getHeader("authorization")
        if header is not None:
            scheme, _, token = header.partition(" ")
            user = self.user_of_token(token.strip()) if scheme.lower() == "bearer" else None
            if user is None:
                raise statuses.unauthorized()
            return user
        return _certified_user(request) or ANONYMOUS

    def user_of_token(self, token: str) -> User | None:
        """Return the user of a token; tokens of deleted service accounts, or bound to deleted Secrets, are invalid."""
        if token in self._fixed:
            return self._fixed[token]
        user = tokens.read(self._secret, token, self._wall())
        if user is None or user.account is None:
            return user
        namespace, name, uid = user.account
        if not self._exists(SERVICEACCOUNTS, Key(namespace, name), uid):
            return None
        if user.secret is not None and not self._exists(SECRETS, Key(namespace, user.secret[0]), user.secret[1]):
            return None
        return user

    def _exists(self, resource: GroupResource, key: Key, uid: str) -> bool:
        found = self._store.get(resource, key)
        return found is not None and found.object["metadata"]["uid"] == uid


def _certified_user(request: Request) -> User | None:
    transport: Any = request.transport
    if transport is None or not hasattr(transport, "getPeerCertificate"):
        return None
    certificate = transport.getPeerCertificate()
    if certificate is None:
        return None
    subject = certificate.to_cryptography().subject
    names = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return User(names[0], (*groups, _EVERYBODY)) if names else None


def impersonated(request: Request, user: User, roles: Roles) -> User:
    """Return the effective user of a request; raise Forbidden if the real one may not impersonate it."""
    headers = request.requestHeaders
    name = _first(headers.getRawHeaders("impersonate-user"))
    groups = [str(each) for each in headers.getRawHeaders("impersonate-group") or ()]
    if not name:
        if groups:
            raise statuses.ApiStatus(
                500, "InternalError", "Internal error occurred: requested groups without user name"
            )
        return user
    for access in _accesses(name, groups):
        if not roles.allow(user, access):
            why = f'User "{user.name}" {access.describe()}'
            raise statuses.forbidden(GroupResource("", access.resource), access.name, why)
    account = (
        name.removeprefix("system:serviceaccount:").split(":") if name.startswith("system:serviceaccount:") else []
    )
    if len(account) == 2 and not groups:
        groups = ["system:serviceaccounts", f"system:serviceaccounts:{account[0]}"]
    if name != ANONYMOUS.name and _EVERYBODY not in groups:
        groups.append(_EVERYBODY)
    return User(name, tuple(groups))


def _accesses(name: str, groups: Sequence[str]) -> list[Access]:
    account = name.removeprefix("system:serviceaccount:").split(":")
    if name.startswith("system:serviceaccount:") and len(account) == 2:
        first = Access("impersonate", "", "serviceaccounts", namespace=account[0], name=account[1])
    else:
        first = Access("impersonate", "", "users", name=name)
    return [first, *(Access("impersonate", "", "groups", name=group) for group in groups)]


def _first(values: Sequence[str | bytes] | None) -> str:
    if not values:
        return ""
    first = values[0]
    return first.decode() if isinstance(first, bytes) else first
