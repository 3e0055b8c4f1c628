"""What the relay itself answers, in the form of the Kubernetes API (``Status``), so that clients show its sentence."""

from __future__ import annotations

from typing import Final

import msgspec

from liqod.peering.relay.heads import BadHead

_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


def status(bad: BadHead) -> bytes:
    """Return the body of a refusal (Kubernetes API: ``Status`` of ``v1``)."""
    reason = _REASONS.get(bad.code, "InternalError" if bad.code >= 500 else "BadRequest")
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"{bad.reason}: {bad.message}",
            "reason": reason,
            "code": bad.code,
        }
    )
