"""Error responses of the API server: ``Status`` bodies in the wording of kube-apiserver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from kubesandbox.kinds.kinds import GroupResource, Json


class ApiStatus(Exception):
    """A request that fails with a ``Status`` object."""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def body(self) -> Json:
        """Return the ``Status`` object."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return status | {"code": self.code}


@attrs.frozen
class Cause:
    """One field that is wrong: ``reason`` is FieldValueInvalid and the like, ``field`` a path: ``spec.replicas``."""

    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message

    @classmethod
    def required(cls, field: str, detail: str = "") -> Cause:
        return cls("FieldValueRequired", field, f"Required value{': ' + detail if detail else ''}")

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str) -> Cause:
        return cls("FieldValueInvalid", field, f"Invalid value: {quoted(value)}{': ' + detail if detail else ''}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> Cause:
        return cls("FieldValueForbidden", field, f"Forbidden: {detail}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> Cause:
        return cls("FieldValueDuplicate", field, f"Duplicate value: {quoted(value)}")

    @classmethod
    def not_found(cls, field: str, value: Any) -> Cause:
        return cls("FieldValueNotFound", field, f"Not found: {quoted(value)}")

    @classmethod
    def unsupported(cls, field: str, value: Any, supported: Sequence[str]) -> Cause:
        words = ", ".join(quoted(each) for each in supported)
        return cls("FieldValueNotSupported", field, f"Unsupported value: {quoted(value)}: supported values: {words}")

    @classmethod
    def wrong_type(cls, field: str, value: Any, detail: str) -> Cause:
        return cls("FieldValueTypeInvalid", field, f"Invalid value: {quoted(value)}: {detail}")

    @classmethod
    def too_long(cls, field: str, limit: int) -> Cause:
        return cls("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def quoted(value: Any) -> str:
    """Return a value as the server prints it in a sentence: text in quotes, the rest as JSON."""
    match value:
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case dict() | list():
            return msgspec.json.encode(value).decode()
        case _:
            return str(value)


def _details(resource: GroupResource, name: str) -> Json:
    details: Json = {}
    if name:
        details["name"] = name
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: GroupResource, name: str) -> ApiStatus:
    return ApiStatus(404, "NotFound", f'{resource} "{name}" not found', _details(resource, name))


def already_exists(resource: GroupResource, name: str) -> ApiStatus:
    return ApiStatus(409, "AlreadyExists", f'{resource} "{name}" already exists', _details(resource, name))


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: GroupResource, name: str, why: str = MODIFIED) -> ApiStatus:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return ApiStatus(409, "Conflict", message, _details(resource, name))


def conflict_on(kind: str, resource: GroupResource, name: str, why: str) -> ApiStatus:
    """Return a conflict that names the kind instead of the resource, as those of preconditions do."""
    details = _details(resource, name) | {"kind": kind}
    return ApiStatus(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}', details)


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiStatus:
    text = str(causes[0]) if len(causes) == 1 else f"[{', '.join(str(cause) for cause in causes)}]"
    who = f"{kind}.{group}" if group else kind
    details: Json = {"name": name} if name else {}
    if group:
        details["group"] = group
    details["kind"] = kind
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return ApiStatus(422, "Invalid", f'{who} "{name}" is invalid: {text}', details)


def forbidden(resource: GroupResource, name: str, why: str) -> ApiStatus:
    subject = f'{resource} "{name}"' if name else str(resource)
    return ApiStatus(403, "Forbidden", f"{subject} is forbidden: {why}", _details(resource, name))


def bad_request(message: str) -> ApiStatus:
    return ApiStatus(400, "BadRequest", message)


def unauthorized() -> ApiStatus:
    return ApiStatus(401, "Unauthorized", "Unauthorized")


def unknown_resource() -> ApiStatus:
    return ApiStatus(404, "NotFound", "the server could not find the requested resource", {})


def not_allowed() -> ApiStatus:
    return ApiStatus(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media(accepted: Sequence[str]) -> ApiStatus:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiStatus(415, "UnsupportedMediaType", message, {})


def expired(message: str) -> ApiStatus:
    return ApiStatus(410, "Expired", message)


def internal(message: str) -> ApiStatus:
    return ApiStatus(500, "InternalError", f"Internal error occurred: {message}", {"causes": [{"message": message}]})
