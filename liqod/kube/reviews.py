"""Asks an API server who has a token, and what a user may do, as kubelets and other servers of a cluster do.

Kubernetes, "Authenticating" (TokenReview) and "Authorization" (SubjectAccessReview).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from twisted.internet.interfaces import IReactorTime

from liqod.kube.client import Client
from liqod.kube.resources import ACCESS_REVIEWS, TOKEN_REVIEWS
from liqod.model.objects.meta import View

V = TypeVar("V")


class UserInfo(View, frozen=True):
    """A user as in TokenReview and SubjectAccessReview."""

    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(View, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()


class TokenReview(View, frozen=True):
    """Who has a token, by the answer of the API server."""

    status: _TokenStatus = _TokenStatus()


class _AccessStatus(View, frozen=True):
    allowed: bool = False


class AccessReview(View, frozen=True):
    """Whether a user has a right, by the answer of the API server."""

    status: _AccessStatus = _AccessStatus()


async def user_of_token(client: Client, token: str) -> UserInfo | None:
    """Return the user of a token; None for an invalid one. Raises KubeError."""
    status = (await client.create(TOKEN_REVIEWS, {"spec": {"token": token}}, view=TokenReview)).status
    return status.user if status.authenticated and status.user.username else None


async def is_allowed(client: Client, user: UserInfo, attributes: Mapping[str, Any]) -> bool:
    """Return whether a user has a right. Raises KubeError.

    ``attributes`` is ``resourceAttributes`` or ``nonResourceAttributes`` of a SubjectAccessReview's spec, by that name.
    """
    spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra, **attributes}
    return (await client.create(ACCESS_REVIEWS, {"spec": spec}, view=AccessReview)).status.allowed


class Recent(Generic[V]):
    """Remembers the latest values, each for so many seconds; of more than ``most`` the oldest goes."""

    def __init__(self, clock: IReactorTime, seconds: float, most: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._values: dict[Any, tuple[V, float]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: object) -> V | None:
        """Return a value that is remembered."""
        value, until = self._values.get(key, (None, float("-inf")))
        return value if until > self._clock.seconds() else None

    def put(self, key: object, value: V) -> None:
        """Remember a value."""
        self._values.pop(key, None)
        while len(self._values) >= self._most:
            del self._values[next(iter(self._values))]
        self._values[key] = value, self._clock.seconds() + self._seconds
