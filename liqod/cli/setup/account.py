"""Creates the daemon's ServiceAccount with its roles, and writes a kubeconfig for it."""

from __future__ import annotations

import base64
import contextlib
import grp
import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from liqod.agent.account import objects as account
from liqod.agent.account.names import ACCOUNTS, LEASE, account_of, bound_secret_of, token_secret_of
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.render import as_documents
from liqod.cli.console.session import Session
from liqod.cli.setup.host.wanted import READERS, TOKEN_FILES
from liqod.cli.setup.written import Change, WrittenObject
from liqod.config.schema import Settings
from liqod.fabric.agent.key import SECRET as TUNNEL_SECRET
from liqod.kube.connection.config import ClientConfig
from liqod.kube.errors import NotFound
from liqod.kube.resources import (
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    CONFIGMAPS,
    LEASES,
    NAMESPACES,
    PERSISTENTVOLUMECLAIMS,
    ROLEBINDINGS,
    ROLES,
    SECRETS,
    SERVICEACCOUNTS,
    Resource,
)
from liqod.kube.writing.ensure import ensure
from liqod.metrics.certificate import SECRET as METRICS_SECRET
from liqod.model.names import PROCESS_LABEL, TOKEN_ANNOTATION
from liqod.model.objects.meta import Object
from liqod.model.records.invitations import INVITATION_LABEL, TOKEN_LABEL
from liqod.model.records.name_service import SLOTS, object_name
from liqod.model.records.network import NETWORK_LEASE
from liqod.model.records.rotation import IDENTITY_SECRET
from liqod.model.records.unpeering import TOMBSTONES
from liqod.webhook.service import SECRET_NAME as WEBHOOK_SECRET


async def ensure_account(session: Session) -> AsyncIterator[Change]:
    """Create or update the account and its roles, remove stale ones; yields each change."""
    namespace = session.settings.kubernetes.namespace
    name = account_of(session.settings.daemon.role)
    wanted = account.roles(session.settings)
    if done := await ensure(session.client, SECRETS, account.bound_secret(namespace, name), ["type"]):
        yield WrittenObject(SECRETS.kind, f"{namespace}/{bound_secret_of(name)}", done == "created")
    for resource, body in [(SERVICEACCOUNTS, account.account(namespace, name)), *wanted]:
        where = body["metadata"].get("namespace", "")
        if where not in ("", namespace) and not await _exists(session, where):
            if where != session.settings.storage.namespace:
                continue
            # It will hold the PVCs behind those of the virtual storage class, so uninstall keeps it while it has any.
            for space in storage_objects(session.settings):
                await ensure(session.client, NAMESPACES, space)
                yield f"namespace {where}: created"
        if done := await ensure(session.client, resource, body, ["roleRef"]):
            own = f"{where}/" if where else ""
            yield WrittenObject(resource.kind, f"{own}{body['metadata']['name']}", done == "created")
    needed = {body["metadata"].get("namespace", "") for _, body in wanted}
    for resource, where, found in await installed(session):
        if found == name and where not in needed:
            await session.client.delete(resource, name, where)
            yield f"{resource.kind} {where}/{name}: removed, no longer needed"


def storage_objects(settings: Settings) -> list[dict[str, Any]]:
    """Return the namespace for the real PVCs of the virtual storage class, as a list of one, or none if disabled."""
    name = settings.storage.namespace
    if not settings.storage.enabled:
        return []
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": account.LABELS}}]


async def empty_storage_namespaces(session: Session) -> list[str]:
    """Return the namespaces for storage that ``ensure_account`` created and that have no PVC.

    They are found by their labels: the configuration that named them may be gone, or wrong.
    """
    own = session.settings.kubernetes.namespace
    labels = ",".join(f"{key}={value}" for key, value in account.LABELS.items())
    names = [found.metadata.name for found in (await session.client.list(NAMESPACES, view=Object, labels=labels)).items]
    return [
        name
        for name in names
        if name != own and not (await session.client.list(PERSISTENTVOLUMECLAIMS, name, view=Object)).items
    ]


async def installed(session: Session) -> list[tuple[Resource, str, str]]:
    """Return the existing roles and bindings of the accounts with namespaces and names, bindings first."""
    labels = ",".join(f"{key}={value}" for key, value in account.LABELS.items())
    return [
        (resource, found.metadata.namespace, found.metadata.name)
        for resource in (ROLEBINDINGS, CLUSTERROLEBINDINGS, ROLES, CLUSTERROLES)
        for found in (await session.client.list(resource, view=Object, labels=labels)).items
        if found.metadata.name in ACCOUNTS
    ]


async def namespace_is_ours(session: Session) -> bool:
    """Return whether liqod's namespace was made by `install`; one that was there before stays."""
    try:
        there = await session.client.get(NAMESPACES, session.settings.kubernetes.namespace, view=Object)
    except NotFound:
        return True
    return account.LABELS.items() <= there.metadata.labels.items()


async def own_objects(session: Session) -> list[tuple[Resource, str]]:
    """Return what the daemon keeps in its own namespace, by kind and name, whether or not it is there.

    Keys, tokens, leases, the accounts: what goes with the namespace where that goes as well.
    """
    namespace = session.settings.kubernetes.namespace
    paired = [
        found.metadata.name
        for label in (TOKEN_LABEL, INVITATION_LABEL)
        for found in (await session.client.list(SECRETS, namespace, view=Object, labels=label)).items
    ]
    processes = (await session.client.list(LEASES, namespace, view=Object, labels=PROCESS_LABEL)).items
    # The latter are of earlier versions.
    of_accounts = [secret_of(one) for one in ACCOUNTS for secret_of in (bound_secret_of, token_secret_of)]
    secrets = [IDENTITY_SECRET, WEBHOOK_SECRET, METRICS_SECRET, TUNNEL_SECRET, *of_accounts, *paired]
    return [
        *((SECRETS, name) for name in secrets),
        *((LEASES, name) for name in (LEASE, NETWORK_LEASE, *map(object_name, SLOTS))),
        *((LEASES, one.metadata.name) for one in processes),
        (CONFIGMAPS, TOMBSTONES),
        *((SERVICEACCOUNTS, name) for name in ACCOUNTS),
    ]


async def _exists(session: Session, namespace: str) -> bool:
    try:
        await session.client.get(NAMESPACES, namespace, view=Object)
    except NotFound:
        return False
    return True


async def token_of(session: Session) -> str:
    """Return a new token of the account, which ends. Raises KubeError."""
    namespace, lifetime = session.settings.kubernetes.namespace, session.settings.kubernetes.token_lifetime
    name = account_of(session.settings.daemon.role)
    await ensure(session.client, SECRETS, account.bound_secret(namespace, name), ["type"])
    # Only so is a Secret that was deleted known from one that is not needed: a pod has a token of another kind.
    marked = {"metadata": {"annotations": {TOKEN_ANNOTATION: bound_secret_of(name)}}}
    await session.client.patch(SERVICEACCOUNTS, name, marked, namespace, view=None)
    request = account.token_request(name, lifetime)
    answer = await session.client.create(SERVICEACCOUNTS, request, namespace, name=name, subresource="token")
    return str(answer["status"]["token"])


async def remove_endless_token(session: Session) -> str:
    """Remove the Secret that an earlier version had a token without end made in; return a line, or "" without one."""
    namespace, name = session.settings.kubernetes.namespace, token_secret_of(account_of(session.settings.daemon.role))
    try:
        await session.client.delete(SECRETS, name, namespace, missing_ok=False)
    except NotFound:
        return ""
    return f"Secret {namespace}/{name}: removed; its token never ended, and kubeconfigs with it are of no use any more"


def token_file(path: str) -> str:
    """Return where the daemon keeps the token that it renewed itself, seen from its kubeconfig at a path.

    The units may write in their state directory, and not beside their kubeconfig.
    """
    file = Path(path).expanduser()
    return TOKEN_FILES.get(str(file), f"{file.name}.token")


def kubeconfig(config: ClientConfig, token: str, kept: str) -> str:
    """Return a kubeconfig for the cluster of ``config`` and the account's token, as YAML; ``kept``: ``token_file``."""
    cluster: dict[str, Any] = {"server": config.server}
    if config.ca_pem:
        cluster["certificate-authority-data"] = base64.b64encode(config.ca_pem).decode("ascii")
    if config.tls_server_name:
        cluster["tls-server-name"] = config.tls_server_name
    if config.insecure:
        cluster["insecure-skip-tls-verify"] = True
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "home", "cluster": cluster}],
        "users": [{"name": "liqod", "user": {"token": token, "tokenFile": kept}}],
        "contexts": [{"name": "liqod", "context": {"cluster": "home", "user": "liqod"}}],
        "current-context": "liqod",
    }
    return as_documents([body])


def write_private(name: str, text: str) -> None:
    """Write a file with mode 0600 atomically; an existing file keeps its owner.

    A kubeconfig of the units is readable by their group, where there is one, and only root may change it.
    Raises CliError.
    """
    path = Path(name).expanduser()
    readers = group_id(READERS.get(str(path), "")) if os.geteuid() == 0 else None
    try:
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                # Before the token is written, whatever the umask is.
                os.fchmod(file.fileno(), 0o600)
                file.write(text)
                if readers is not None:
                    os.fchown(file.fileno(), 0, readers)
                    os.fchmod(file.fileno(), 0o640)
                with contextlib.suppress(FileNotFoundError):
                    before = path.stat()
                    if readers is None and (before.st_uid, before.st_gid) != (os.getuid(), os.getgid()):
                        os.fchown(file.fileno(), before.st_uid, before.st_gid)
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink()
            raise
    except OSError as error:
        raise CliError(
            errors.FILE, f"{path} cannot be written: {(error.strerror or str(error)).lower()}", "choose another file"
        ) from None


def group_id(name: str) -> int | None:
    """Return the ID of a group, or None where there is none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None
