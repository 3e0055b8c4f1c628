"""The own cluster by its objects: ID, key, words, and the leading daemon."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import attrs

from liqod.agent.account.names import LEASE
from liqod.cli.console.session import Session
from liqod.identity.certs import common_name, fingerprint_of, read_certificates
from liqod.identity.fingerprint_words import words
from liqod.kube.errors import NotFound
from liqod.kube.resources import LEASES, NAMESPACES, SECRETS
from liqod.model.objects.meta import Object
from liqod.model.records.rotation import IDENTITY_SECRET
from liqod.model.timestamps import parse_rfc3339


@attrs.frozen
class ClusterIdentity:
    """The cluster's ID and key; fingerprint and words are empty while there is no key."""

    cluster_id: str
    fingerprint: str = ""
    words: str = ""


@attrs.frozen
class Leader:
    """The holder of the daemon's lease; ``age`` is the time since its last renewal in seconds."""

    holder: str
    alive: bool
    age: float


async def own_cluster(session: Session) -> ClusterIdentity:
    """Return the identity in this cluster's certificate, or the ID that the daemon will put into one."""
    try:
        secret: dict[str, Any] = await session.client.get(
            SECRETS, IDENTITY_SECRET, session.settings.kubernetes.namespace
        )
        pem = base64.b64decode((secret.get("data") or {}).get("tls.crt", ""), validate=True)
        certificate = read_certificates(pem)[0]
    except (NotFound, ValueError):
        return ClusterIdentity(await _future_id(session))
    fingerprint = fingerprint_of(certificate)
    return ClusterIdentity(common_name(certificate) or await _future_id(session), fingerprint, words(fingerprint))


async def _future_id(session: Session) -> str:
    if session.settings.cluster.id:
        return session.settings.cluster.id
    system: Object = await session.client.get(NAMESPACES, "kube-system", view=Object)
    return system.metadata.uid


async def leader(session: Session) -> Leader | None:
    """Return the leader, or None without one."""
    try:
        lease: dict[str, Any] = await session.client.get(LEASES, LEASE, session.settings.kubernetes.namespace)
    except NotFound:
        return None
    spec = lease.get("spec") or {}
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    written = parse_rfc3339(renewed) if isinstance(renewed, str) else None
    if not holder or written is None:
        return None
    since = (datetime.now(UTC) - written).total_seconds()
    # Twice the lease duration, because the clocks of this host and of the daemon's may differ by seconds.
    return Leader(str(holder), since < 2 * float(spec.get("leaseDurationSeconds") or 15), since)
