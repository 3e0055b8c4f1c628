"""Asks the API server for its time: tokens, leases and certificates need this host's clock to agree with it."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from liqod.kube.client import Client
from liqod.kube.errors import ApiError
from liqod.kube.resources import Resource
from liqod.model.timestamps import parse_rfc3339

_REVIEW: Final = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False)


async def server_time(client: Client) -> datetime | None:
    """Return the API server's time, or None where it does not say.

    A SelfSubjectReview is stamped with the time it was made and stored nowhere, so asking for one changes nothing.
    """
    try:
        body = {"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind}
        review: dict[str, Any] = await client.create(_REVIEW, body)
    except ApiError:
        return None
    stamp = review.get("metadata", {}).get("creationTimestamp")
    return parse_rfc3339(stamp) if isinstance(stamp, str) else None
