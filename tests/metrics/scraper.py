"""A scraper of the pages over TLS, as Prometheus is one: with a CA, a server name and a bearer token."""

from __future__ import annotations

from typing import Any

import attrs
from twisted.internet import reactor, ssl
from twisted.internet.endpoints import TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.web.client import Agent, HTTPConnectionPool, readBody
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

REACTOR: Any = reactor
HERE = "127.0.0.1"


@implementer(IAgentEndpointFactory)
@attrs.frozen
class _ToPort:
    port: int
    options: Any

    def endpointForURI(self, uri: Any) -> IStreamClientEndpoint:
        return wrapClientTLS(self.options, TCP4ClientEndpoint(REACTOR, HERE, self.port))


@attrs.frozen
class Scraper:
    """Asks the pages at a port of this host; ``ca`` empty: whatever certificate is shown is taken."""

    port: int
    name: str = ""
    ca: bytes = b""

    async def get(self, path: str, token: str = "", **headers: str) -> tuple[int, str]:
        """Return code and body; raises what TLS raises where the certificate is not the one that is trusted."""
        options: Any = ssl.CertificateOptions(verify=False)
        if self.ca:
            options = ssl.optionsForClientTLS(self.name, trustRoot=ssl.Certificate.loadPEM(self.ca))
        sent = {"Authorization": [f"Bearer {token}"]} if token else {}
        sent |= {name: [value] for name, value in headers.items()}
        pool = HTTPConnectionPool(REACTOR, persistent=False)
        agent = Agent.usingEndpointFactory(REACTOR, _ToPort(self.port, options), pool)
        response = await agent.request(b"GET", f"https://pages{path}".encode(), Headers(sent))
        return response.code, (await readBody(response)).decode()
