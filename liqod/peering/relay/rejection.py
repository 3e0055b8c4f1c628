"""Rejections of requests, sent to clients as a Kubernetes ``Status``."""

from __future__ import annotations

from typing import Final

import attrs
import msgspec

_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


@attrs.define
class Rejected(Exception):
    """A request or response is not forwarded: status code, reason, and a message."""

    code: int
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def status(rejected: Rejected) -> bytes:
    """Return the body of a rejection (Kubernetes API: ``Status`` of ``v1``)."""
    reason = _REASONS.get(rejected.code, "InternalError" if rejected.code >= 500 else "BadRequest")
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"{rejected.reason}: {rejected.message}",
            "reason": reason,
            "code": rejected.code,
        }
    )
