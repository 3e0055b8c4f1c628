"""A service account's token in a kubeconfig, and the newer one that its holder keeps in a file beside it.

Nothing is verified here: the API server does that. What a token says about itself tells which of several is the newest,
and when it ends.
"""

from __future__ import annotations

import base64
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import msgspec

MAX_TOKEN: Final = 64 << 10
"""Bytes that are read of a file with a token."""
_SUBJECT: Final = "system:serviceaccount:"


@attrs.frozen
class Claims:
    """What a token says: whose it is (``system:serviceaccount:NAMESPACE:NAME``, and the UID), and its times.

    Times are seconds since 1970; ``expires`` None: it has no end of its own.
    """

    subject: str
    uid: str
    issued: float
    expires: float | None


class _Account(msgspec.Struct, frozen=True):
    uid: str = ""


class _Own(msgspec.Struct, frozen=True):
    serviceaccount: _Account = _Account()


class _Body(
    msgspec.Struct,
    frozen=True,
    rename={"own": "kubernetes.io", "uid_by_secret": "kubernetes.io/serviceaccount/service-account.uid"},
):
    """The claims of a token that was requested, or that a Secret holds (Kubernetes, "Managing Service Accounts")."""

    sub: str = ""
    iat: float = 0.0
    exp: float | None = None
    own: _Own = _Own()
    uid_by_secret: str = ""


def token_body(token: str) -> bytes | None:
    """Return the claims in a token as JSON (JWT, RFC 7519), which nobody verified; None for a token of another kind."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        return base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
    except ValueError:
        return None


def claims_of(token: str) -> Claims | None:
    """Return what a token says, None for one that is no service account's."""
    try:
        body = msgspec.json.decode(token_body(token) or b"", type=_Body)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return None
    uid = body.own.serviceaccount.uid or body.uid_by_secret
    if not body.sub.startswith(_SUBJECT) or not uid:
        return None
    return Claims(body.sub, uid, body.iat, body.exp)


class AccountToken:
    """The bearer token of a kubeconfig: what is written there, or a newer one for the same account.

    That one is in the file ``path``, or was made by this process (``replace``). ``read`` returns what the kubeconfig
    has now. It is called for every request, and costs nothing then.
    """

    def __init__(self, token: str, read: Callable[[], str], path: Path | None = None) -> None:
        self.path = path
        self.given = token
        self._read = read
        self._made = ""
        self._rejected: frozenset[str] = frozenset()
        self._token = self._newest_first()[0]

    def __repr__(self) -> str:
        return f"AccountToken({str(self.path)!r})"

    def __call__(self) -> str:
        return self._token

    @property
    def claims(self) -> Claims | None:
        """What the token in use says."""
        return claims_of(self._token)

    def renew(self) -> None:
        """Choose again after the API server rejected the token (401): the newest that it has not rejected.

        Where it has rejected all of them, it may have been in trouble: then the newest once more. Raises ConfigError.
        """
        self.given = self._read()
        tokens = self._newest_first()
        rejected = self._rejected | {self._token}
        left = [token for token in tokens if token not in rejected]
        self._rejected = rejected.intersection(tokens) if left else frozenset()
        self._token = (left or tokens)[0]

    def replace(self, token: str) -> None:
        """Use a newer token from now on, and keep it in the file, if there is one; raises OSError."""
        self._token = self._made = token
        if self.path is not None:
            _write(self.path, token)

    def _newest_first(self) -> list[str]:
        given = claims_of(self.given)
        if given is None:
            return [self.given]
        issued = {self.given: given.issued}
        for token in (_content(self.path), self._made):
            claims = claims_of(token)
            # The UID as well: after the kubeconfig was replaced by that of another cluster, that one must not see it.
            if claims is not None and (claims.subject, claims.uid) == (given.subject, given.uid):
                issued[token] = claims.issued
        return sorted(issued, key=lambda token: -issued[token])


def _content(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        with path.open("rb") as file:
            return file.read(MAX_TOKEN).decode("ascii").strip()
    except (OSError, ValueError):
        # No text of ASCII, or no path at all.
        return ""


def _write(path: Path, token: str) -> None:
    """Write the file for its owner alone; a reader meanwhile finds the earlier one, or this one."""
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{token}\n")
            file.flush()
            # Without it the file may be empty after a loss of power, when the kubeconfig's token has long ended.
            os.fsync(file.fileno())
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
