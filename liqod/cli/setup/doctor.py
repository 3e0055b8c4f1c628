"""``doctor``: everything that is wrong with the peerings of a cluster, that contradicts itself, or will break."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from liqod.agent.account.names import ACCOUNTS, token_secret_of
from liqod.agent.host.clock_check import server_time
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, failed, good
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.peering.token import row_of
from liqod.cli.setup.definitions import definitions
from liqod.cli.status.cluster_records import as_finding
from liqod.cli.status.first_screen import first_screen
from liqod.config.schema import IdentitySettings
from liqod.hosting.tenants.quota.view import ResourceQuota
from liqod.identity.certs import read_certificates
from liqod.kube.connection.account_token import claims_of
from liqod.kube.connection.config import ClientConfig
from liqod.kube.errors import KubeError
from liqod.kube.resources import NAMESPACES, PODS, RESOURCEQUOTAS, SECRETS
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.diagnosis.consistency import CONTRADICTIONS, NETWORKS, ORPHANS, QUOTAS, QuotaFacts
from liqod.model.diagnosis.examination import Evidence, examine
from liqod.model.diagnosis.installation import CLOCK, CRDS, EXPIRES_SOON, KEYS, ClockFacts, SecretFacts, Unread
from liqod.model.diagnosis.kubernetes_release import KUBERNETES
from liqod.model.diagnosis.problem import DAEMON, PEERINGS, PROCESSES, WORKLOADS
from liqod.model.diagnosis.releases import PROTOCOLS
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects import quantity
from liqod.model.objects.meta import Object
from liqod.model.objects.pod import OCCUPYING_PODS, Pod, pod_requests
from liqod.model.objects.quantity import Resources
from liqod.model.records.invitations import TOKEN_LABEL

T = TypeVar("T")
ENDLESS: Final = frozenset(map(token_secret_of, ACCOUNTS))
"""Secrets that earlier versions had tokens without end made in."""


@click.command()
@click.option("--fix", is_flag=True, help="Repair what is safe to repair: expired pairing tokens are deleted.")
@cluster_options
def doctor(options: Options, fix: bool) -> None:
    """Find what is wrong, contradicts itself, or will break; each finding says what to do.

    Looks at the daemon's processes, peers, pods that do not run, networks, orphaned objects, certificates, quotas,
    clocks and versions.

    \b
    Examples:
      liqodctl doctor
      liqodctl doctor --fix
    """

    async def work(session: Session) -> list[Finding]:
        done: list[Finding] = []
        evidence = await _evidence(session, done if fix else None)
        return [*done, *findings(evidence)]

    found = in_cluster(options, work)
    Output(options).report(found)
    if failed(found):
        raise CliError(errors.CHECK, "something is wrong", "follow the hints above; `liqodctl explain CODE` says more")


TOPICS: Final = (
    DAEMON,
    PROCESSES,
    PEERINGS,
    WORKLOADS,
    CONTRADICTIONS,
    NETWORKS,
    ORPHANS,
    QUOTAS,
    KEYS,
    CLOCK,
    CRDS,
    KUBERNETES,
    PROTOCOLS,
)
"""The order in which they are shown."""


def findings(evidence: Evidence) -> list[Finding]:
    """Return what the diagnosis finds, and what it found in order. Pure."""
    diagnosis = examine(evidence)
    shown = [as_finding(one) for one in diagnosis.problems if one.failing]
    shown += [good(one.topic, one.text) for one in diagnosis.passed]
    return sorted(shown, key=lambda finding: TOPICS.index(finding.group))


async def _evidence(session: Session, fixed: list[Finding] | None) -> Evidence:
    """Read all that the diagnosis takes; what cannot be read is named. ``fixed`` collects what was repaired."""
    unread: list[Unread] = []

    async def read(topic: str, reading: Awaitable[T]) -> T | None:
        try:
            return await reading
        except KubeError as error:
            shown = errors.from_kube(error, session.client.config.server)
            unread.append(Unread(topic, f"{shown.code}: {shown.message}", shown.hint))
            return None

    screen = await first_screen(session, counts=False)
    records = screen.facts
    unread += screen.unread
    spaces = await read(ORPHANS, _spaces(session))
    return Evidence(
        records=records,
        spaces=spaces,
        quotas=await read(QUOTAS, _quotas(session, spaces or ())) or (),
        used=await read(QUOTAS, _used(session, records)),
        secrets=await read(KEYS, _secrets(session, fixed)),
        clock=await read(CLOCK, _clock(session)),
        definitions=await read(CRDS, definitions(session)),
        kubernetes=await read(KUBERNETES, session.client.version.get()),
        now=datetime.now(UTC),
        unread=unread,
    )


async def _spaces(session: Session) -> Sequence[Object]:
    return (await session.client.list(NAMESPACES, view=Object, labels=REMOTE_CLUSTER_LABEL)).items


async def _used(session: Session, facts: ClusterRecords) -> dict[str, Resources]:
    """Return what pods request on each virtual node; a node is absent where that cannot be added up."""
    found: dict[str, Resources] = {}
    for node in facts.nodes:
        name = node.metadata.name
        pods = (await session.client.list(PODS, view=Pod, fields=f"spec.nodeName={name},{OCCUPYING_PODS}")).items
        with contextlib.suppress(ValueError):
            found[name] = quantity.add(pod_requests(pod.spec) for pod in pods)
    return found


async def _quotas(session: Session, spaces: Sequence[Object]) -> list[QuotaFacts]:
    """Return the quotas of the namespaces of tenants; one that cannot be added up is left out."""
    names = {one.metadata.name for one in spaces}
    found = []
    for quota in (await session.client.list(RESOURCEQUOTAS, view=ResourceQuota)).items if names else ():
        meta = quota.metadata
        if meta.namespace in names:
            with contextlib.suppress(ValueError):
                hard, used = quantity.parse_all(quota.spec.hard), quantity.parse_all(quota.status.used)
                found.append(QuotaFacts(meta.namespace, meta.name, hard, used))
    return found


def of_files(settings: IdentitySettings) -> list[SecretFacts]:
    """Return the certificates in the files that the settings name; those of another host or user are left out."""
    found = []
    for file in filter(None, (settings.certificate, settings.ca)):
        with contextlib.suppress(OSError, ValueError):
            ends = [one.not_valid_after_utc for one in read_certificates(Path(file).read_bytes())]
            found.append(SecretFacts(name=file, certificate_end=min(ends)))
    return found


def of_kubeconfig(config: ClientConfig) -> SecretFacts:
    """Return when the certificate in a kubeconfig ends, and a token that was made for long: others are renewed."""
    certificate = token = None
    if config.client_cert_pem:
        with contextlib.suppress(ValueError):
            certificate = min(one.not_valid_after_utc for one in read_certificates(config.client_cert_pem))
    claims = claims_of(config.token()) if config.token is not None else None
    if claims is not None and claims.expires and claims.expires - claims.issued > EXPIRES_SOON.total_seconds():
        token = datetime.fromtimestamp(claims.expires, UTC)
    return SecretFacts(name="your kubeconfig", certificate_end=certificate, token_end=token)


async def _secrets(session: Session, fixed: list[Finding] | None) -> list[SecretFacts]:
    namespace = session.settings.kubernetes.namespace
    bodies: list[dict[str, Any]] = (await session.client.list(SECRETS, namespace)).items
    found = [*of_files(session.settings.identity), of_kubeconfig(session.client.config)]
    for body in bodies:
        name = body["metadata"]["name"]
        if TOKEN_LABEL not in (body["metadata"].get("labels") or {}):
            end = expiry((body.get("data") or {}).get("tls.crt", ""))
            found.append(SecretFacts(name=name, certificate_end=end, endless_token=name in ENDLESS))
        elif row_of(body)["state"] == "expired":
            if fixed is None:
                found.append(SecretFacts(name=name, expired_token=True))
            else:
                await session.client.delete(SECRETS, name, namespace)
                fixed.append(good(KEYS, f"the expired pairing token {name} was deleted"))
    return found


async def _clock(session: Session) -> ClockFacts:
    now = await server_time(session.client)
    return ClockFacts(None if now is None else (datetime.now(UTC) - now).total_seconds())


def expiry(encoded: str) -> datetime | None:
    """Return when the certificate in a Secret ends; None where there is none. Pure."""
    try:
        return read_certificates(base64.b64decode(encoded))[0].not_valid_after_utc
    except ValueError:
        return None
