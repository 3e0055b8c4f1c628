"""Compares this host's clock with the API server's: tokens, leases and certificates need them to agree."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import attrs

from liqod.kube.client import Client
from liqod.kube.errors import ApiError
from liqod.kube.resources import Resource

WARN: Final = 30.0
# The skew beyond which peers refuse a CA's certificate as expired or not yet valid (identity.tls, CLOCK_SKEW).
FATAL: Final = 300.0
_REVIEW: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)


@attrs.frozen
class Verdict:
    """What a difference between the clocks means; an empty message means nothing."""

    message: str = ""
    fatal: bool = False


def judge(skew: float) -> Verdict:
    """Judge how far this host's clock is ahead (positive) or behind, in seconds."""
    if abs(skew) < WARN:
        return Verdict()
    side = "ahead of" if skew > 0 else "behind"
    message = (
        f"this host's clock is {abs(skew):.0f} seconds {side} the API server's; "
        "have both set by NTP (`timedatectl set-ntp true`)"
    )
    return Verdict(message, abs(skew) >= FATAL)


async def server_time(client: Client) -> datetime | None:
    """Return the API server's time, or None where it does not tell it.

    A SelfSubjectReview is stamped with the time it was made and stored nowhere, so asking for one changes nothing.
    """
    try:
        body = {"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind}
        review: dict[str, Any] = await client.create(_REVIEW, body)
    except ApiError:
        return None
    stamp = review.get("metadata", {}).get("creationTimestamp")
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp)
    except ValueError:
        return None
