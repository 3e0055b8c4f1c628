"""The HTTPS side of the webhook: bounded bodies in, answers of ``review`` out, a certificate that can change."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from twisted.internet import ssl
from twisted.internet.interfaces import IOpenSSLContextFactory, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import Request
from zope.interface import implementer

from liqod.flow.connections.admission import source_of
from liqod.flow.connections.factories import QuietSite
from liqod.flow.connections.handshake import LimitedFactory, host_of, https, rest, serve
from liqod.identity.serving import Bundle
from liqod.webhook.bodies import Bodies, Reviews
from liqod.webhook.review import MAX_BODY, MalformedReview, Policies, answer

PATH: Final = "/mutate/pod"
IDLE: Final = 90.0
"""Seconds that an unused connection is kept: API servers keep theirs."""


# Without a body, and with Connection: close, as the rest of the request is not read (RFC 9110, section 15.5.14).
REFUSAL: Final = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@implementer(IOpenSSLContextFactory)
class ServingCertificate:
    """The certificate that new connections are shown; it can be replaced at any time."""

    def __init__(self, bundle: Bundle) -> None:
        self.replace(bundle)

    def replace(self, bundle: Bundle) -> None:
        """Show another certificate from the next connection on."""
        self._options = ssl.PrivateCertificate.loadPEM(bundle.key_pem + bundle.certificate_pem).options()

    def getContext(self) -> Any:
        return self._options.getContext()


class Mutate(Resource):
    """Answers POST of an AdmissionReview; any other request gets an error message."""

    isLeaf = True
    _log = Logger()

    def __init__(
        self, policies: Policies, prepared: Callable[[], bool], evict_after: float, is_enabled: Callable[[str], bool]
    ) -> None:
        super().__init__()
        self._policies = policies
        self._evict_after = evict_after
        self._prepared = prepared
        self._is_enabled = is_enabled

    def render(self, request: Request) -> bytes:
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        if request.path != PATH.encode():
            request.setResponseCode(404)
            return f"only {PATH} is served here\n".encode()
        if request.method != b"POST":
            request.setResponseCode(405)
            request.setHeader(b"allow", b"POST")
            return b"an AdmissionReview is to be sent by POST\n"
        if not self._prepared():
            # With failurePolicy Ignore the API server admits the pod unchanged; the backfill finds it afterwards.
            request.setResponseCode(503)
            return b"what namespaces want is not known yet\n"
        try:
            body = request.content.read(MAX_BODY + 1) if request.content is not None else b""
            answered = answer(body, self._policies, self._evict_after, self._is_enabled)
        except MalformedReview as error:
            request.setResponseCode(400)
            return f"{error}\n".encode()
        except Exception:
            self._log.failure("answering an admission review failed")
            request.setResponseCode(500)
            return b"the webhook failed on this review; its log tells why\n"
        request.setHeader(b"content-type", b"application/json")
        return answered


class Bounded(Request):
    """A request with a bounded body: one above the limit is refused before it is buffered.

    ``bodies`` are those of all requests, of which there may be so much at a time, and ``reviews`` so many a second.
    """

    _received = 0
    _held = 0
    _refused = False

    def __init__(self, *args: Any, bodies: Bodies, reviews: Reviews) -> None:
        super().__init__(*args)
        self._bodies = bodies
        self._reviews = reviews
        self._source = source_of(host_of(self.channel.getPeer()))

    def gotLength(self, length: int | None) -> None:
        if length is not None and length > MAX_BODY:
            self._refuse(REFUSAL)
        else:
            super().gotLength(length)

    def handleContentChunk(self, data: bytes) -> None:
        # A chunked body (RFC 9112, section 7.1) has no length in advance, so the bytes are counted.
        self._received += len(data)
        if self._refused:
            return
        if self._received > MAX_BODY:
            self._refuse(REFUSAL)
        elif not self._bodies.take(self._source, len(data)):
            self._refuse(BUSY)
        else:
            self._held += len(data)
            super().handleContentChunk(data)

    def connectionLost(self, reason: Failure) -> None:
        self._release()
        super().connectionLost(reason)

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        # Twisted's own method parses cookies and form bodies, which costs as much as the whole answer.
        if self._refused or self.content is None:
            return
        if not self._reviews.admit(self._source):
            self._refuse(BUSY)
            return
        self.content.seek(0, 0)
        self.method, self.uri, self.clientproto = command, path, version
        self.path = path.partition(b"?")[0]
        self.args = {}
        transport = self.channel.transport
        serve(transport)
        self._release()
        self.process()
        rest(transport)

    def _release(self) -> None:
        self._bodies.release(self._source, self._held)
        self._held = 0

    def _refuse(self, answer: bytes) -> None:
        self._refused = True
        self._release()
        transport = self.channel.transport
        if transport is not None:
            transport.write(answer)
            # The rest of the body is not read, so the connection cannot serve a further request (RFC 9112, section
            # 9.3).
            self.channel.loseConnection()


def factory(
    serving: ServingCertificate,
    clock: IReactorTime,
    policies: Policies,
    prepared: Callable[[], bool],
    evict_after: float = 0.0,
    *,
    is_enabled: Callable[[str], bool] = lambda _: True,
    refused: Callable[[str, str, str], None],
    reviews: Reviews | None = None,
) -> LimitedFactory:
    """Return the protocol factory: HTTP over TLS.

    ``prepared`` returns whether the offloading policies are known; ``evict_after``: seconds for which pods that can
    only run on virtual nodes tolerate an unreachable one (0: forever).
    """
    mutate = Mutate(policies, prepared, evict_after, is_enabled)
    return https(serving, site(mutate, clock, reviews or Reviews(clock, refused)), clock, refused)


def site(resource: Resource, clock: IReactorTime, reviews: Reviews) -> QuietSite:
    """Return the factory behind TLS: HTTP with bounded bodies, so many a second."""
    requests: Any = partial(Bounded, bodies=Bodies(), reviews=reviews)
    return QuietSite(resource, requestFactory=requests, timeout=IDLE, reactor=clock)
