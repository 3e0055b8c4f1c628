"""The own cluster by its objects: ID, key and words."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import attrs

from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.session import Session
from liqod.identity.certs import common_name, fingerprint_of, read_certificates
from liqod.identity.fingerprint_words import words
from liqod.identity.store import CERTIFICATE, MAX_BYTES
from liqod.kube.errors import NotFound
from liqod.kube.resources import NAMESPACES, SECRETS
from liqod.model.objects.meta import Object
from liqod.model.records.rotation import IDENTITY_SECRET


@attrs.frozen
class ClusterIdentity:
    """The cluster's ID and key; fingerprint and words are empty while there is no key, or for a ``problem``.

    ``problem`` is why the certificate in the file that the settings name cannot be read; the daemon may read it.
    """

    cluster_id: str
    fingerprint: str = ""
    words: str = ""
    problem: str = ""

    @property
    def has_key(self) -> bool:
        """Whether the cluster has its key: a file that only the daemon can read counts."""
        return bool(self.fingerprint or self.problem)

    @property
    def missing_key(self) -> CliError:
        """The error of what needs the key where the fingerprint is empty."""
        if self.problem:
            message, hint = self.problem, "run this on the daemon's host, as a user who may read it"
        else:
            message, hint = "this cluster has no key yet", "start the daemon, which creates it, and try again"
        return CliError(errors.NO_IDENTITY, message, hint)


async def own_cluster(session: Session) -> ClusterIdentity:
    """Return the identity in this cluster's certificate, or the ID that the daemon will put into one.

    The certificate is in the file that the settings name, otherwise in the Secret that the daemon makes.
    """
    file = session.settings.identity.certificate
    try:
        certificate = read_certificates(_content(file) if file else await _in_secret(session))[0]
    except NotFound:
        return ClusterIdentity(await _future_id(session))
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", "") or str(error)).lower()
        problem = f"the certificate in {file} cannot be read: {why}" if file else ""
        return ClusterIdentity(await _future_id(session), problem=problem)
    fingerprint = fingerprint_of(certificate)
    return ClusterIdentity(common_name(certificate) or await _future_id(session), fingerprint, words(fingerprint))


def _content(file: str) -> bytes:
    with Path(file).expanduser().open("rb") as opened:
        return opened.read(MAX_BYTES)


async def _in_secret(session: Session) -> bytes:
    secret: dict[str, Any] = await session.client.get(SECRETS, IDENTITY_SECRET, session.settings.kubernetes.namespace)
    return base64.b64decode((secret.get("data") or {}).get(CERTIFICATE, ""), validate=True)


async def _future_id(session: Session) -> str:
    if session.settings.cluster.id:
        return session.settings.cluster.id
    system: Object = await session.client.get(NAMESPACES, "kube-system", view=Object)
    return system.metadata.uid
