"""The certificate of the pages: from files, or one that the daemons of a cluster have in common.

The common one is of a CA in the Secret ``liqod-metrics``, and of one name, whichever daemon shows it: a scraper takes
``ca.crt`` from there and expects that name. Until the first was read a certificate is shown that nobody trusts, which
is enough for the probes of a kubelet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet import ssl
from twisted.internet.interfaces import IOpenSSLContextFactory, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from liqod.flow.clocks import WallClock
from liqod.flow.errors import ExpectedError
from liqod.flow.tasks import Tasks
from liqod.identity.serving import Bundle, from_data, generate, is_due, to_data, validity
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, NotFound
from liqod.kube.resources import SECRETS

SECRET: Final = "liqod-metrics"  # noqa: S105 (a name, not a secret)
COMMON_NAME: Final = "liqod metrics"
CHECK: Final = 60.0
CHECK_SECRET: Final = 3600.0
"""Seconds between two looks at the Secret, whose certificate is renewed a month before it ends."""
RETRY: Final = 10.0
"""Seconds after which what could not be read is read again."""
MAX_FILE: Final = 1 << 20
_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\s*", re.DOTALL)


@attrs.frozen
class Shown:
    """A certificate (PEM, followed by its chain) and its key, which ``repr`` never shows."""

    certificate_pem: bytes
    key_pem: bytes = attrs.field(repr=False)


class NotYet(ExpectedError):
    """There is no certificate yet because the daemon has not begun: nothing is wrong."""


def name_in(namespace: str) -> str:
    """Return the name in the common certificate: that of a Service of liqod's namespace."""
    return f"{SECRET}.{namespace}.svc"


@attrs.frozen
class Files:
    """A certificate in files, as an administrator or cert-manager writes them."""

    certificate: str
    key: str

    @property
    def pause(self) -> float:
        """Seconds until the next look: somebody else renews files."""
        return CHECK

    async def read(self) -> Shown:
        """Return what is in the files; raises OSError."""
        return Shown(_content(self.certificate), _content(self.key))


@attrs.frozen
class Common:
    """The certificate that all daemons of a cluster show; ``client`` returns None while the cluster is not prepared."""

    client: Callable[[], Client | None]
    namespace: str
    wall: WallClock

    @property
    def pause(self) -> float:
        """Seconds until the next look."""
        return CHECK_SECRET

    async def read(self) -> Shown:
        """Return the certificate, which is made or renewed where it is due; raises KubeError and NotYet."""
        client = self.client()
        if client is None:
            raise NotYet("this cluster is not prepared yet")
        bundle = await self._bundle(client)
        return Shown(bundle.certificate_pem + bundle.ca_pem, bundle.key_pem)

    async def _bundle(self, client: Client) -> Bundle:
        now, hosts = self.wall(), [name_in(self.namespace)]
        try:
            secret = await client.get(SECRETS, SECRET, self.namespace)
        except NotFound:
            bundle = generate(COMMON_NAME, hosts, now)
            body = {"metadata": {"name": SECRET}, "type": "Opaque", "data": to_data(bundle)}
            try:
                await client.create(SECRETS, body, self.namespace, view=None)
            except AlreadyExists:  # 409: another daemon of the cluster created it first
                return await self._bundle(client)
            return bundle
        try:
            former: Bundle | None = from_data(secret.get("data") or {})
        except ValueError:
            former = None
        if former is not None and not is_due(former, hosts, now):
            return former
        bundle = generate(COMMON_NAME, hosts, now, former)
        # The resource version makes this conditional (409 for the second): of several daemons only one renews.
        await client.replace(SECRETS, {**secret, "data": to_data(bundle)}, SECRET, self.namespace, view=None)
        return bundle


@implementer(IOpenSSLContextFactory)
class ServingCertificate(MultiService):
    """What new connections are shown, kept up to date while this service runs."""

    _log = Logger()

    def __init__(self, clock: IReactorTime, source: Files | Common, namespace: str, wall: WallClock) -> None:
        super().__init__()
        self._clock = clock
        self._source = source
        self._logged = ""
        self.ends: datetime | None = None
        """When the certificate ends; None while it is the first one, which nobody trusts."""
        first = generate(COMMON_NAME, [name_in(namespace)], wall())
        self._shown = Shown(first.certificate_pem, first.key_pem)
        self._options = _options(self._shown)
        self._tasks = Tasks()
        self._tasks.setServiceParent(self)

    def getContext(self) -> Any:
        """Return what a new connection is made with."""
        return self._options.getContext()

    def startService(self) -> None:
        super().startService()
        self._tasks.spawn(self._keep(), "keeping the certificate of the metrics")

    async def _keep(self) -> None:
        while self.running:
            await deferLater(self._clock, self._source.pause if await self._renewed() else RETRY)

    async def _renewed(self) -> bool:
        """Show what is to be shown now; return whether it could be read."""
        try:
            self._show(await self._source.read())
        except NotYet:
            return False
        except (ExpectedError, OSError, ValueError) as error:
            if (sentence := str(error)) != self._logged:
                self._logged = sentence
                self._log.warn("the certificate of the metrics stays as it is: {error}; tried again", error=sentence)
            return False
        self._logged = ""
        return True

    def _show(self, shown: Shown) -> None:
        if shown == self._shown:
            return
        self._options = _options(shown)
        self._shown = shown
        self.ends = validity(shown.certificate_pem)[1]


def _content(name: str) -> bytes:
    with Path(name).expanduser().open("rb") as file:
        content = file.read(MAX_FILE + 1)
    if len(content) > MAX_FILE:
        raise ValueError(f"{name} is larger than 1 MiB, which no certificate is")
    return content


def _options(shown: Shown) -> ssl.CertificateOptions:
    """Return the options of connections; raises ValueError for what is no certificate with its key."""
    try:
        own = ssl.PrivateCertificate.loadPEM(shown.key_pem + b"\n" + shown.certificate_pem)
        chain = [ssl.Certificate.loadPEM(pem).original for pem in _PEM.findall(shown.certificate_pem)[1:]]
        options = ssl.CertificateOptions(
            privateKey=own.privateKey.original,
            certificate=own.original,
            extraCertChain=chain,
            enableSessions=False,
            acceptableProtocols=[b"http/1.1"],
        )
        options.getContext()  # refuses a key that is not the certificate's
    except Exception as error:  # malformed input makes the library raise undocumented exceptions
        raise ValueError(f"certificate or key cannot be used ({type(error).__name__})") from None
    return options
