"""What API servers of older releases say about the network of Services where they refuse an address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import msgspec
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from liqod.facts.reading import read_service_ranges
from liqod.kube.errors import ApiError, from_status

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


class RangeTests(SynchronousTestCase):
    """One question for each IP version."""

    def ranges(self, four: ApiError | None, six: ApiError | None) -> list[str]:
        """Return what is understood of two answers."""
        server: Any = Server({4: four, 6: six})
        found = self.successResultOf(Deferred.fromCoroutine(read_service_ranges(server, "liqo-system")))
        self.assertEqual(len(server.asked), 2)
        return list(found)

    def test_answers(self) -> None:
        """The range that is named counts; any other answer says nothing."""
        four = refusal(422, REFUSAL.format("192.0.2.1", "10.112.0.0/12"))
        six = refusal(422, REFUSAL.format("2001:db8::1", "fd00:96::/112"))
        self.assertEqual(self.ranges(four, six), ["10.112.0.0/12", "fd00:96::/112"])
        self.assertEqual(self.ranges(four, refusal(422, NO_SIX)), ["10.112.0.0/12"])
        worded = refusal(422, "failed to allocate an IP. The range of valid IPs is CIDR 10.96.0.0/12")
        self.assertEqual(self.ranges(worded, refusal(403, "forbidden")), ["10.96.0.0/12"])
        self.assertEqual(self.ranges(None, None), [])

    def test_an_api_server_that_fails(self) -> None:
        """It says nothing about the networks: what was known before stays."""
        server: Any = Server({4: refusal(503, "etcd"), 6: None})
        self.failureResultOf(Deferred.fromCoroutine(read_service_ranges(server, "liqo-system")), ApiError)
