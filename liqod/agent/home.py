"""The home cluster, made ready step by step: reachable, rights, known by ID, definitions, namespace, clock, identity.

Every step may be repeated at any time, and by several daemons of one cluster at once. What stands in the way is raised
as ``StartupError``.
"""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import attrs
from twisted.logger import Logger

from liqod.agent.account import rights
from liqod.agent.account.names import account_of, liqodctl_as
from liqod.agent.errors import StartupError, explain
from liqod.agent.host.address import cluster_name
from liqod.agent.host.clock_check import server_time
from liqod.config.schema import IdentitySettings, Settings
from liqod.flow.clocks import WallClock
from liqod.identity import certs
from liqod.identity.certs import IdentityError, KeyPair, read_certificates
from liqod.identity.store import from_secret, load_files, to_secret
from liqod.kube import manifests
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, KubeError, NotFound
from liqod.kube.resources import CRDS, NAMESPACES, SECRETS
from liqod.model.diagnosis.installation import ClockFacts, clock_problems
from liqod.model.ids import ClusterID, parse_cluster_id
from liqod.model.objects.meta import Object
from liqod.model.records.rotation import IDENTITY_SECRET

T = TypeVar("T")
_log = Logger()


@attrs.frozen
class Home:
    """What the daemon knows about its own cluster once it is ready to work there."""

    cluster_id: ClusterID
    cluster_name: str
    keypair: KeyPair
    ca_pem: bytes | None


async def prepare(client: Client, settings: Settings, server: str, hostname: str, wall: WallClock) -> Home:
    """Check and prepare the home cluster; raises StartupError with what is in the way."""

    async def step(doing: str, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await work
        except KubeError as error:
            raise explain(error, doing, server, settings.daemon.role) from error

    await step("asking for the version", client.version.get())
    await step("looking up the rights", _check_rights(client, settings))
    cluster_id = await step("reading the namespace kube-system", _cluster_id(client, settings))
    await step("preparing the definitions of the records", _ensure_definitions(client, settings))
    await step(f"preparing the namespace {settings.kubernetes.namespace}", _ensure_namespace(client, settings))
    _check_clock(await step("comparing clocks", server_time(client)), wall())
    keypair = await step("reading the cluster's identity", _identity(client, settings, cluster_id, wall()))
    ca_pem = _authorities(settings.identity)
    return Home(cluster_id, cluster_name(settings.cluster.name, hostname), keypair, ca_pem)


def check_files(identity: IdentitySettings) -> None:
    """Raise StartupError for a file under ``[identity]`` that cannot be used."""
    if identity.key:
        _keypair(identity)
    _authorities(identity)


async def prepare_agent(client: Client, settings: Settings, server: str, wall: WallClock) -> None:
    """Check the home cluster for a process that changes nothing there but records; raises StartupError."""
    try:
        await client.version.get()
        await _check_rights(client, settings)
        now = await server_time(client)
    except KubeError as error:
        raise explain(error, "looking up the rights", server, settings.daemon.role) from error
    _check_clock(now, wall())


async def refreshed(client: Client, settings: Settings, home: Home, now: datetime) -> Home:
    """Return the home with the key that it has now: while another daemon led, the key may have been changed."""
    return attrs.evolve(home, keypair=await _identity(client, settings, home.cluster_id, now))


async def _cluster_id(client: Client, settings: Settings) -> ClusterID:
    if settings.cluster.id:
        return parse_cluster_id(settings.cluster.id)
    # The UID of kube-system lives as long as the cluster: the usual ID of a cluster (KEP-2149).
    system: Object = await client.get(NAMESPACES, "kube-system", view=Object)
    return parse_cluster_id(system.metadata.uid)


async def _check_rights(client: Client, settings: Settings) -> None:
    missing = await rights.missing(client, settings)
    if missing:
        role = settings.daemon.role
        named = ", ".join(str(right) for right in missing[:6]) + (" and others" if len(missing) > 6 else "")
        raise StartupError(
            "RightsMissing",
            f"the daemon may not: {named}; `{liqodctl_as(role)} install`, run by an administrator of the cluster, "
            f"gives its account {settings.kubernetes.namespace}/{account_of(role)} all that it needs",
            details=[f"the daemon may not {right}" for right in missing],
        )


async def _ensure_definitions(client: Client, settings: Settings) -> None:
    if settings.kubernetes.manage_crds:
        await manifests.ensure(client)
        return
    absent = []
    for definition in manifests.definitions():
        name = definition["metadata"]["name"]
        try:
            await client.get(CRDS, name, view=Object)
        except NotFound:
            absent.append(name)
    if absent:
        raise StartupError(
            "DefinitionsMissing",
            f"the cluster has no definition of {', '.join(absent)}; run `liqodctl install`, "
            "or set kubernetes.manage-crds = true",
        )


async def _ensure_namespace(client: Client, settings: Settings) -> None:
    name = settings.kubernetes.namespace
    try:
        await client.get(NAMESPACES, name, view=Object)
    except NotFound:
        try:
            await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        except AlreadyExists:
            return


def _check_clock(server: datetime | None, now: datetime) -> None:
    if server is None:
        return
    for problem in clock_problems(ClockFacts((now - server).total_seconds())):
        message = f"{problem.cause}; {problem.advice}"
        if problem.severity == "error":
            raise StartupError(problem.code, message)
        _log.warn("{detail}", detail=message)


async def _identity(client: Client, settings: Settings, cluster_id: ClusterID, now: datetime) -> KeyPair:
    """Return the cluster's key: from the named files, or from the Secret that all daemons of a cluster share."""
    if settings.identity.key:
        return _keypair(settings.identity)
    namespace = settings.kubernetes.namespace
    try:
        return await _shared_identity(client, namespace, cluster_id, now)
    except IdentityError as error:
        raise _unusable(f"Secret {namespace}/{IDENTITY_SECRET}", error) from error


def _keypair(identity: IdentitySettings) -> KeyPair:
    try:
        return load_files(identity.key, identity.certificate)
    except IdentityError as error:
        raise _unusable(identity.key, error) from error


def _unusable(where: str, error: IdentityError) -> StartupError:
    return StartupError("IdentityUnusable", f"the cluster's key in {where} cannot be used: {error}")


def _authorities(identity: IdentitySettings) -> bytes | None:
    """Return the certificates that ``[identity] ca`` names, None without one."""
    if not identity.ca:
        return None
    pem = _read("identity.ca", identity.ca)
    try:
        read_certificates(pem)
    except ValueError as error:
        message = f"identity.ca = {identity.ca} holds no PEM certificate: give the CA's certificate"
        raise StartupError("IdentityUnusable", message) from error
    return pem


async def _shared_identity(client: Client, namespace: str, cluster_id: ClusterID, now: datetime) -> KeyPair:
    try:
        secret: dict[str, Any] = await client.get(SECRETS, IDENTITY_SECRET, namespace)
    except NotFound:
        keypair = certs.generate(cluster_id, now)
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": IDENTITY_SECRET, "namespace": namespace},
            "type": "kubernetes.io/tls",
            "data": to_secret(keypair),
        }
        try:
            await client.create(SECRETS, body, namespace)
        except AlreadyExists:
            # Another daemon of this cluster was faster: its key is the cluster's.
            secret = await client.get(SECRETS, IDENTITY_SECRET, namespace)
        else:
            _log.info("made the cluster's key {fingerprint}", fingerprint=keypair.fingerprint)
            return keypair
    return from_secret(secret.get("data") or {})


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).expanduser().read_bytes()
    except OSError as error:
        raise StartupError(
            "FileUnreadable", f"{setting} = {path}: {(error.strerror or 'cannot be read').lower()}"
        ) from error
