"""Grants and revokes access of borrowers: the tenant namespace, its service account, short-lived tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from twisted.logger import Logger

from liqod.hosting.tenants import policies, rights
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.namespaces import Namespaces, selector
from liqod.hosting.tenants.quota import levels
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from liqod.kube.resources import (
    CLUSTERROLES,
    NAMESPACES,
    PRIORITYCLASSES,
    ROLEBINDINGS,
    ROLES,
    SECRETS,
    SERVICEACCOUNTS,
    VALIDATINGPOLICIES,
    VALIDATINGPOLICYBINDINGS,
    VIRTUALNODES,
)
from liqod.kube.writing.ensure import ensure
from liqod.model.names import (
    CREDENTIAL_SECRET,
    MAX_NAME,
    QUOTA_ANNOTATION,
    tenant_namespace,
)
from liqod.model.objects.granted_namespace import granted_to, is_tenant_namespace
from liqod.model.objects.meta import Object, View
from liqod.model.records.offer import AccessGrant, Refusal, tenant_namespace_taken

_log = Logger()


@attrs.frozen
class ApiAccess:
    """How borrowers reach this cluster's API server: its URL and the CA that signed its certificate (PEM).

    ``direct``: by that URL, with a token; ``relay``: over the peers' port. ``found`` returns the URL that was found
    out, empty while it is not known: ``url`` counts then.
    """

    url: str
    ca_pem: str
    direct: bool = True
    relay: bool = False
    found: Callable[[], str] = str


async def ensure_borrower_role(client: Client, contract: Contract) -> None:
    """Create or update the ClusterRole of borrowers, the policies that limit it, and the priority class of their pods.

    The daemon's own account may only read them: `liqodctl install` writes them. Raises KubeError; the message of
    Forbidden (403) names the command to run.
    """
    try:
        limited = await _ensure_policies(client, contract)
        if contract.makes_priority_class:
            await ensure(client, PRIORITYCLASSES, rights.priority_class())
        await ensure(client, CLUSTERROLES, rights.borrower_role(services=limited))
    except Forbidden as error:
        raise Forbidden(
            error.code,
            error.reason,
            "what borrowers may do here is not as this release and its configuration need it, and the daemon may not "
            f"change it: have an administrator run `liqodctl install` of this release ({error.message})",
            error.details,
        ) from error


def tenant_objects(contract: Contract) -> list[dict[str, Any]]:
    """Return what ``ensure_borrower_role`` creates, where the API server has ValidatingAdmissionPolicies."""
    classes = [rights.priority_class()] if contract.makes_priority_class else []
    return [*policies.policies(contract), *policies.bindings(), rights.borrower_role(services=True), *classes]


async def _ensure_policies(client: Client, contract: Contract) -> bool:
    """Create or update the admission policies; returns whether this API server has the kind (Kubernetes 1.30)."""
    try:
        for policy in policies.policies(contract):
            await ensure(client, VALIDATINGPOLICIES, policy, defaulted=True)
        for binding in policies.bindings():
            await ensure(client, VALIDATINGPOLICYBINDINGS, binding, defaulted=True)
    except NotFound:
        _log.warn(
            "this API server has no ValidatingAdmissionPolicies (Kubernetes 1.30 does): borrowers get no services and "
            "no ingresses or routes"
        )
        return False
    return True


class _TokenSpec(View, frozen=True):
    expiration_seconds: int = 0


class _TokenStatus(View, frozen=True):
    token: str = ""

    def __repr__(self) -> str:
        return "_TokenStatus()"


class _TokenAnswer(View, frozen=True):
    spec: _TokenSpec = _TokenSpec()
    status: _TokenStatus = _TokenStatus()


class Access:
    """Grants access to borrowers and revokes it; every step is idempotent."""

    _log = Logger()

    def __init__(self, client: Client, namespaces: Namespaces, access: ApiAccess, contract: Contract) -> None:
        self._client = client
        self._namespaces = namespaces
        self._access = access
        self._contract = contract
        self._note = levels.note(contract.granted.quota)
        self._token_lifetime = contract.granted.token_lifetime
        self._role_ensured = False

    async def ensure_role(self) -> None:
        """Create or update the ClusterRole of borrowers, and the policies that limit it, once per start."""
        if not self._role_ensured:
            await ensure_borrower_role(self._client, self._contract)
            self._role_ensured = True

    async def admit(self, peer: str) -> AccessGrant:
        """Create what a borrower needs in its tenant namespace; returns a new token where it may connect directly.

        Raises Refusal (ClusterIDTooLong, NamespaceTaken, NamespaceTerminating) and KubeError.
        """
        await self.ensure_role()
        own = await self._tenant_namespace(peer)
        await self._note_level(own)
        namespace = own.metadata.name
        await ensure(self._client, SERVICEACCOUNTS, rights.service_account(peer))
        await ensure(self._client, ROLES, rights.tenant_role(peer))
        # The roleRef of a binding is immutable (Kubernetes: "RBAC"): a different one needs delete and create.
        await ensure(
            self._client, ROLEBINDINGS, rights.binding(peer, namespace, rights.TENANT_ROLE, "Role"), ["roleRef"]
        )
        if not self._access.direct:
            return AccessGrant(
                api_url="", ca="", token="", lifetime=self._token_lifetime, namespace=namespace, relay=True
            )
        # TokenRequest (subresource ``token``): the API server may grant another lifetime than the requested one
        # (--service-account-max-token-expiration), so the answer's counts.
        answer = await self._client.create(
            SERVICEACCOUNTS,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": self._token_lifetime},
            },
            namespace,
            view=_TokenAnswer,
            name=rights.SERVICE_ACCOUNT,
            subresource="token",
        )
        return AccessGrant(
            api_url=self._access.found() or self._access.url,
            ca=self._access.ca_pem,
            token=answer.status.token,
            lifetime=answer.spec.expiration_seconds or self._token_lifetime,
            namespace=namespace,
            relay=self._access.relay,
        )

    async def dismiss(self, peer: str) -> bool:
        """Revoke a borrower's access at once, then delete what was granted to it; return whether there was anything.

        The tenant namespace stays when it also holds what this cluster borrows from the same peer. Raises KubeError.
        """
        tenant = tenant_namespace(peer)
        present = (await self._client.list(NAMESPACES, labels=selector(peer), view=Object)).items
        granted = granted_to(peer, present)
        own = next((n for n in present if n.metadata.name == tenant and is_tenant_namespace(n, peer)), None)
        had_account = own is not None
        if own is not None:
            # Tokens of a deleted account are invalid at once: the API server looks the account up (Kubernetes:
            # "Managing Service Accounts", bound tokens).
            try:
                await self._client.delete(SERVICEACCOUNTS, rights.SERVICE_ACCOUNT, tenant, missing_ok=False)
            except NotFound:
                had_account = False
            await self._client.delete(ROLEBINDINGS, rights.TENANT_ROLE, tenant)
            await self._client.delete(ROLES, rights.TENANT_ROLE, tenant)
        for namespace in granted:
            await self._client.delete(ROLEBINDINGS, rights.BORROWER_ROLE, namespace.metadata.name)
        # After all bindings: a namespace terminates slowly, and its RoleBinding would be valid until its deletion.
        for namespace in granted:
            await self._namespaces.remove(namespace)
        if own is not None and not own.metadata.deleting and not await self._is_borrowing(tenant):
            try:
                await self._client.delete(NAMESPACES, tenant, uid=own.metadata.uid)
            except Conflict:  # 409: the precondition on the UID failed
                self._log.info("namespace {namespace} was replaced while it was being deleted", namespace=tenant)
        if had_account or granted:
            self._log.info("dismissed {peer}: {count} namespaces", peer=peer, count=len(granted))
        return had_account or bool(granted)

    async def _tenant_namespace(self, peer: str) -> Object:
        name = tenant_namespace(peer)
        if len(name) > MAX_NAME:
            raise Refusal(
                "ClusterIDTooLong",
                f"the namespace {name} of cluster {peer} would be longer than {MAX_NAME} characters; "
                f"its ID may have {MAX_NAME - len(tenant_namespace(''))}",
            )
        body: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "labels": rights.tenant_labels(peer),
                "annotations": self._note,
            },
        }
        try:
            present = await self._client.get(NAMESPACES, name, view=Object)
        except NotFound:
            try:
                return await self._client.create(NAMESPACES, body, view=Object)
            except AlreadyExists:
                present = await self._client.get(NAMESPACES, name, view=Object)
        if not is_tenant_namespace(present, peer):
            raise tenant_namespace_taken(peer)
        if present.metadata.deleting:
            raise Refusal("NamespaceTerminating", f"namespace {name} is being deleted here; try again when it is gone")
        return present

    async def _note_level(self, present: Object) -> None:
        """Note the quota level of a new tenant, before it has an account: one that has an account is not new."""
        if QUOTA_ANNOTATION in present.metadata.annotations:
            return
        name = present.metadata.name
        try:
            await self._client.get(SERVICEACCOUNTS, rights.SERVICE_ACCOUNT, name, view=Object)
        except NotFound:
            await self._client.patch(NAMESPACES, name, {"metadata": {"annotations": self._note}}, view=None)

    async def _is_borrowing(self, namespace: str) -> bool:
        """Return whether a tenant namespace also holds what this cluster borrows from the peer."""
        try:
            if (await self._client.list(VIRTUALNODES, namespace, view=Object)).items:
                return True
        except NotFound:
            pass  # without the CRD there are no virtual nodes
        try:
            await self._client.get(SECRETS, CREDENTIAL_SECRET, namespace, view=Object)
        except NotFound:
            return False
        return True
