"""Reads what facts are concluded from. What is not there and what may not be read are two answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cryptography import x509
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from liqod.facts.observed import PLACES, ObjectSelector
from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, Invalid, NotFound
from liqod.kube.resources import SERVICES

HANDSHAKE_TIMEOUT: Final = 10.0
"""Seconds that the API server may take to show its certificate."""
MAX_NAMES: Final = 64
"""Names of a certificate that are taken at most."""
OUTSIDE: Final = ("192.0.2.1", "2001:db8::1")
"""Addresses that no Service has, of either IP version."""
VALID_RANGE: Final = re.compile(r"range of valid IPs is (?:CIDR )?([0-9a-f.:]{3,39}/[0-9]{1,3})")
"""Source: Kubernetes 1.30, pkg/registry/core/service/ipallocator, ErrNotInRange."""


async def read_places(
    client: Client, places: Sequence[ObjectSelector] = PLACES
) -> dict[ObjectSelector, Mapping[str, Any] | None]:
    """Return the objects at these places: None for what is not there, no entry for what may not be read.

    A place without a name has its objects in ``items``, None where the kind is not served. Raises KubeError where the
    API server cannot be asked.
    """
    found: dict[ObjectSelector, Mapping[str, Any] | None] = {}
    for place in places:
        try:
            if place.name:
                found[place] = await client.get(place.resource, place.name, place.namespace)
            else:
                found[place] = {"items": (await client.list(place.resource)).items}
        except NotFound:
            found[place] = None
        except Forbidden:
            continue
    return found


async def read_service_ranges(client: Client, namespace: str) -> Sequence[str] | None:
    """Return the networks of Services, one for each IP version, that an API server without ServiceCIDRs names.

    It names the valid range where it refuses an address outside of it (Kubernetes before 1.33, --service-cluster-ip-
    range). Nothing is stored: it is asked by a dry run, for an address of the networks for documentation (RFC 5737, RFC
    3849). Empty where it says something else; None where it may not be asked (now).
    """
    found: list[str] = []
    for address in OUTSIDE:
        body = {
            "metadata": {"name": "liqod-service-range"},
            "spec": {"clusterIP": address, "ports": [{"port": 443}]},
        }
        try:
            await client.create(SERVICES, body, namespace, dry_run=True)
        except (Invalid, Forbidden, NotFound) as error:
            ranges = VALID_RANGE.findall(str(error))
            if not ranges and not isinstance(error, Invalid):
                # The second question would be refused as the first one.
                return found or None
            found += ranges
    return found


async def read_server_names(client: Client) -> Sequence[str] | None:
    """Return the names and addresses in the API server's certificate; None where it could not be seen now."""
    if not client.config.server.startswith("https:"):
        return ()
    try:
        shown: _Shown = await client.endpoint().connect(Factory.forProtocol(_Shown))
        return await shown.names.addTimeout(HANDSHAKE_TIMEOUT, client.clock)
    except Exception:
        # Whatever is wrong with the connection, every other request says it better.
        return None


@implementer(IHandshakeListener)
class _Shown(Protocol):
    """A connection that ends as soon as the other side has shown its certificate."""

    def __init__(self) -> None:
        self.names: Deferred[Sequence[str] | None] = Deferred()

    def handshakeCompleted(self) -> None:
        transport: Any = self.transport
        certificate = transport.getPeerCertificate()
        transport.loseConnection()
        self.names.callback(names_of(certificate.to_cryptography()) if certificate is not None else ())

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self.names.called:
            self.names.callback(None)


def names_of(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names and IP addresses that a certificate is for (RFC 5280, 4.2.1.6)."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    hosts = names.get_values_for_type(x509.DNSName)
    return [*hosts, *(str(one) for one in names.get_values_for_type(x509.IPAddress))][:MAX_NAMES]
