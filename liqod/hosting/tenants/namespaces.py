"""Grants namespaces to borrowers, maps namespaces to their tenants, and releases them.

The tenant of a namespace is in its labels; it is read from the informer, and from memory for a grant that the watch has
not shown yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from twisted.logger import Logger

from liqod.hosting.tenants import grants, rights
from liqod.hosting.tenants.contract import Contract
from liqod.kube.cache.informer import Informer
from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists, Conflict, NotFound
from liqod.kube.resources import NAMESPACES, ROLEBINDINGS
from liqod.kube.writing.ensure import ensure
from liqod.model.ids import Key
from liqod.model.names import REMOTE_CLUSTER_LABEL
from liqod.model.objects.granted_namespace import granted_to, home_name_of, tenant_of
from liqod.model.objects.meta import Object
from liqod.model.records.offer import Refusal

_MAX_RECENT: Final = 4096

Bound = Callable[[str, str], Awaitable[None]]
"""Sets a bound of a namespace, with the tenant and the name of the namespace."""


class Namespaces:
    """The namespaces granted by this cluster; ``informer`` watches those with the label of a remote cluster.

    ``peers`` returns the IDs of the trusted clusters, whose names no other is given.
    """

    _log = Logger()

    def __init__(
        self,
        client: Client,
        informer: Informer[Object],
        contract: Contract,
        bounds: Sequence[Bound],
        *,
        peers: Callable[[], Iterable[str]],
    ) -> None:
        self._client = client
        self.informer = informer
        self._pod_security = contract.granted.pod_security
        self._names = tuple(contract.granted.namespace_names)
        self._own = frozenset(contract.own_namespaces)
        self._peers = peers
        self._recent: dict[str, str] = {}
        self._bounds = bounds
        self._unsubscribe = informer.subscribe(self._namespace_changed)

    def close(self) -> None:
        """Unsubscribe from the informer."""
        self._unsubscribe()

    def known_tenant(self, namespace: str) -> str | None:
        """Return the tenant of a namespace (empty: none), or None when the watch has not shown the namespace yet."""
        if (seen := self.informer.get(Key("", namespace))) is not None:
            return tenant_of(seen)
        return self._recent.get(namespace)

    def is_terminating(self, namespace: str) -> bool:
        """Return whether a namespace is being deleted: nothing can be created in it any more."""
        seen = self.informer.get(Key("", namespace))
        return seen is not None and seen.metadata.deleting

    async def tenant_of(self, namespace: str) -> str:
        """Return the tenant of a namespace (empty: none); one that the watch has not shown may be new and is read."""
        if (known := self.known_tenant(namespace)) is not None:
            return known
        try:
            tenant = tenant_of(await self._client.get(NAMESPACES, namespace, view=Object))
        except NotFound:
            return ""
        if tenant:
            self._remember(namespace, tenant)
        return tenant

    def granted(self, peer: str) -> list[Object]:
        """Return the namespaces granted to a borrower, as far as the watch shows them."""
        return granted_to(peer, self.informer.items())

    async def grant(self, peer: str, local: str, remote: str) -> bool:
        """Create a namespace for a borrower, with its rights in it; return whether these changed. Idempotent.

        Raises Refusal (InvalidName, NameReserved, NameNotYours, NamespaceTaken, NamespaceTerminating,
        TooManyNamespaces) and KubeError.
        """
        await self.informer.when_synced()
        present = self.informer.get(Key("", remote))
        # What was granted stays, whichever names are configured, and whichever clusters are trusted, since then.
        if present is None or tenant_of(present) != peer or home_name_of(present) != local:
            grants.check_name(peer, local, remote, self._names, own=self._own, peers=self._peers())
        await self._create(peer, local, remote)
        # Before the rights: nothing is written in a namespace without bounds.
        for bound in self._bounds:
            await bound(peer, remote)
        has_changed = await ensure(
            self._client, ROLEBINDINGS, rights.binding(peer, remote, rights.BORROWER_ROLE, "ClusterRole"), ["roleRef"]
        )
        self._remember(remote, peer)
        return bool(has_changed)

    async def release(self, peer: str, remote: str) -> bool:
        """Delete a granted namespace with all in it; return whether it was there. Raises Refusal (NotGranted)."""
        try:
            present = await self._client.get(NAMESPACES, remote, view=Object)
        except NotFound:
            return False
        if tenant_of(present) != peer:
            raise Refusal("NotGranted", f"namespace {remote} was not granted to cluster {peer}; it is left alone")
        return await self.remove(present)

    async def remove(self, namespace: Object) -> bool:
        """Delete the namespace of this UID, not another one of the same name; return whether that was done now."""
        name = namespace.metadata.name
        self._recent.pop(name, None)
        if namespace.metadata.deleting:
            return False
        try:
            await self._client.delete(NAMESPACES, name, uid=namespace.metadata.uid)
        except Conflict:  # 409: the precondition on the UID failed
            self._log.info("namespace {namespace} was replaced while it was being deleted", namespace=name)
            return False
        return True

    async def _create(self, peer: str, local: str, remote: str) -> None:
        wanted = grants.body(peer, local, remote, self._pod_security)
        present = self.informer.get(Key("", remote))
        if present is None:
            count = len(self.granted(peer))
            if count >= grants.MAX_NAMESPACES:
                raise Refusal(
                    "TooManyNamespaces",
                    f"cluster {peer} has {count} namespaces here, as many as one may have; release some first",
                )
            try:
                await self._client.create(NAMESPACES, wanted, view=None)
            except AlreadyExists:
                # Cluster-wide names: it may be anybody's, or our own that the watch has not shown yet.
                present = await self._client.get(NAMESPACES, remote, view=Object)
            else:
                self._log.info(
                    "created namespace {namespace} for {remote_namespace} of {peer}",
                    namespace=remote,
                    remote_namespace=local,
                    peer=peer,
                )
                return
        grants.check_existing(present, peer, local)
        await ensure(self._client, NAMESPACES, wanted)

    def _remember(self, namespace: str, tenant: str) -> None:
        while len(self._recent) >= _MAX_RECENT:
            del self._recent[next(iter(self._recent))]
        self._recent[namespace] = tenant

    def _namespace_changed(self, key: Key, old: Object | None, new: Object | None) -> None:
        self._recent.pop(key.name, None)


def selector(peer: str = "") -> str:
    """Return the label selector of the namespaces of all remote clusters, or of one."""
    return f"{REMOTE_CLUSTER_LABEL}={peer}" if peer else REMOTE_CLUSTER_LABEL
