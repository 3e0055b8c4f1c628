"""The TLS side of the listener: which certificate it shows, and whose client certificates it takes.

Certificates that clients show are verified by TLS itself, so that a handshake that completes means either a good one or
none. A caller without one may still have a token.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cryptography import x509
from twisted.internet import ssl
from twisted.internet.interfaces import IOpenSSLContextFactory
from zope.interface import implementer

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\s*", re.DOTALL)


@implementer(IOpenSSLContextFactory)
class Serving:
    """What new connections are shown and asked for; both can be replaced at any time."""

    def __init__(self, certificate_pem: bytes, key_pem: bytes) -> None:
        self._authorities: list[Any] = []
        self.show(certificate_pem, key_pem)

    def show(self, certificate_pem: bytes, key_pem: bytes) -> None:
        """Show another certificate (with the chain behind it) from the next connection on; raises ValueError."""
        try:
            self._own = ssl.PrivateCertificate.loadPEM(key_pem + b"\n" + certificate_pem)
            self._chain = [ssl.Certificate.loadPEM(pem).original for pem in _PEM.findall(certificate_pem)[1:]]
        except Exception as error:
            raise ValueError(f"the certificate or its key cannot be read ({type(error).__name__})") from None
        self._renew()

    def trust(self, ca_pem: bytes) -> None:
        """Take client certificates signed by these authorities (none: take none); raises ValueError."""
        try:
            self._authorities = [ssl.Certificate.loadPEM(pem).original for pem in _PEM.findall(ca_pem)]
        except Exception as error:
            raise ValueError(f"the client CA cannot be read ({type(error).__name__})") from None
        self._renew()

    def _renew(self) -> None:
        extra: dict[str, Any] = {}
        if self._authorities:
            extra = {"verify": True, "requireCertificate": False, "caCerts": self._authorities}
        self._options = ssl.CertificateOptions(
            privateKey=self._own.privateKey.original,
            certificate=self._own.original,
            extraCertChain=self._chain,
            # A resumed session would remember a client that is no longer trusted.
            enableSessions=False,
            acceptableProtocols=[b"http/1.1"],
            **extra,
        )

    def getContext(self) -> Any:
        return self._options.getContext()


def client_certificate(transport: object) -> x509.Certificate | None:
    """Return the verified certificate of the other end of a connection, if it showed one."""
    shown: Any = getattr(transport, "getPeerCertificate", lambda: None)()
    return None if shown is None else shown.to_cryptography()
