"""Failures of API requests, as one exception class per meaning.

They are distinguished by HTTP code and ``reason``, never by message text. Source: k8s.io/apimachinery
``meta/v1.Status``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from liqod.flow.errors import ExpectedError


class KubeError(ExpectedError):
    """Any failure of a request to the API server."""


class Unreachable(KubeError):
    """There was no response: connection, TLS or time-out, as the message states. The request may have been executed."""


class TooLarge(Unreachable):
    """The response was not read: it exceeds a limit. A list may fit in smaller pages."""


class Undecodable(KubeError):
    """The response does not match the API's specification."""


class LaterRelease(KubeError):
    """A later release of liqod wrote what this one would overwrite, as the message states."""


class ManagedElsewhere(KubeError):
    """Somebody else made what liqod would overwrite, as the message states."""


class ApiError(KubeError):
    """The API server refused a request: HTTP ``code``, machine-readable ``reason``, ``message`` and ``details``."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{message} ({reason or 'no reason given'}, HTTP {code})")
        self.code = code
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = details or {}

    def has_cause(self, reason: str) -> bool:
        """Return whether ``details.causes`` (metav1.StatusCause) names a reason; what has other shapes names none."""
        causes = self.details.get("causes")
        listed = causes if isinstance(causes, list) else ()
        return any(isinstance(cause, dict) and cause.get("reason") == reason for cause in listed)

    @property
    def is_namespace_terminating(self) -> bool:
        """Whether a write was refused because its namespace is being deleted (403); no object causes that.

        Source: Kubernetes, plugin/pkg/admission/namespace/lifecycle.
        """
        return self.has_cause("NamespaceTerminating")


class NotFound(ApiError):
    """The object, namespace or kind does not exist (404)."""


class AlreadyExists(ApiError):
    """An object of that name exists (409)."""


class Conflict(ApiError):
    """The resource version is outdated, a precondition failed, or another manager owns a field (409)."""

    is_contention: Final = True


class Gone(ApiError):
    """The resource version or the continue token is too old (410)."""


class Forbidden(ApiError):
    """The user is not authorized, or an admission plugin denied the request (403)."""


class Unauthorized(ApiError):
    """The API server cannot authenticate the user: credentials are missing or expired (401)."""


class Invalid(ApiError):
    """The object or the request does not pass validation (400 BadRequest, 422 Invalid)."""


class Throttled(ApiError):
    """Too many requests (429); ``retry_after`` in seconds, 0 without the header.

    Sent by API Priority and Fairness, and by the eviction API when a PodDisruptionBudget forbids the eviction.
    """

    retry_after: float = 0.0


class ServerError(ApiError):
    """The API server or a backend of it failed (5xx): etcd, an aggregated API, a webhook."""

    retry_after: float = 0.0


LONGEST: Final = 64 << 10
"""Bytes of a Status up to which its details are decoded; those of an API server have a few hundred."""
LONGEST_PAUSE: Final = 600.0
"""Seconds that a server can have us wait before the next attempt (``Retry-After``): one of a peer may say anything."""
LONGEST_MESSAGE: Final = 4096
"""Characters that are kept of a message: errors are remembered for each object, and a peer's server writes some."""
_LONGEST_REASON: Final = 128


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


class _Detailed(_Status):
    details: dict[str, Any] | None = None


_short = msgspec.json.Decoder(_Detailed)
_long = msgspec.json.Decoder(_Status)

_BY_CODE: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    410: Gone,
    422: Invalid,
    429: Throttled,
}


def from_status(code: int, body: bytes) -> ApiError:
    """Return the error for a response; with ``code`` 0 the Status's code is used (an ERROR event of a watch).

    A body that is no Status (a proxy's error page) is quoted up to 200 bytes. Of a long Status the beginning of the
    message is kept, and no details.
    """
    try:
        status = _short.decode(body) if len(body) <= LONGEST else _long.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = body[:200].decode("utf-8", "replace").strip()
        status = _Status(message=text)
    code = code or status.code or 500
    message = status.message[:LONGEST_MESSAGE] or f"the API server answered with HTTP {code}"
    reason, details = status.reason[:_LONGEST_REASON], status.details if isinstance(status, _Detailed) else None
    if code == 409:
        # 409 has two meanings, which only the reason separates: a taken name, and an optimistic lock that failed.
        known: type[ApiError] = AlreadyExists if reason == "AlreadyExists" else Conflict
    else:
        known = _BY_CODE.get(code, ServerError if code >= 500 else ApiError)
    error = known(code, reason, message, details)
    if isinstance(error, Throttled | ServerError):
        seconds = error.details.get("retryAfterSeconds")
        if isinstance(seconds, int | float) and seconds > 0:
            error.retry_after = float(min(seconds, LONGEST_PAUSE))
    return error
