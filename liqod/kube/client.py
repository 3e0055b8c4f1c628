"""Client of one API server: verbs as coroutines over pooled connections.

msgspec encodes and decodes bodies directly to and from bytes. A request is tried up to ``TRIES`` times: an idempotent
one when the server is busy or the connection breaks, any one that was throttled (429) or never sent; other failures are
raised as a typed ``KubeError``.
"""

from __future__ import annotations

import builtins
import copy
import random as _random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Literal, cast

import msgspec
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.protocol import Protocol
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.web.http_headers import Headers
from twisted.web.iweb import IResponse
from typing_extensions import TypeVar

from liqod.flow.backoff import Backoff
from liqod.flow.observe import Latest
from liqod.flow.tasks import cancellable
from liqod.kube.connection.answers import MOST_PARTS, AnswerLimits, check_page
from liqod.kube.connection.cache_quota import Allowance
from liqod.kube.connection.concurrency_limit import Slots
from liqod.kube.connection.config import ClientConfig
from liqod.kube.connection.kept_caches import KeptCaches
from liqod.kube.connection.seen_versions import SeenVersions
from liqod.kube.connection.transport import (
    CACHED_FOR,
    IN_FLIGHT,
    ApiServerEndpoint,
    Body,
    Connections,
    TimedOut,
    is_tls_failure,
    unreachable,
    was_never_sent,
)
from liqod.kube.connection.went_back import WentBack
from liqod.kube.errors import (
    LONGEST_PAUSE,
    ApiError,
    Gone,
    KubeError,
    NotFound,
    ServerError,
    Throttled,
    TooLarge,
    Unauthorized,
    Undecodable,
    Unreachable,
    from_status,
)
from liqod.kube.nesting import count_parts
from liqod.kube.pages import Listing, ListPage, decode_raw
from liqod.kube.requests import Content, collection, encoded, identity, item, namespace_of, query, typed
from liqod.kube.resources import Resource
from liqod.kube.version import ServerVersion
from liqod.model.names import FIELD_MANAGER
from liqod.model.objects.meta import number

T = TypeVar("T", default=dict[str, Any])
R = TypeVar("R")

PatchKind = Literal["merge", "json", "strategic"]

JSON: Final = b"application/json"
APPLY: Final = b"application/apply-patch+yaml"
_PATCHES: Final[Mapping[str, bytes]] = {
    "merge": b"application/merge-patch+json",
    "json": b"application/json-patch+json",
    "strategic": b"application/strategic-merge-patch+json",
}
_DICT: Any = dict

TRIES: Final = 3
LONGEST_RETRY_AFTER: Final = 5.0
"""Maximum ``Retry-After`` in seconds that the client waits itself; a longer one is raised to the caller."""


class Client:
    """Sends requests to the API server of one cluster.

    ``view`` is the type that a response is decoded to: a msgspec struct, ``dict`` for plain JSON, or None to skip
    decoding (None is returned). ``impersonate`` is the user to act as (``Impersonate-User``). ``timeout`` in seconds
    applies to one request, from the moment it is sent.
    ``requests`` counts sent requests by verb and plural (with subresource), ``written`` the bytes of bodies by
    namespace, where ``counting_writes`` returned it. ``path_since`` is the clock's time at which the network path
    recovered after its last interruption. ``went_back`` counts how often informers saw versions that were lower than
    before: the server's etcd was restored. ``allowance`` bounds the memory of informers' caches; with one (the server
    is a peer's) answers are bounded and checked too. ``seen``: the versions that informers have seen. ``kept``: what
    they held when they stopped, while it is kept for those that take their place. ``version`` is requested when it is
    needed first, and when it is asked for again.
    """

    _log = Logger()

    def __init__(
        self,
        config: ClientConfig,
        reactor: IReactorTime,
        *,
        user_agent: str = "liqod",
        impersonate: str | None = None,
        timeout: float = 30.0,
        random: Callable[[], float] = _random.random,
        allowance: Allowance | None = None,
    ) -> None:
        self.config = config
        self.seen = SeenVersions()
        self.kept = KeptCaches()
        self.allowance = allowance
        self.clock: IReactorTime = reactor
        self.timeout = timeout
        self.requests: Counter[tuple[str, str]] = Counter()
        self.written: Counter[str] | None = None
        self.path_since: Latest[float] = Latest(float("-inf"))
        self.went_back = WentBack(random)
        self._connections = Connections(config, reactor)
        self._base = config.server.rstrip("/").encode("ascii")
        self._fixed = {
            b"Host": [self._connections.uri.netloc],
            b"User-Agent": [user_agent.encode()],
            b"Accept": [JSON],
        }
        if impersonate is not None:
            self._fixed[b"Impersonate-User"] = [impersonate.encode()]
        self._answers = AnswerLimits() if allowance is None else AnswerLimits.of_a_peer()
        self._token = ""
        self._headers: dict[bytes, Headers] = {}
        self._slots = Slots(reactor, IN_FLIGHT, CACHED_FOR)
        self._backoff = Backoff(initial=0.2, cap=2.0, random=random)
        self._decoders: dict[Any, Callable[[bytes], Any]] = {}
        self._closed = False
        self.version = ServerVersion(lambda: self.raw("GET", "/version"))

    def __repr__(self) -> str:
        return f"<Client {self.config.server}>"

    # Verbs

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, view: type[T] | None = _DICT, subresource: str = ""
    ) -> T:
        """Return an object; raise NotFound."""
        path = item(resource, namespace, name, subresource)
        answer = await self._request(("get", _counted(resource, subresource)), b"GET", path, repeatable=True)
        return self._decoded(answer, view)

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        view: type[T] | None = _DICT,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
    ) -> Listing[T]:
        """Return all objects (of a namespace), consistent at one resource version; read in pages.

        If a continue token expires (410), the list is read again without pages.
        """
        items: builtins.list[T] = []
        token = ""
        while True:
            try:
                page = await self.page(
                    resource, namespace, view, labels=labels, fields=fields, limit=limit, token=token
                )
            except Gone:
                if not token:
                    raise
                items, token, limit = [], "", 0
                continue
            items.extend(page.items or ())
            token = page.metadata.continue_
            if not token:
                return Listing(items, page.metadata.resource_version)

    async def page(
        self,
        resource: Resource,
        namespace: str,
        view: type[T] | None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        token: str = "",
    ) -> ListPage[T]:
        """Return one page of a list; raise Gone when the continue token has expired.

        A page that is too large to be read is requested again with fewer objects, down to one.
        """
        while True:
            try:
                answer = await self._page(resource, namespace, labels=labels, fields=fields, limit=limit, token=token)
                if self._answers.strict:
                    check_page(answer, limit)
                # At run time ListPage is subscripted with the view; for the type checker it is a class with a type
                # variable.
                return cast("ListPage[T]", self._decoded(answer, cast(Any, ListPage)[view or dict]))
            except TooLarge:
                if limit == 1:
                    raise
                limit = max(1, (limit or 500) // 8)

    async def _page(
        self, resource: Resource, namespace: str, *, labels: str, fields: str, limit: int, token: str
    ) -> bytes:
        selected = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit or ""), "continue": token}
        path = query(collection(resource, namespace), selected)
        return await self._request(("list", _counted(resource)), b"GET", path, repeatable=True)

    async def create(
        self,
        resource: Resource,
        body: Content,
        namespace: str = "",
        *,
        view: type[T] | None = _DICT,
        name: str = "",
        subresource: str = "",
        manager: str = "",
        dry_run: bool = False,
    ) -> T:
        """Create an object, or one of its subresources (``name`` and ``subresource``: token, binding, eviction).

        The namespace defaults to the body's. A broken connection raises Unreachable: the object may have been created.
        ``dry_run``: everything is checked and nothing is stored (Kubernetes API concepts, "Dry-run").
        """
        namespace = namespace or (identity(body)[0] if resource.namespaced else "")
        if subresource:
            path, content = item(resource, namespace, name, subresource), encoded(body)
        elif resource.namespaced and not namespace:
            raise ValueError(f"{resource} are in namespaces, none was given")
        else:
            path, content = collection(resource, namespace), typed(resource, body)
        path = query(path, {"fieldManager": manager, "dryRun": "All" if dry_run else ""})
        counted = ("create", _counted(resource, subresource))
        return self._decoded(await self._request(counted, b"POST", path, JSON, content), view)

    async def replace(
        self,
        resource: Resource,
        body: Content,
        name: str,
        namespace: str = "",
        *,
        subresource: str = "",
        view: type[T] | None = _DICT,
    ) -> T:
        """Replace an object; with a ``resourceVersion`` in the body, raise Conflict if the object has changed since."""
        path = item(resource, namespace or identity(body)[0], name, subresource)
        counted = ("update", _counted(resource, subresource))
        return self._decoded(
            await self._request(counted, b"PUT", path, JSON, typed(resource, body), repeatable=True), view
        )

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any] | msgspec.Struct,
        *,
        manager: str = FIELD_MANAGER,
        force: bool = True,
        subresource: str = "",
        view: type[T] | None = _DICT,
    ) -> T:
        """Create an object, or set the fields in ``body``, by server-side apply; ``manager`` owns these fields.

        Name and namespace are the body's. ``force`` takes over fields that other managers own (else Conflict).
        """
        path = query(
            item(resource, *identity(body), subresource),
            {"fieldManager": manager, "force": "true" if force else ""},
        )
        counted = ("apply", _counted(resource, subresource))
        return self._decoded(
            await self._request(counted, b"PATCH", path, APPLY, typed(resource, body), repeatable=True), view
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Content | builtins.list[Any],
        namespace: str = "",
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
        manager: str = "",
        view: type[T] | None = _DICT,
    ) -> T:
        """Patch an object: a merge patch (RFC 7396), a JSON patch (RFC 6902) or a strategic merge patch.

        ``manager`` becomes the owner of the fields; the API server derives the default from the user agent.
        """
        path = query(item(resource, namespace, name, subresource), {"fieldManager": manager})
        counted = ("patch", _counted(resource, subresource))
        answer = await self._request(
            counted, b"PATCH", path, _PATCHES[kind], encoded(patch), repeatable=kind == "merge"
        )
        return self._decoded(answer, view)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        version: str = "",
        grace: int | None = None,
        propagation: str = "",
        missing_ok: bool = True,
    ) -> None:
        """Delete an object, conditional on ``uid`` and resource ``version`` if given; raise Conflict if they differ.

        ``grace`` is in seconds. ``propagation`` is Background, Foreground or Orphan. A missing object raises NotFound
        only if ``missing_ok`` is False.
        """
        options: dict[str, Any] = {}
        wanted = {"uid": uid, "resourceVersion": version}
        if uid or version:
            # Otherwise an object that was created again under the same name would be deleted in place of the known one.
            options["preconditions"] = {key: value for key, value in wanted.items() if value}
        if grace is not None:
            # 0 removes a pod from the API before its kubelet has confirmed the end.
            options["gracePeriodSeconds"] = grace
        if propagation:
            options["propagationPolicy"] = propagation
        path = item(resource, namespace, name)
        content = encoded(options) if options else b""
        try:
            await self._request(("delete", _counted(resource)), b"DELETE", path, JSON, content, repeatable=True)
        except NotFound:
            if not missing_ok:
                raise

    async def raw(
        self, method: str, path: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send a request to a path of the server; return the response body, raise ApiError for codes >= 300."""
        counted = (method.lower(), path.partition("?")[0])
        again = method == "GET"
        return await self._request(counted, method.encode(), path, b"", body, repeatable=again, extra=headers)

    # Streams

    async def watch(
        self, resource: Resource, namespace: str, parameters: Mapping[str, str], receiver: Protocol
    ) -> Callable[[], None]:
        """Start a watch (see ``stream``); ``parameters`` are query parameters besides ``watch``."""
        path = query(collection(resource, namespace), {"watch": "true", **parameters})
        return await self.stream(path, receiver, counted=("watch", _counted(resource)))

    async def stream(
        self, path: str, receiver: Protocol, *, counted: tuple[str, str] = ("get", "stream")
    ) -> Callable[[], None]:
        """GET a streamed response on a separate connection and deliver its body to ``receiver``.

        Returns, once the response headers arrived, a function that aborts the connection at once.
        Raises ApiError or Unreachable before.
        """
        renewed = False
        while True:
            self.requests[counted] += 1
            agent, abort = self._connections.stream_agent()
            try:
                response = await self._timed(agent.request(b"GET", self._base + path.encode("ascii"), self._head(b"")))
                if response.code < 300:
                    response.deliverBody(receiver)
                    return abort
                answer = await self._timed(self._answers.read(response))
            except CancelledError:
                abort()
                raise
            except Exception as error:
                abort()
                raise unreachable(self.config.server, _verb_of(counted), error) from error
            refusal = _refusal(response, answer)
            if renewed or not isinstance(refusal, Unauthorized) or not await self._renewed():
                raise refusal
            renewed = True

    def endpoint(self) -> ApiServerEndpoint:
        """Return an endpoint to the API server (TLS included), for connections that are upgraded from HTTP."""
        return self._connections.endpoint()

    def request_headers(self) -> Headers:
        """Return the headers (Host, credentials, user) for a request over ``endpoint``; they contain a secret."""
        return self._head(b"").copy()

    async def renew(self) -> bool:
        """Read the token again after a 401 response; return whether a retry makes sense."""
        return await self._renewed()

    def counting_writes(self) -> Client:
        """Return a client over the same connections, within the same limits, whose writes are counted apart."""
        (other := copy.copy(self)).written = Counter()
        return other

    # Interruptions

    def path_is_doubtful(self) -> None:
        """Drop idle connections after a missing response, so that the next request opens a new one."""
        self._connections.drop(self.clock.seconds(), idle=True)

    def path_is_new(self, since: float) -> None:
        """Abort connections made before ``since``, after the server answers again at the end of an interruption.

        TCP retransmits with exponential back-off (RFC 6298): an old connection may need as long again as the
        interruption lasted, and a watch whose connection the server has dropped stays silent. Requests in progress fail
        as on any broken connection, and informers restart their watches at once.
        """
        self.path_since.set(since)
        self._connections.drop(since, idle=False)

    async def close(self) -> None:
        """Close the pooled connections; later requests raise Unreachable."""
        self._closed = True
        await self._connections.close()

    # Sending a request

    async def _request(
        self,
        counted: tuple[str, str],
        method: bytes,
        path: str,
        content_type: bytes = b"",
        content: bytes = b"",
        *,
        repeatable: bool = False,
        extra: Mapping[str, str] | None = None,
    ) -> bytes:
        await self._slots.acquire(counted)
        try:
            renewed = False
            attempt = 0
            while True:
                self.requests[counted] += 1
                started = self.clock.seconds()
                try:
                    answer = await self._attempt(method, path, content_type, content, extra)
                    self._slots.answered(counted, self.clock.seconds() - started)
                    if self.written is not None and content and method != b"DELETE":
                        self.written[namespace_of(path)] += len(content)
                    return answer
                except Unauthorized:
                    if renewed or not await self._renewed():
                        raise
                    renewed = True
                    continue
                except (KubeError, CancelledError) as error:
                    pause = self._pause(error, attempt, repeatable)
                    if pause is None:
                        raise
                except Exception as error:
                    attempt_again = was_never_sent(error) or (repeatable and not is_tls_failure(error))
                    if not attempt_again or attempt + 1 >= TRIES or isinstance(error, TimedOut):
                        raise unreachable(self.config.server, _verb_of(counted), error) from error
                    pause = self._backoff.delay(attempt)
                attempt += 1
                await deferLater(self.clock, pause)
        finally:
            self._slots.release()

    def _pause(self, error: BaseException, attempt: int, repeatable: bool) -> float | None:
        """Return the seconds before the next attempt, or None to raise the error."""
        if attempt + 1 >= TRIES:
            return None
        if isinstance(error, Throttled):
            # A request throttled by API Priority and Fairness was not executed: any verb may be retried. Without
            # Retry-After the 429 has another cause (eviction against a PodDisruptionBudget): a retry here is useless.
            return error.retry_after if 0 < error.retry_after <= LONGEST_RETRY_AFTER else None
        if isinstance(error, ServerError) and repeatable and error.retry_after <= LONGEST_RETRY_AFTER:
            return max(error.retry_after, self._backoff.delay(attempt))
        return None

    async def _attempt(
        self, method: bytes, path: str, content_type: bytes, content: bytes, extra: Mapping[str, str] | None
    ) -> bytes:
        if self._closed:
            raise Unreachable(f"the client of {self.config.server} was closed")
        headers = self._head(content_type)
        if extra:
            headers = headers.copy()
            for name, value in extra.items():
                headers.setRawHeaders(name, [value])
        response, answer = await self._timed(self._exchange(method, path, headers, content))
        if response.code < 300:
            return answer
        raise _refusal(response, answer)

    async def _exchange(self, method: bytes, path: str, headers: Headers, content: bytes) -> tuple[IResponse, bytes]:
        body = Body(content) if content else None
        agent = self._connections.agent
        response = await agent.request(method, self._base + path.encode("ascii"), headers, body)
        return response, await self._answers.read(response)

    async def _timed(self, work: Coroutine[Any, Any, R] | Deferred[R]) -> R:
        """Await one exchange for at most ``timeout`` seconds; a cancellation is always raised as CancelledError."""
        pending = work if isinstance(work, Deferred) else Deferred.fromCoroutine(work)
        over = False

        def give_up() -> None:
            nonlocal over
            over = True
            pending.cancel()

        timer = self.clock.callLater(self.timeout, give_up)
        try:
            return await cancellable(pending)
        except Exception as error:
            if over:
                raise TimedOut(f"no answer within {self.timeout:g} s") from error
            raise
        finally:
            if timer.active():
                timer.cancel()

    def _head(self, content_type: bytes) -> Headers:
        """Return the headers for a content type; cached until the token changes."""
        token = self.config.token() if self.config.token is not None else ""
        if token != self._token:
            self._headers.clear()
            self._token = token
        headers = self._headers.get(content_type)
        if headers is None:
            headers = Headers(self._fixed)
            if content_type:
                headers.setRawHeaders(b"Content-Type", [content_type])
            if token:
                headers.setRawHeaders(b"Authorization", [b"Bearer " + token.encode()])
            self._headers[content_type] = headers
        return headers

    async def _renewed(self) -> bool:
        """Read the token again after a 401 response; return whether to try again."""
        renew = self.config.renew_token
        if renew is None:
            return False
        try:
            # An exec plugin of a kubeconfig runs a program: it must not hold up the reactor.
            if self.config.renewal_blocks:
                await deferToThread(renew)
            else:
                renew()
        except Exception as error:
            self._log.warn("no new token for {server}: {error}", server=self.config.server, error=error)
            return False
        return True

    def _decoded(self, answer: bytes, view: type[T] | None) -> T:
        if view is None:
            return cast(T, None)
        decode = self._decoders.get(view)
        if decode is None:
            decode = (
                decode_raw if view == ListPage[msgspec.Raw] else msgspec.json.Decoder(view, float_hook=number).decode
            )
            self._decoders[view] = decode
        if self._answers.strict and decode is not decode_raw and count_parts(answer) > MOST_PARTS:
            raise TooLarge(f"an answer of {self.config.server} has more than {MOST_PARTS} parts")
        try:
            return cast(T, decode(answer))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Undecodable(f"an answer of {self.config.server} is not what the API promises: {error}") from error


def _refusal(response: IResponse, answer: bytes) -> ApiError:
    error = from_status(response.code, answer)
    if isinstance(error, Throttled | ServerError):
        values = response.headers.getRawHeaders(b"Retry-After", ())
        # The field may also hold a date (RFC 9110, section 10.2.3); the API server sends seconds.
        if values and values[0].isdigit():
            error.retry_after = min(float(values[0][:6]), LONGEST_PAUSE)
    return error


def _counted(resource: Resource, subresource: str = "") -> str:
    return f"{resource.plural}/{subresource}" if subresource else resource.plural


def _verb_of(counted: tuple[str, str]) -> str:
    return " ".join(counted)
