"""Failures of API requests, as exceptions by meaning.

They are distinguished by code and ``reason``, never by English text. Source: k8s.io/apimachinery ``meta/v1.Status``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from liqod.flow.errors import ExpectedError


class KubeError(ExpectedError):
    """Any failure of a request to the API server."""


class Unreachable(KubeError):
    """There was no answer: connection, TLS or time-out; the message says which. The request may have been executed."""


class Undecodable(KubeError):
    """The answer is not what the API specifies."""


class ApiError(KubeError):
    """The API server refused: HTTP ``code``, machine-readable ``reason``, its ``message`` and ``details``."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(f"{message} ({reason or 'no reason given'}, HTTP {code})")
        self.code = code
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = details or {}


class NotFound(ApiError):
    """There is no such object, namespace or kind (404)."""


class AlreadyExists(ApiError):
    """An object of that name exists (409)."""


class Conflict(ApiError):
    """The object changed meanwhile, a precondition failed, or another manager owns a field (409)."""


class Gone(ApiError):
    """The resource version or the continue token is too old (410)."""


class Forbidden(ApiError):
    """The user is not authorized, or an admission plugin denied the request (403)."""


class Unauthorized(ApiError):
    """The API server does not know the user: no credentials, or they expired (401)."""


class Invalid(ApiError):
    """The object or the request does not pass validation (400 BadRequest, 422 Invalid)."""


class Throttled(ApiError):
    """Too many requests (429); ``retry_after`` in seconds, 0 without the header.

    API Priority and Fairness answers with it, and so does the eviction API when a disruption budget forbids it.
    """

    retry_after: float = 0.0


class ServerError(ApiError):
    """The API server or something behind it failed (5xx)."""

    retry_after: float = 0.0


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Status)

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
    """Return the error for an answer; ``code`` 0 takes the code out of the Status (an ERROR event of a watch).

    A body that is no Status (a proxy's page) is quoted, shortened.
    """
    try:
        status = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = body[:200].decode("utf-8", "replace").strip()
        status = _Status(message=text)
    code = code or status.code or 500
    message = status.message or f"the API server answered with HTTP {code}"
    if code == 409:
        known: type[ApiError] = AlreadyExists if status.reason == "AlreadyExists" else Conflict
    else:
        known = _BY_CODE.get(code, ServerError if code >= 500 else ApiError)
    error = known(code, status.reason, message, status.details)
    if isinstance(error, Throttled | ServerError):
        seconds = error.details.get("retryAfterSeconds")
        error.retry_after = float(seconds) if isinstance(seconds, int | float) and 0 <= seconds < 86400 else 0.0
    return error
