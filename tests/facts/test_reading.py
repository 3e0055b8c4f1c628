"""What is there, what is not and what may not be read; what older API servers say about the network of Services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.protocol import Factory
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from liqod.facts.observed import CIDRS, KUBEADM, PLACES, POOLS
from liqod.facts.reading import HANDSHAKE_TIMEOUT, read_places, read_server_names, read_service_ranges
from liqod.kube.errors import ApiError, from_status
from liqod.kube.pages import Listing

REFUSAL = (
    'Service "x" is invalid: spec.clusterIPs: Invalid value: []string{{"{0}"}}: failed to allocate IP {0}: '
    "the provided IP ({0}) is not in the valid range. The range of valid IPs is {1}"
)
NO_SIX = (
    'Service "x" is invalid: spec.clusterIPs[0]: Invalid value: "2001:db8::1": IPv6 is not configured on this cluster'
)


@attrs.define
class Server:
    """An API server that answers to dry runs, by the IP version of the address."""

    answers: Mapping[int, ApiError | None]
    asked: list[str] = attrs.field(factory=list)

    async def create(self, resource: object, body: Mapping[str, Any], namespace: str, *, dry_run: bool) -> None:
        """Answer as the API server does."""
        assert dry_run and namespace == "liqo-system"
        address = body["spec"]["clusterIP"]
        self.asked.append(address)
        if (error := self.answers[6 if ":" in address else 4]) is not None:
            raise error


def refusal(code: int, message: str) -> ApiError:
    """Return the error for a Status."""
    return from_status(code, msgspec.json.encode({"kind": "Status", "code": code, "message": message}))


@attrs.define
class Objects:
    """An API server that holds one object of each name and kind, but for those that it answers otherwise about."""

    errors: Mapping[str, ApiError]

    async def get(self, resource: object, name: str, namespace: str) -> dict[str, Any]:
        """Return an object."""
        if (error := self.errors.get(name)) is not None:
            raise error
        return {"metadata": {"name": name}}

    async def list(self, resource: object) -> Listing[Any]:
        """Return all objects of a kind."""
        if (error := self.errors.get(str(resource))) is not None:
            raise error
        return Listing([{"spec": {}}], "1")


class PlacesTests(SynchronousTestCase):
    """Three answers, and no other is taken for one of them."""

    def test_answers(self) -> None:
        """404 is nothing there, 403 is no answer."""
        server: Any = Objects({str(POOLS.resource): refusal(404, "no such kind"), KUBEADM.name: refusal(403, "no")})
        found = self.successResultOf(Deferred.fromCoroutine(read_places(server)))
        self.assertEqual(set(PLACES) - set(found), {KUBEADM})
        self.assertEqual([place for place, body in found.items() if body is None], [POOLS])
        self.assertEqual(found[CIDRS], {"items": [{"spec": {}}]})

    def test_an_api_server_that_fails(self) -> None:
        """Anything else ends it: facts stay as they were, and nothing is concluded from the rest."""
        for code in (429, 500, 503):
            for name in (str(CIDRS.resource), KUBEADM.name):
                server: Any = Objects({name: refusal(code, "not now")})
                self.failureResultOf(Deferred.fromCoroutine(read_places(server)), ApiError)


@attrs.define
class Connections:
    """The way to an API server: a connection that ends after ``ends`` seconds without a certificate; None: none."""

    server: str = "https://192.0.2.1:6443"
    ends: float | None = None
    clock: Clock = attrs.field(factory=Clock)

    @property
    def config(self) -> Connections:
        """Return what has the URL."""
        return self

    def endpoint(self) -> Connections:
        """Return what connects."""
        return self

    def connect(self, factory: Factory) -> Deferred[Any]:
        """Connect, or fail to."""
        if self.ends is None:
            return fail(ConnectionRefusedError("nobody listens"))
        protocol: Any = factory.buildProtocol(IPv4Address("TCP", "192.0.2.1", 6443))
        self.clock.callLater(self.ends, protocol.connectionLost)
        return succeed(protocol)


class NamesTests(SynchronousTestCase):
    """What was not seen is not nothing."""

    def test_not_seen(self) -> None:
        """A connection that fails, ends or takes too long says nothing; without TLS there is no certificate."""
        for server, expected in (
            (Connections(), None),
            (Connections(ends=1.0), None),
            (Connections(ends=3 * HANDSHAKE_TIMEOUT), None),
            (Connections(server="http://192.0.2.1:8080"), ()),
        ):
            client: Any = server
            found = Deferred.fromCoroutine(read_server_names(client))
            server.clock.advance(HANDSHAKE_TIMEOUT)
            self.assertEqual(self.successResultOf(found), expected, server)


class RangeTests(SynchronousTestCase):
    """One question for each IP version."""

    def ranges(self, four: ApiError | None, six: ApiError | None) -> list[str] | None:
        """Return what is understood of two answers; None for nothing yet."""
        server: Any = Server({4: four, 6: six})
        found = self.successResultOf(Deferred.fromCoroutine(read_service_ranges(server, "liqo-system")))
        self.assertEqual(len(server.asked), 1 if found is None else 2)
        return None if found is None else list(found)

    def test_answers(self) -> None:
        """The range that is named counts; any other answer says nothing."""
        four = refusal(422, REFUSAL.format("192.0.2.1", "10.112.0.0/12"))
        six = refusal(422, REFUSAL.format("2001:db8::1", "fd00:96::/112"))
        self.assertEqual(self.ranges(four, six), ["10.112.0.0/12", "fd00:96::/112"])
        self.assertEqual(self.ranges(four, refusal(422, NO_SIX)), ["10.112.0.0/12"])
        worded = refusal(422, "failed to allocate an IP. The range of valid IPs is CIDR 10.96.0.0/12")
        self.assertEqual(self.ranges(worded, refusal(403, "forbidden")), ["10.96.0.0/12"])
        self.assertEqual(self.ranges(None, None), [])
        self.assertIsNone(self.ranges(refusal(403, "forbidden"), refusal(403, "forbidden")))

    def test_an_api_server_that_fails(self) -> None:
        """It says nothing about the networks: what was known before stays."""
        server: Any = Server({4: refusal(503, "etcd"), 6: None})
        self.failureResultOf(Deferred.fromCoroutine(read_service_ranges(server, "liqo-system")), ApiError)
