"""Looks at a host and its cluster for ``up``; changes nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import attrs
import click

from liqod.agent.account import rights
from liqod.agent.account.names import account_of
from liqod.agent.account.rights import Right
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding
from liqod.cli.console.records import RecordingClient
from liqod.cli.console.session import Session
from liqod.cli.peering.peer import refuse_key
from liqod.cli.peering.probe_peer import probe_peer
from liqod.cli.setup.account import kubeconfig, token_file
from liqod.cli.setup.check import RIGHTS, examine
from liqod.cli.setup.definitions import downgrade
from liqod.cli.setup.host import apply
from liqod.cli.setup.host.commands import lines, planned
from liqod.cli.setup.host.plan import HostPlan, plan_installation
from liqod.cli.setup.host.wanted import KUBECONFIGS, ROLES, UNITS, HostFile, digest_of
from liqod.cli.setup.install import ensure_objects
from liqod.cli.setup.surroundings.other_form import daemon_pods, no_host
from liqod.cli.setup.up.plan import Credentials, DaemonUnit, FoundSetup, Invitation, Kubeconfig, credentials
from liqod.cli.setup.up.service import Services
from liqod.cli.status.peers import label
from liqod.cli.status.whoami import own_cluster
from liqod.config.schema import Settings
from liqod.identity.pairing import Token
from liqod.kube.client import Client
from liqod.kube.connection import config as kube_config
from liqod.kube.connection.account_token import AccountToken, claims_of
from liqod.kube.connection.config import ClientConfig
from liqod.kube.errors import KubeError, NotFound, Unauthorized
from liqod.kube.resources import FOREIGNCLUSTERS, NAMESPACES, SERVICEACCOUNTS
from liqod.model.objects.meta import is_true
from liqod.model.records.views import ForeignCluster

PROBE_TIMEOUT: Final = 5.0
"""Seconds that the other cluster may take to answer at one of the addresses in its token."""
PACKAGED_UNITS: Final = ("/lib/systemd/system", "/usr/lib/systemd/system")
"""Where packages put their units (file-hierarchy(7)); one in /etc would hide it."""
HERE: Final = ("Ports", "Network")
"""The checks of this host, which a daemon that runs, another host's directory and a cluster's pods need not pass."""
SHOWN: Final = 3
"""How many of the rights that are lacking are named: who is no administrator lacks a hundred."""


@attrs.frozen
class TargetHost:
    """The host that is set up: root directory, environment of liqod, and what runs services where it is this host."""

    program: click.Command
    root: Path = Path("/")
    prefix: str = sys.prefix
    services: Services | None = None

    def at(self, path: str) -> Path:
        """Return a path of the host as it is reached from here."""
        return self.root / path.lstrip("/")


@attrs.frozen
class ClusterWrites:
    """What a run would write to the cluster: a line for each object, and the rights that this takes."""

    lines: Sequence[str]
    rights: Sequence[Right]

    @classmethod
    def of(cls, client: RecordingClient) -> ClusterWrites:
        """Return what a client has recorded."""
        wanted = [Right(verb, kind, name=name, namespace=where) for verb, kind, where, name in client.writes]
        return cls(client.touched, list(dict.fromkeys(wanted)))


@attrs.frozen
class Observation:
    """What was found, with the files that belong on the host and the plan for them."""

    found: FoundSetup
    entries: Sequence[HostFile]
    files: HostPlan


def kubeconfig_path(session: Session) -> str:
    """Return where the daemon reads its kubeconfig: as configured, else as its unit says."""
    configured = session.settings.kubernetes.kubeconfig
    return configured or KUBECONFIGS[session.settings.daemon.role]


async def look(session: Session, place: TargetHost, token: Token | None) -> Observation:
    """Return what there is of an installation. Raises CliError where the host cannot be read, or KubeError."""
    role = session.settings.daemon.role
    packaged = any(place.at(f"{units}/{ROLES[role]}").exists() for units in PACKAGED_UNITS)
    entries: Sequence[HostFile] = []
    if packaged:
        files = plan_installation([], apply.observe(place.root, []), [])
    else:
        entries, files = planned(place.program, place.root, place.prefix, [role])
    obstacles = [*apply.preflight(place.root, place.prefix, files), *files.refusals]
    unit = ROLES[role]
    service = place.services.look(unit) if place.services is not None else None
    only_cluster = place.services is None or (service is not None and service.running)
    failed = unmet([one async for one in examine(session, pre=True)], HERE if only_cluster else ())
    if failed:
        there = Kubeconfig(kubeconfig_path(session))
        found = FoundSetup(kubeconfig=there, failed=failed, obstacles=obstacles, files=lines(files), service=service)
        return Observation(found, entries, files)
    changed = {change.path for change in files.changes if change.verb == "replace"}
    objects, kept = await _objects(session), await _kubeconfig(session, place)
    wanted = [*objects.rights, *(_for_token(session.settings) if credentials(kept).state == "needed" else ())]
    found = FoundSetup(
        kubeconfig=kept,
        failed=[*await lacking(session, wanted), *await leaving(session), *filter(None, [await downgrade(session)])],
        obstacles=[*obstacles, *no_host(await daemon_pods(session))],
        files=lines(files),
        objects=objects.lines,
        packaged=packaged,
        outdated=f"{UNITS}/{unit}" in changed or _is_outdated(session, place, service),
        service=service,
        keyed=(await own_cluster(session)).has_key,
        invitation=await invitation(session, token) if token is not None else None,
    )
    return Observation(found, entries, files)


def unmet(findings: Sequence[Finding], besides: Collection[str]) -> list[str]:
    """Return a line for each prerequisite that is missing, besides those of some groups. Pure."""
    bad = [one for one in findings if one.verdict == "bad" and one.group not in besides]
    lines = [f"{one.group}: {one.text}; {one.hint}" for one in bad if one.group != RIGHTS]
    if lacking := [one.text for one in bad if one.group == RIGHTS]:
        more = f", and {len(lacking) - SHOWN} more" if len(lacking) > SHOWN else ""
        named = ", ".join(lacking[:SHOWN])
        lines.append(f"{RIGHTS}: this kubeconfig's user {named}{more}; use an administrator's with --kubeconfig")
    return lines


def _is_outdated(session: Session, place: TargetHost, service: DaemonUnit | None) -> bool:
    """Return whether the unit or the kubeconfig was written after the process was started."""
    if service is None or not service.running:
        return False
    files = [place.at(path) for path in (f"{UNITS}/{service.unit}", kubeconfig_path(session))]
    written = max((file.stat().st_mtime for file in files if file.is_file()), default=0.0)
    return time.time() - written < service.age


async def _objects(session: Session) -> ClusterWrites:
    """Return what `install` would write to the cluster."""
    client = RecordingClient(session.client.config, session.reactor, user_agent="liqodctl")
    try:
        async for _ in ensure_objects(attrs.evolve(session, client=client)):
            pass
    finally:
        await client.close()
    return ClusterWrites.of(client)


def _for_token(settings: Settings) -> list[Right]:
    """Return what it takes to give the daemon a token of its account."""
    own, name = settings.kubernetes.namespace, account_of(settings.daemon.role)
    return [
        Right("create", SERVICEACCOUNTS, "token", name=name, namespace=own),
        Right("patch", SERVICEACCOUNTS, name=name, namespace=own),
    ]


async def lacking(session: Session, wanted: Sequence[Right]) -> list[str]:
    """Return a line for each kind of right that the user would need, and lacks."""
    refused = await rights.lacking(session.client, wanted)
    kinds = dict.fromkeys(attrs.evolve(one, name="", namespace="") for one in refused)
    return [f"this kubeconfig's user may not {one}; use an administrator's with --kubeconfig" for one in kinds]


async def leaving(session: Session) -> list[str]:
    """Return a line where the namespace of an earlier installation is being deleted."""
    name = session.settings.kubernetes.namespace
    try:
        there = await session.client.get(NAMESPACES, name)
    except NotFound:
        return []
    if not there["metadata"].get("deletionTimestamp"):
        return []
    return [f"the namespace {name} is still being deleted; run this again when it is gone"]


async def _kubeconfig(session: Session, place: TargetHost) -> Kubeconfig:
    path = kubeconfig_path(session)
    file = place.at(path)
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return Kubeconfig(path)
    except OSError:
        return Kubeconfig(path, "unreadable")
    receipt = apply.read_receipt(place.root)
    ours = receipt is not None and digest_of(content) in receipt.entries.get(path, ())
    return Kubeconfig(path, await _judged(session, file, content, token_file(path)), ours)


async def _judged(session: Session, file: Path, content: bytes, kept: str) -> Credentials:
    try:
        there = kube_config.load(str(file))
    except kube_config.ConfigError:
        return "unreadable"
    config = session.client.config
    if not is_same_cluster(there, config):
        return "foreign"
    client = Client(there, session.reactor, user_agent="liqodctl")
    try:
        await client.raw("GET", "/version")
    except Unauthorized:
        return "rejected"
    except KubeError:
        pass  # Out of reach is not rejected: the daemon waits for its API server, and says so.
    finally:
        await client.close()
    given = there.token.given if isinstance(there.token, AccountToken) else ""
    namespace, account = session.settings.kubernetes.namespace, account_of(session.settings.daemon.role)
    claims = claims_of(given)
    # One without an end is of an earlier version.
    if claims is None or claims.subject != f"system:serviceaccount:{namespace}:{account}" or claims.expires is None:
        return "usable"
    return "current" if content.decode("utf-8", "replace") == kubeconfig(config, given, kept) else "usable"


def is_same_cluster(one: ClientConfig, other: ClientConfig) -> bool:
    """Return whether two kubeconfigs are for one cluster: by its authority, which its addresses share. Pure."""
    if one.ca_pem and other.ca_pem:
        return one.ca_pem.strip() == other.ca_pem.strip()
    return one.server == other.server


async def invitation(session: Session, token: Token) -> Invitation:
    """Return whether the token of another cluster can be used: its issuer answers there, with the key in the token."""
    shown = token.name or token.issuer
    if token.issuer == (await own_cluster(session)).cluster_id:
        return Invitation(shown, problem="this token was issued by this cluster; use it in the other cluster")
    try:
        record = await session.client.get(FOREIGNCLUSTERS, token.issuer, view=ForeignCluster)
    except NotFound:
        record = None
    if record is not None:
        try:
            refuse_key(record, token.fingerprint)
        except CliError as error:
            return Invitation(shown, problem=f"{error.message}; {error.hint}")
        if record.spec.fingerprint and is_true(record.status.conditions, "Authenticated"):
            return Invitation(label(record), trusted=True)
    return Invitation(shown, problem=await _unreachable(session, token))


async def _unreachable(session: Session, token: Token) -> str:
    problem = ""
    for address in token.addresses:
        try:
            seen = await probe_peer(session.reactor, address, PROBE_TIMEOUT)
        except CliError as error:
            problem = problem or f"{error.message}; {error.hint}"
            continue
        if (seen.cluster_id, seen.fingerprint) == (token.issuer, token.fingerprint):
            return ""
        problem = (
            f"at {address} is {seen.cluster_id or 'another program'}, with another key than the token has; ask the "
            "other admin for a new token, and whether the key was changed"
        )
    return problem
