"""Lists: selection, resource version and paging. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import attrs
import msgspec

from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import Json, Key, Kind
from kubesandbox.kinds.statuses import ApiStatus
from kubesandbox.store.selectors import SelectorError, chooser, parse_fields, parse_labels
from kubesandbox.store.state import Expired, Store, Stored

Chooser = Callable[[Json], bool] | None

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@attrs.frozen
class Query:
    """The parameters of a list or watch."""

    namespace: str = ""
    labels: str = attrs.field(default="", kw_only=True)
    fields: str = attrs.field(default="", kw_only=True)
    limit: int = attrs.field(default=0, kw_only=True)
    token: str = attrs.field(default="", kw_only=True)
    version: str = attrs.field(default="", kw_only=True)
    match: str = attrs.field(default="", kw_only=True)

    def chooser(self, kind: Kind) -> Chooser:
        """Return the predicate of the selectors; raise ApiStatus for a malformed selector."""
        try:
            return chooser(parse_labels(self.labels), parse_fields(kind.resource, self.fields))
        except SelectorError as error:
            raise statuses.bad_request(str(error)) from None


@attrs.frozen
class Page:
    """One answer to a list request; ``token`` asks for the next one."""

    items: list[Stored]
    version: int
    token: str = ""
    remaining: int | None = None

    def metadata(self) -> Json:
        metadata: Json = {"resourceVersion": str(self.version)}
        if self.token:
            metadata["continue"] = self.token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


def version_of(text: str) -> int:
    """Return a resource version as a number; raises ApiStatus."""
    if not text:
        return 0
    if not text.isdigit():
        cause = statuses.Cause("FieldValueInvalid", "resourceVersion", f'Invalid value: "{text}": strconv.ParseUint')
        raise statuses.invalid("meta.k8s.io", "ListOptions", "", [cause])
    return int(text)


def list_page(store: Store, kind: Kind, query: Query) -> Page:
    """Return the page that a query asks for; raises ApiStatus (410 when its version is no longer known)."""
    chooses = query.chooser(kind)
    version, after = _position(store, query)
    try:
        found = (
            store.items(kind.resource, query.namespace)
            if version == store.version
            else store.items_at(kind.resource, version, query.namespace)
        )
    except Expired:
        raise statuses.expired(
            _TOO_OLD if query.token else "The resourceVersion for the provided list is too old."
        ) from None
    if after is not None:
        found = [each for each in found if _key(each) > after]
    if chooses is not None:
        found = [each for each in found if chooses(each.object)]
    if not query.limit or len(found) <= query.limit:
        return Page(found, version)
    page = found[: query.limit]
    remaining = len(found) - query.limit if chooses is None else None
    return Page(page, version, _token(version, _key(page[-1])), remaining)


def _position(store: Store, query: Query) -> tuple[int, Key | None]:
    if query.token:
        return _read_token(query.token)
    asked = version_of(query.version)
    if asked > store.version:
        message = f"Timeout: Too large resource version: {asked}, current: {store.version}"
        raise ApiStatus(504, "Timeout", message, {"causes": [{"reason": "ResourceVersionTooLarge",
                        "message": "Too large resource version"}], "retryAfterSeconds": 1})  # fmt: skip
    return (asked if query.match == "Exact" and asked else store.version), None


def _key(stored: Stored) -> Key:
    metadata = stored.object["metadata"]
    return Key(metadata.get("namespace", ""), metadata["name"])


def _token(version: int, last: Key) -> str:
    body = {"v": "meta.k8s.io/v1", "rv": version, "start": [last.namespace, last.name]}
    return base64.urlsafe_b64encode(msgspec.json.encode(body)).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, Key]:
    try:
        body: Any = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        return int(body["rv"]), Key(*body["start"])
    except (ValueError, KeyError, TypeError):
        raise statuses.bad_request("continue key is not valid: it was not given out by this server") from None


def encode_list(kind: Kind, page: Page) -> bytes:
    """Return the JSON of a list; the objects' own JSON is made once and shared."""
    head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": page.metadata()}
    items = b",".join(encode_stored(kind, each) for each in page.items)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def encode_stored(kind: Kind, stored: Stored) -> bytes:
    """Return an object's JSON in the version of a kind."""
    if stored.object.get("apiVersion") == kind.api_version:
        return stored.json
    return msgspec.json.encode(stored.object | {"apiVersion": kind.api_version})
