"""Obtains the listener's certificate from a signer of the cluster; until then it is self-signed.

An API server with ``--kubelet-certificate-authority`` accepts only kubelets whose certificate that CA signed, as the
signer ``kubernetes.io/kubelet-serving`` does; some providers have another one. No controller approves requests for this
signer automatically (Kubernetes, "Certificate Signing Requests"), so liqod approves its own if RBAC allows it. Other
API servers accept any certificate.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Final

from attrs import field, frozen
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from liqod.flow.clocks import WallClock, utc_now
from liqod.identity.serving import generate, request, validity
from liqod.kube.cache.informer import Informer
from liqod.kube.cache.wait import until
from liqod.kube.client import Client
from liqod.kube.errors import Forbidden, KubeError, NotFound
from liqod.kube.resources import Resource
from liqod.model.ids import Key
from liqod.model.objects.meta import Object, View

REQUESTS: Final = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", False
)
NAME: Final = "liqod-virtual-nodes"
LIFE: Final = 90 * 86400
"""Seconds that are asked for. A signer may give less (kube-controller-manager --cluster-signing-duration), the API
takes no less than 600 (CertificateSigningRequestSpec)."""
PATIENCE: Final = 30.0
"""Seconds within which a working signer signs an approved request."""
GIVE_UP: Final = 1800.0
RETRY: Final = 3600.0


@frozen
class Shown:
    """A certificate (PEM, followed by its chain) and its key, which ``repr`` never shows."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


class _Condition(View, frozen=True):
    type: str = ""
    message: str = ""


class _Status(View, frozen=True):
    certificate: str = ""
    conditions: list[_Condition] = []


class _Request(Object, frozen=True):
    status: _Status = _Status()


def self_signed(address: str, now: datetime) -> Shown:
    """Return a certificate signed by a CA of our own, valid for ``address``."""
    bundle = generate("liqod virtual nodes", [address or "localhost"], now)
    return Shown(bundle.certificate_pem + bundle.ca_pem, bundle.key_pem)


class NotSigned(KubeError):
    """Raised when the cluster did not sign; the text is the reason."""


class Certificate:
    """Obtains signed certificates for one address from a signer, by its name; ``show`` is called with each."""

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        client: Client,
        address: str,
        show: Callable[[Shown], None],
        *,
        signer: str,
        wall: WallClock = utc_now,
    ) -> None:
        self._clock = clock
        self._client = client
        self._address = address
        self._show = show
        self._signer = signer
        self._wall = wall
        self._logged = ""

    async def renew(self) -> float:
        """Obtain a signed certificate and install it; return the seconds until the next renewal.

        If the cluster does not sign, the current certificate is kept; each reason is logged once.
        """
        try:
            shown = await self._signed()
            begins, ends = validity(shown.certificate_pem)
            self._show(shown)
        except (KubeError, ValueError) as error:
            sentence = str(error)
            if sentence != self._logged:
                self._logged = sentence
                self._log.info(
                    "the cluster's signer for kubelets gave no certificate: {error}. Only an API server that was "
                    "started with --kubelet-certificate-authority needs one for logs and exec on virtual nodes",
                    error=sentence,
                )
            return RETRY
        self._logged = ""
        self._log.info("the API of virtual nodes shows a certificate that the cluster signed")
        left = (ends - max(begins, self._wall())).total_seconds()
        # Kubelets renew after 70 to 90 % of the life (client-go, util/certificate); here earlier, as approval may take
        # a person.
        return max(left * 2 / 3, 60.0)

    async def _signed(self) -> Shown:
        # The signer kubernetes.io/kubelet-serving signs only this organization, a CN with this prefix, and these usages
        # (pkg/apis/certificates/helpers.go).
        wanted, key = request(f"system:node:{NAME}", "system:nodes", [self._address])
        body = {
            # A request cannot be changed once it is signed, so each one is a new object; the API server chooses its
            # name.
            "metadata": {"generateName": f"{NAME}-"},
            "spec": {
                "request": base64.b64encode(wanted).decode("ascii"),
                "signerName": self._signer,
                "usages": ["digital signature", "server auth"],
                "expirationSeconds": LIFE,
            },
        }
        try:
            made = await self._client.create(REQUESTS, body, view=_Request)
        except NotFound:
            raise NotSigned("it takes no signing requests") from None
        name = made.metadata.name
        approved = await self._approve(name)
        certificate = await self._wait(name, approved)
        # The cluster would keep it for an hour, also where liqod is removed meanwhile.
        await self._drop(name)
        return Shown(certificate, key)

    async def _approve(self, name: str) -> bool:
        condition = {
            "type": "Approved",
            "status": "True",
            "reason": "LiqodVirtualNodes",
            "message": "requested by liqod for the API of its virtual nodes",
        }
        patch = {"status": {"conditions": [condition]}}
        try:
            await self._client.patch(REQUESTS, name, patch, subresource="approval", view=None)
        except Forbidden:
            self._log.warn(
                "the signing request {name} waits for approval: kubectl certificate approve {name}", name=name
            )
            return False
        return True

    async def _wait(self, name: str, approved: bool) -> bytes:
        """Wait for the certificate in a signing request by a watch of that object; raises NotSigned."""
        watch: Informer[_Request] = Informer(
            self._client, REQUESTS, _Request, self._clock, fields=f"metadata.name={name}"
        )
        watch.startService()
        signed = until(watch, lambda: _is_decided(watch.get(Key("", name))))
        signed.addTimeout(PATIENCE if approved else GIVE_UP, self._clock)
        try:
            await signed
            seen = watch.get(Key("", name))
        except DeferredTimeout:
            await self._drop(name)
            raise NotSigned("no signer answered" if approved else "nobody approved the signing request") from None
        finally:
            await maybeDeferred(watch.stopService)
        if seen is None:
            raise NotSigned(f"the signing request {name} was deleted before it was signed")
        for condition in seen.status.conditions:
            if condition.type in ("Denied", "Failed"):
                raise NotSigned(f"the signing request {name} was {condition.type.lower()}: {condition.message}")
        try:
            return base64.b64decode(seen.status.certificate, validate=True)
        except binascii.Error:
            raise NotSigned(f"the certificate in the signing request {name} is not base64") from None

    async def _drop(self, name: str) -> None:
        try:
            await self._client.delete(REQUESTS, name)
        except KubeError as error:
            self._log.debug("the signing request {name} was left: {error}", name=name, error=str(error))


def _is_decided(seen: _Request | None) -> bool:
    """Return whether a signing request has its final state: signed, denied, failed or deleted."""
    if seen is None or seen.status.certificate:
        return True
    return any(condition.type in ("Denied", "Failed") for condition in seen.status.conditions)
