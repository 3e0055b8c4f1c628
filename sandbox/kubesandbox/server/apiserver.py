"""The API server's HTTP side: a twisted.web resource over ``Api``, ``Store`` and ``Catalog``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Request

from kubesandbox.auth.authn import Authenticator, impersonated
from kubesandbox.auth.rbac import Access, Roles
from kubesandbox.auth.tokens import User
from kubesandbox.kinds import statuses
from kubesandbox.kinds.kinds import Json, Key, Kind
from kubesandbox.kinds.statuses import ApiStatus
from kubesandbox.server import discovery, openapi, protobuf, subresources
from kubesandbox.server.api import Api
from kubesandbox.server.render import Rendering, rendering_of
from kubesandbox.server.requests import Caller
from kubesandbox.server.routes import Target, resolve, verb_of
from kubesandbox.server.watch import WatchOptions, WatchStream
from kubesandbox.store import patch
from kubesandbox.store.listing import Page, Query, encode_list, list_page, version_of

JSON: Final = "application/json"
_PATCHES: Final = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/apply-patch+yaml": "apply",
}
_HEALTH: Final = ("healthz", "livez", "readyz")
MAX_BODY: Final = 3 * 1024 * 1024
"""The reference's own limit on a request body."""

LogReader = Callable[[Request, Key, dict[str, str]], None]


class ApiServer(Resource):
    """Answers every path. ``read_log`` serves ``pods/log``; without it that is a server error, as without a kubelet."""

    isLeaf = True
    log = Logger()

    def __init__(
        self, api: Api, authenticator: Authenticator, roles: Roles, clock: IReactorTime, secret: bytes
    ) -> None:
        super().__init__()
        self.api = api
        self.clock = clock
        self.read_log: LogReader | None = None
        self.streams: set[WatchStream] = set()
        self._authenticator = authenticator
        self._roles = roles
        self._secret = secret

    def render(self, request: Request) -> int:
        """Answer a request; every failure becomes a ``Status``."""
        finished: list[bool] = []
        request.notifyFinish().addBoth(lambda _: finished.append(True))
        answered = Deferred.fromCoroutine(self._answer(request))

        def failed(failure: Failure) -> None:
            if finished:
                return
            status = failure.value
            if not isinstance(status, ApiStatus):
                self.log.failure("a request failed: {method} {uri}", failure, method=request.method, uri=request.uri)
                status = statuses.internal(f"{type(status).__name__}: {failure.getErrorMessage()}")
            for name, value in status.headers.items():
                request.setHeader(name, value)
            send(request, status.code, msgspec.json.encode(status.body()))

        answered.addErrback(failed)
        answered.addErrback(lambda failure: self.log.failure("an answer could not be sent", failure))
        return NOT_DONE_YET

    async def _answer(self, request: Request) -> None:
        path = request.path.decode("utf-8", "replace")
        parts = [unquote(part) for part in path.split("/") if part]
        user = impersonated(request, self._authenticator.user_of(request), self._roles)
        if len(parts) > 2 and (parts[0] == "api" or (parts[0] == "apis" and len(parts) > 3)):
            await self._resource(request, user, parts)
            return
        access = Access((request.method or b"GET").decode().lower(), path=path)
        if not self._roles.allow(user, access):
            message = f'forbidden: User "{user.name}" {access.describe()}'
            raise ApiStatus(403, "Forbidden", message, {})
        self._page(request, parts)

    # -- pages that are not resources --------------------------------------------------------------------------------

    def _page(self, request: Request, parts: list[str]) -> None:
        catalog = self.api.catalog
        wants_all = "apidiscovery.k8s.io" in (request.getHeader("accept") or "")
        match parts:
            case [health, *_] if health in _HEALTH:
                send(request, 200, b"ok", "text/plain; charset=utf-8")
            case ["version"]:
                send_json(request, discovery.VERSION)
            case ["api"] | ["apis"] if wants_all:
                body = discovery.aggregated(catalog, parts == ["api"])
                content = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
                send(request, 200, msgspec.json.encode(body), content)
            case ["api"]:
                host = request.getHeader("host") or ""
                addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}]
                send_json(request, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses})
            case ["apis"]:
                groups = [discovery.group(*each) for each in catalog.groups().items()]
                send_json(request, {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            case ["apis", group] if group in catalog.groups():
                body = discovery.group(group, catalog.groups()[group])
                send_json(request, {"kind": "APIGroup", "apiVersion": "v1"} | body)
            case ["api", version]:
                self._resources(request, "", version)
            case ["apis", group, version]:
                self._resources(request, group, version)
            case ["openapi", *rest]:
                self._openapi(request, rest)
            case _:
                send(request, 404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _openapi(self, request: Request, parts: list[str]) -> None:
        catalog = self.api.catalog
        match parts:
            case ["v2"] if "proto-openapi" in (request.getHeader("accept") or ""):
                # An empty message: kubectl then finds no schema to check against, and leaves that to the server.
                send(request, 200, b"", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
            case ["v2"]:
                send_json(request, openapi.document_v2(catalog))
            case ["v3"]:
                send_json(request, openapi.index(catalog))
            case ["v3", "api", version]:
                send_json(request, openapi.document(catalog, "", version))
            case ["v3", "apis", group, version]:
                send_json(request, openapi.document(catalog, group, version))
            case _:
                send(request, 404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _resources(self, request: Request, group: str, version: str) -> None:
        kinds = discovery.in_version(self.api.catalog, group, version)
        if not kinds:
            send(request, 404, b"404 page not found\n", "text/plain; charset=utf-8")
            return
        name = f"{group}/{version}" if group else version
        resources = discovery.resource_list(kinds)
        send_json(
            request, {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}
        )

    # -- resources ---------------------------------------------------------------------------------------------------

    async def _resource(self, request: Request, user: User, parts: list[str]) -> None:
        query = query_of(request)
        target = resolve(self.api.catalog, parts)
        method = (request.method or b"").decode()
        verb = verb_of(method, target, watching=query.get("watch") in ("1", "true"))
        access = target.access(verb, query.get("fieldSelector", ""))
        if not self._roles.allow(user, access):
            why = f'User "{user.name}" {access.describe()}'
            raise statuses.forbidden(target.kind.resource, target.name, why)
        if verb not in target.kind.verbs and not target.subresource:
            raise statuses.not_allowed()
        caller = Caller(user, _written_by(request, query), "dryRun" in query, query.get("fieldValidation") == "Strict")
        rendering = rendering_of(request.getHeader("accept") or "", target.kind, query, self.api.wall())
        if target.subresource and await self._subresource(request, caller, target, method, query):
            return
        answer: Callable[[Request, Caller, Target, dict[str, str], Rendering], Awaitable[None]]
        answer = getattr(self, f"_{verb}")
        await answer(request, caller, target, query, rendering)

    async def _get(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        stored = self.api.get(target.kind, self._space(target), target.name)
        send(request, 200, shown.one(stored), shown.content_type)

    async def _list(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        page = list_page(self.api.store, target.kind, _list_query(self._space(target), query))
        body = encode_list(target.kind, page) if shown.plain else shown.many(page)
        send(request, 200, body, shown.content_type)

    async def _watch(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        listed = _list_query(self._space(target), query)
        initial = query.get("sendInitialEvents") == "true"
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            cause = statuses.Cause.forbidden(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
            raise statuses.invalid("meta.k8s.io", "ListOptions", "", [cause])
        version = version_of(listed.version)
        options = WatchOptions(
            listed.namespace,
            listed.chooser(target.kind),
            None if initial or not version else version,
            bookmarks=query.get("allowWatchBookmarks") in ("1", "true"),
            initial_end=initial,
            seconds=float(query.get("timeoutSeconds") or 1800),
            encode=lambda _, stored: shown.event(stored),
        )
        request.setHeader("content-type", shown.watch_content_type)
        request.setResponseCode(200)
        request.write(b"")
        stream = WatchStream(self.clock, self.api.store, target.kind, options, request)
        self.streams.add(stream)

        def over(_: object) -> None:
            stream.abandon()
            self.streams.discard(stream)

        request.notifyFinish().addBoth(over)
        stream.start()

    async def _create(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        kind = target.kind
        body = _body(request)
        if kind.group in ("authentication.k8s.io", "authorization.k8s.io"):
            answer = subresources.review(
                self._roles,
                caller.user,
                kind,
                target.namespace,
                body,
                whose=self._authenticator.user_of_token,
                now=self.api.now(),
            )
            send_json(request, answer, 201)
            return
        if target.name:
            raise statuses.not_allowed()
        _check_kind(kind, body)
        if kind.namespaced and not target.namespace:
            raise statuses.not_allowed()
        if kind.plural == "bindings":
            key = Key(target.namespace, (body.get("metadata") or {}).get("name", ""))
            send_json(request, await subresources.bind(self.api, caller, key, body), 201)
            return
        stored = await self.api.create(caller, kind, self._space(target), body)
        send(request, 201, shown.one(stored), shown.content_type)

    async def _update(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        body = _body(request)
        _check_kind(target.kind, body)
        stored = await self.api.update(caller, target.kind, self._key(target), body, target.subresource)
        send(request, 200, shown.one(stored), shown.content_type)

    async def _patch(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        content = (request.getHeader("content-type") or "").partition(";")[0].strip()
        form = _PATCHES.get(content)
        kind = target.kind
        if form is None or (form == "strategic" and kind.custom):
            raise statuses.unsupported_media([each for each in _PATCHES if not (kind.custom and "strategic" in each)])
        change = _decode(request)
        code = 200
        if form == "apply":
            if not query.get("fieldManager"):
                cause = statuses.Cause.required("fieldManager", "is required for apply patch")
                raise statuses.invalid("meta.k8s.io", "PatchOptions", "", [cause])
            if not isinstance(change, dict):
                raise statuses.bad_request("an apply configuration must be an object")
            _check_kind(kind, change)
            stored, created = await self.api.apply(
                caller,
                kind,
                self._key(target),
                change | {"metadata": change.get("metadata") or {}},
                subresource=target.subresource,
                force=query.get("force") in ("1", "true"),
            )
            code = 201 if created else 200
        else:
            compute = _patcher(form, change, self.api, kind)
            stored = await self.api.change(caller, kind, self._key(target), compute, target.subresource)
        send(request, code, shown.one(stored), shown.content_type)

    async def _delete(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        options = subresources.delete_options(_body(request, optional=True), query)
        stored, gone = await self.api.delete(caller, target.kind, self._key(target), options)
        if not gone or target.kind.kind in ("Pod", "Service", "ServiceAccount"):
            send(request, 200, shown.one(stored), shown.content_type)
            return
        kind, metadata = target.kind, stored.object["metadata"]
        details = {"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]}
        if kind.group:
            details["group"] = kind.group
        send_json(
            request,
            {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details},
        )

    async def _deletecollection(
        self, request: Request, caller: Caller, target: Target, query: dict[str, str], shown: Rendering
    ) -> None:
        if target.kind.namespaced and not target.namespace:
            raise statuses.not_allowed()
        options = subresources.delete_options(_body(request, optional=True), query)
        page = list_page(self.api.store, target.kind, _list_query(self._space(target), query))
        for stored in page.items:
            metadata = stored.object["metadata"]
            key = Key(metadata.get("namespace", ""), metadata["name"])
            if self.api.store.get(target.kind.resource, key) is not None:
                await self.api.delete(caller, target.kind, key, options)
        send(request, 200, encode_list(target.kind, Page(page.items, self.api.store.version)), JSON)

    async def _subresource(
        self, request: Request, caller: Caller, target: Target, method: str, query: dict[str, str]
    ) -> bool:
        """Answer a request for a subresource; return False if it is for the object itself."""
        key, kind, api = self._key(target), target.kind, self.api
        match target.subresource, method:
            case "binding", "POST":
                send_json(request, await subresources.bind(api, caller, key, _body(request)), 201)
            case "eviction", "POST":
                send_json(request, await subresources.evict(api, caller, key, _body(request)), 201)
            case "token", "POST":
                send_json(request, await subresources.request_token(api, self._secret, key, _body(request)), 201)
            case "log", "GET":
                api.get(kind, *key)
                if self.read_log is None:
                    raise statuses.internal("no node answers for logs")
                self.read_log(request, key, query)
            case "scale", "GET":
                send_json(request, subresources.scale_of(api.get(kind, *key)))
            case "scale", "PUT":
                send_json(request, await subresources.set_scale(api, caller, kind, key, _body(request)))
            case "scale", "PATCH":
                change = _decode(request)
                scale = patch.merge(subresources.scale_of(api.get(kind, *key)), change)
                send_json(request, await subresources.set_scale(api, caller, kind, key, scale))
            case ("status" | "ephemeralcontainers" | "resize", "GET" | "PUT" | "PATCH") | ("finalize", "PUT"):
                return False
            case _:
                raise statuses.not_allowed()
        return True

    def _space(self, target: Target) -> str:
        return target.namespace if target.kind.namespaced else ""

    def _key(self, target: Target) -> Key:
        return Key(self._space(target), target.name)


def _patcher(form: str, change: Any, api: Api, kind: Kind) -> Callable[[Json], Json]:
    def compute(current: Json) -> Json:
        # The resource version is omitted: a patch without one applies to the current state unconditionally.
        metadata = {name: value for name, value in current["metadata"].items() if name != "resourceVersion"}
        plain = current | {"metadata": metadata}
        try:
            result: Json
            if form == "json":
                if not isinstance(change, list):
                    raise statuses.bad_request("a JSON patch must be a list of operations")
                result = patch.json_patch(current, change)
            elif not isinstance(change, dict):
                raise statuses.bad_request("a merge patch must be an object")
            elif form == "merge":
                result = patch.merge(plain, change)
            else:
                result = patch.strategic(plain, change, api.catalog.shape(kind))
        except patch.PatchError as error:
            if error.wrong_document:
                message = "the server rejected our request due to an error in our request"
                raise ApiStatus(422, "Invalid", message, {}) from error
            raise statuses.bad_request(f"error decoding patch: {error}") from None
        _check_kind(kind, result)
        return result

    return compute


def _check_kind(kind: Kind, body: Json) -> None:
    found = (body.get("apiVersion", kind.api_version), body.get("kind", kind.kind))
    if kind.custom and ("apiVersion" not in body or "kind" not in body):
        missing = "kind" if "kind" not in body else "apiVersion"
        raise statuses.bad_request(f"Object '{missing.capitalize()}' is missing")
    if found[1] != kind.kind and kind.plural != "bindings":
        raise statuses.bad_request(
            f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: no kind "{found[1]}" is '
            f'registered for version "{found[0]}"'
        )
    if found[0] != kind.api_version:
        raise statuses.bad_request(
            f"the API version in the data ({found[0]}) does not match the expected API version ({kind.api_version})"
        )
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise statuses.bad_request("metadata must be an object")


def _list_query(namespace: str, query: dict[str, str]) -> Query:
    limit = query.get("limit", "")
    return Query(
        namespace,
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        limit=int(limit) if limit.isdigit() else 0,
        token=query.get("continue", ""),
        version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
    )


def _written_by(request: Request, query: dict[str, str]) -> str:
    agent = request.getHeader("user-agent") or "unknown"
    return query.get("fieldManager") or agent.partition("/")[0][:128] or "unknown"


def query_of(request: Request) -> dict[str, str]:
    """Return the query parameters of a request, the first value of each."""
    return {name.decode(): values[0].decode("utf-8", "replace") for name, values in (request.args or {}).items()}


def _decode(request: Request) -> Any:
    content = request.content
    data = content.read(MAX_BODY + 1) if content is not None else b""
    if len(data) > MAX_BODY:
        raise ApiStatus(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")
    if (request.getHeader("content-type") or "").startswith(protobuf.MEDIA_TYPE):
        try:
            return protobuf.read(data) if data else None
        except protobuf.NotReadable as error:
            status = statuses.unsupported_media([JSON])
            status.message += f" ({error})"
            raise status from None
    try:
        return msgspec.json.decode(data) if data else None
    except msgspec.DecodeError as error:
        raise statuses.bad_request(f"error decoding the request body: {error}") from None


def _body(request: Request, *, optional: bool = False) -> Json:
    kind = (request.getHeader("content-type") or JSON).partition(";")[0].strip()
    if kind not in (JSON, protobuf.MEDIA_TYPE, "*/*", "application/x-www-form-urlencoded", "text/plain") and not (
        optional and not kind
    ):
        raise statuses.unsupported_media([JSON])
    body = _decode(request)
    if body is None and optional:
        return {}
    if not isinstance(body, dict):
        raise statuses.bad_request("the request body must be a JSON object")
    return body


def send(request: Request, code: int, body: bytes, content_type: str = JSON) -> None:
    """Send a whole answer."""
    request.setResponseCode(code)
    request.setHeader("content-type", content_type)
    request.setHeader("content-length", str(len(body)))
    request.write(body)
    request.finish()


def send_json(request: Request, body: Json, code: int = 200) -> None:
    send(request, code, msgspec.json.encode(body))
