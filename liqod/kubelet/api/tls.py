"""The TLS configuration of the listener: its certificate, and the CAs of client certificates.

OpenSSL verifies client certificates during the handshake, so after it a client has either a valid certificate or none.
A caller without one can use a bearer token.
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
class ServingTls:
    """The TLS options of new connections; certificate and client CAs can be replaced at any time."""

    def __init__(self, certificate_pem: bytes, key_pem: bytes) -> None:
        self._authorities: list[Any] = []
        self.show(certificate_pem, key_pem)

    def show(self, certificate_pem: bytes, key_pem: bytes) -> None:
        """Use another certificate (PEM, followed by its chain) for new connections; raises ValueError."""
        try:
            self._own = ssl.PrivateCertificate.loadPEM(key_pem + b"\n" + certificate_pem)
            self._chain = [ssl.Certificate.loadPEM(pem).original for pem in _PEM.findall(certificate_pem)[1:]]
        except Exception as error:
            raise ValueError(f"the certificate or its key cannot be read ({type(error).__name__})") from None
        self._renew()

    def trust(self, ca_pem: bytes) -> None:
        """Accept client certificates signed by these CAs (empty: none) on new connections; raises ValueError."""
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
            # A resumed TLS session skips the verification of the client's certificate, although the CA may be removed.
            enableSessions=False,
            acceptableProtocols=[b"http/1.1"],
            **extra,
        )

    def getContext(self) -> Any:
        return self._options.getContext()


def client_certificate(transport: object) -> x509.Certificate | None:
    """Return the verified client certificate of a connection; None without one."""
    shown: Any = getattr(transport, "getPeerCertificate", lambda: None)()
    return None if shown is None else shown.to_cryptography()
