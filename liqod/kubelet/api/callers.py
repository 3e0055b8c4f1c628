"""Authenticates and authorizes callers by the home cluster, as every kubelet does.

A caller is identified by a client certificate of the cluster's client CA (the common name is the user, the
organizations are the groups; Kubernetes, "Authenticating"), or by a bearer token (TokenReview). Rights are checked by
SubjectAccessReviews. Results are cached for ``KEPT_FOR`` seconds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID
from twisted.internet.defer import DeferredSemaphore
from twisted.internet.interfaces import IReactorTime

from liqod.kube.client import Client
from liqod.kube.reviews import Recent, UserInfo, is_allowed, user_of_token
from liqod.kubelet.api.targets import NodeRight

# Kubelets cache answers longer (KubeletConfiguration: 2 min for tokens, 5 min and 30 s for rights). Here a right that
# was withdrawn ends sooner.
KEPT_FOR: Final = 10.0
KEPT: Final = 512
MAX_TOKEN: Final = 16 << 10
"""Maximum bytes of a bearer token; a service account's has about one thousand."""
REVIEWS: Final = 4
"""Maximum number of concurrent TokenReviews: a flood of invalid tokens must not exhaust the home client."""


def user_of(certificate: x509.Certificate) -> UserInfo | None:
    """Return the user of a verified client certificate; None without a common name."""
    names = _texts(certificate, NameOID.COMMON_NAME)
    if not names or not names[0]:
        return None
    # The API server adds this group to every authenticated request (NewAuthenticatedGroupAdder); a certificate does not
    # carry it, the answer to a TokenReview does.
    return UserInfo(username=names[0], groups=[*_texts(certificate, NameOID.ORGANIZATION_NAME), "system:authenticated"])


def _texts(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    values = (attribute.value for attribute in certificate.subject.get_attributes_for_oid(oid))
    return [value for value in values if isinstance(value, str)]


class Callers:
    """Authenticates and authorizes callers; raises KubeError when the home API server does not answer."""

    def __init__(self, client: Client, clock: IReactorTime) -> None:
        self._client = client
        self._users: Recent[UserInfo] = Recent(clock, KEPT_FOR, KEPT)
        self._rights: Recent[bool] = Recent(clock, KEPT_FOR, KEPT)
        self._slots = DeferredSemaphore(REVIEWS)

    async def by_token(self, token: str) -> UserInfo | None:
        """Return the user of a token; None for an invalid token."""
        if not token or len(token) > MAX_TOKEN:
            return None
        # The cache key is a digest, so that no secret stays in memory.
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.get(key)
        if known is None:
            await self._slots.acquire()
            try:
                known = await user_of_token(self._client, token) or UserInfo()
            finally:
                self._slots.release()
            self._users.put(key, known)
        return known if known.username else None

    async def may(self, user: UserInfo, rights: Sequence[NodeRight], node: str) -> bool:
        """Return whether a user has one of these rights on a node (empty ``node``: on all nodes)."""
        for right in rights:
            key = (user.username, user.uid, tuple(user.groups), repr(sorted(user.extra.items())), right, node)
            allowed = self._rights.get(key)
            if allowed is None:
                allowed = await self._ask(user, right, node)
                self._rights.put(key, allowed)
            if allowed:
                return True
        return False

    async def _ask(self, user: UserInfo, right: NodeRight, node: str) -> bool:
        attributes = {
            "verb": right.verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": right.subresource,
            "name": node,
        }
        return await is_allowed(self._client, user, {"resourceAttributes": attributes})
