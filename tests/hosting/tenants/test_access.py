"""What a borrower's access is made of, when it is granted and revoked, on an API server in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import HostingSettings
from liqod.hosting.tenants import rights
from liqod.hosting.tenants.access import Access, ApiAccess, ensure_borrower_role, tenant_objects
from liqod.hosting.tenants.contract import Contract
from liqod.hosting.tenants.quota import levels
from liqod.kube.errors import Conflict, NotFound, from_status
from liqod.kube.resources import (
    NAMESPACES,
    ROLEBINDINGS,
    ROLES,
    SECRETS,
    SERVICEACCOUNTS,
    VALIDATINGPOLICIES,
    VIRTUALNODES,
    Resource,
)
from liqod.model.names import (
    CREDENTIAL_SECRET,
    MAX_NAME,
    ORIGINAL_NAME_ANNOTATION,
    QUOTA_ANNOTATION,
    REMOTE_CLUSTER_LABEL,
    tenant_namespace,
)
from liqod.model.objects.meta import Object
from liqod.model.records.offer import AccessGrant, Refusal

PEER = "rome"
TENANT = tenant_namespace(PEER)
ASKED = Contract().granted.token_lifetime


class Server:
    """An API server: objects by kind, namespace and name."""

    def __init__(self) -> None:
        self.held: dict[tuple[Resource, str, str], dict[str, Any]] = {}
        self.token_answer: dict[str, Any] = {"spec": {"expirationSeconds": 600}, "status": {"token": "t"}}
        self.has_policies = True
        self.writes = 0
        self.replaces = False
        """Whether each object is replaced by another just before it is deleted."""

    def put(self, resource: Resource, body: Mapping[str, Any], namespace: str = "") -> None:
        meta = {"uid": f"u{len(self.held)}", "resourceVersion": "1", **body["metadata"]}
        self.held[resource, namespace, meta["name"]] = {**body, "metadata": meta}

    def has(self, resource: Resource, name: str, namespace: str = "") -> bool:
        return (resource, namespace, name) in self.held

    def _view(self, body: Any, view: Any) -> Any:
        return body if view is dict else msgspec.convert(body, view) if view is not None else None

    async def get(self, resource: Resource, name: str, namespace: str = "", *, view: Any = dict) -> Any:
        if resource is VALIDATINGPOLICIES and not self.has_policies:
            raise cast(NotFound, from_status(404, b'{"message": "no such kind"}'))
        if not self.has(resource, name, namespace):
            raise cast(NotFound, from_status(404, b'{"message": "no such object"}'))
        return self._view(self.held[resource, namespace, name], view)

    async def list(self, resource: Resource, namespace: str = "", *, view: Any, labels: str = "") -> Any:
        found = [self._view(body, view) for key, body in self.held.items() if key[:2] == (resource, namespace)]
        return type("Listed", (), {"items": found})

    async def create(
        self, resource: Resource, body: Mapping[str, Any], namespace: str = "", *, view: Any = dict, **options: Any
    ) -> Any:
        self.writes += 1
        if options.get("subresource") == "token":
            return self._view(self.token_answer, view)
        if resource is VALIDATINGPOLICIES and not self.has_policies:
            raise cast(NotFound, from_status(404, b'{"message": "no such kind"}'))
        self.put(resource, body, namespace)
        return self._view(self.held[resource, namespace, body["metadata"]["name"]], view)

    async def patch(self, resource: Resource, name: str, body: Any, namespace: str = "", **options: Any) -> None:
        self.writes += 1
        meta = self.held[resource, namespace, name]["metadata"]
        for key, value in body.get("metadata", {}).items():
            meta[key] = {**meta.get(key, {}), **value}

    async def delete(
        self, resource: Resource, name: str, namespace: str = "", *, uid: str = "", missing_ok: bool = True
    ) -> None:
        held = self.held.get((resource, namespace, name))
        if self.replaces and held is not None:
            held["metadata"]["uid"] = "another"
        if uid and held is not None and held["metadata"]["uid"] != uid:
            raise cast(Conflict, from_status(409, b'{"reason": "Conflict", "message": "another UID"}'))
        if self.held.pop((resource, namespace, name), None) is None and not missing_ok:
            raise cast(NotFound, from_status(404, b'{"message": "no such object"}'))


class Granted:
    """Namespaces: removes those of tenants."""

    def __init__(self, server: Server) -> None:
        self.server = server

    async def remove(self, namespace: Object) -> bool:
        await self.server.delete(NAMESPACES, namespace.metadata.name)
        return True


class AccessCases(SynchronousTestCase):
    """An API server in memory and the access to it; no case."""

    def setUp(self) -> None:
        self.server = Server()
        self.access = self.access_by(ApiAccess("https://stated:6443", "ca"))

    def access_by(self, way: ApiAccess) -> Access:
        return Access(cast(Any, self.server), cast(Any, Granted(self.server)), way, Contract())

    def admit(self, access: Access | None = None, peer: str = PEER) -> AccessGrant:
        return self.successResultOf(Deferred.fromCoroutine((access or self.access).admit(peer)))

    def dismiss(self) -> bool:
        return self.successResultOf(Deferred.fromCoroutine(self.access.dismiss(PEER)))

    def refused(self, peer: str = PEER) -> str:
        failure = self.failureResultOf(Deferred.fromCoroutine(self.access.admit(peer)), Refusal)
        return str(cast(Refusal, failure.value).reason)

    def put_tenant(self, **meta: Any) -> None:
        """Have the tenant namespace be there, as it was made earlier."""
        labels = meta.pop("labels", rights.tenant_labels(PEER))
        self.server.put(NAMESPACES, {"metadata": {"name": TENANT, "labels": labels, **meta}})

    def put_granted(self, name: str = "shop-rome", peer: str = PEER) -> None:
        labels, annotations = {REMOTE_CLUSTER_LABEL: peer}, {ORIGINAL_NAME_ANNOTATION: "shop"}
        self.server.put(NAMESPACES, {"metadata": {"name": name, "labels": labels, "annotations": annotations}})
        self.server.put(ROLEBINDINGS, {"metadata": {"name": rights.BORROWER_ROLE}}, name)


class AdmissionTests(AccessCases):
    """What a borrower is given."""

    def test_the_life_of_a_token(self) -> None:
        """What the API server grants counts, shorter or longer; where it does not say, what it was asked for."""
        for spec, lifetime in (
            ({"expirationSeconds": ASKED // 2}, ASKED // 2),
            ({"expirationSeconds": ASKED * 2}, ASKED * 2),
            ({}, ASKED),
        ):
            self.server.token_answer = {"spec": spec, "status": {"token": "t"}}
            grant = self.admit()
            self.assertEqual((grant.token, grant.lifetime), ("t", lifetime), spec)

    def test_the_url(self) -> None:
        """The one that was found out; the stated one while there is none."""
        found = [""]
        access = self.access_by(ApiAccess("https://stated:6443", "ca", found=lambda: found[0]))
        self.assertEqual(self.admit(access).api_url, "https://stated:6443")
        found[0] = "https://found:6443"
        self.assertEqual(self.admit(access).api_url, "https://found:6443")

    def test_only_over_the_relay(self) -> None:
        """Where borrowers do not connect directly no token leaves the cluster, and the rights are there."""
        grant = self.admit(self.access_by(ApiAccess("https://stated:6443", "ca", direct=False, relay=True)))
        self.assertEqual((grant.api_url, grant.ca, grant.token, grant.relay), ("", "", "", True))
        self.assertEqual((grant.lifetime, grant.namespace), (ASKED, TENANT))
        self.assertTrue(self.server.has(ROLEBINDINGS, rights.TENANT_ROLE, TENANT))

    def test_the_longest_id(self) -> None:
        """An ID whose namespace has the longest name there is does; one character more is refused, and says so."""
        longest = "r" * (MAX_NAME - len(tenant_namespace("")))
        self.assertEqual(self.admit(peer=longest).namespace, tenant_namespace(longest))
        self.assertEqual(self.refused(longest + "r"), "ClusterIDTooLong")

    def test_a_namespace_that_is_not_the_peers(self) -> None:
        """Neither one of somebody else's nor one that goes is used."""
        for labels in ({}, rights.tenant_labels("milan"), {REMOTE_CLUSTER_LABEL: PEER}):
            self.put_tenant(labels=labels)
            self.assertEqual(self.refused(), "NamespaceTaken", labels)
        self.put_tenant(deletionTimestamp="2030-01-01T00:00:00Z")
        self.assertEqual(self.refused(), "NamespaceTerminating")
        self.assertFalse(self.server.has(SERVICEACCOUNTS, rights.SERVICE_ACCOUNT, TENANT))

    def noted(self) -> str | None:
        annotations = self.server.held[NAMESPACES, "", TENANT]["metadata"].get("annotations", {})
        return cast("str | None", annotations.get(QUOTA_ANNOTATION))

    def test_the_level_with_which_a_tenant_begins(self) -> None:
        """It is noted for a new tenant; neither written again nor given to a tenant of before."""
        self.put_tenant()
        self.admit()
        self.assertEqual(self.noted(), levels.note(Contract().granted.quota)[QUOTA_ANNOTATION])
        self.put_tenant(annotations={QUOTA_ANNOTATION: "another"})
        del self.server.held[SERVICEACCOUNTS, TENANT, rights.SERVICE_ACCOUNT]
        self.admit()
        self.assertEqual(self.noted(), "another")
        self.put_tenant()
        self.admit()
        self.assertIsNone(self.noted())

    def test_once_per_start(self) -> None:
        """What all borrowers share is written once, and nothing is written again for one that was admitted."""
        self.admit()
        self.server.writes = 0
        self.admit()
        self.assertEqual(self.server.writes, 1, "the token")

    def test_the_role_without_policies(self) -> None:
        """What no policy limits is not allowed."""
        self.admit()
        self.assertEqual(self.role(), rights.borrower_role(services=True)["rules"])
        self.setUp()
        self.server.has_policies = False
        self.admit()
        self.assertEqual(self.role(), rights.borrower_role(services=False)["rules"])

    def role(self) -> Any:
        (role,) = (body for (kind, _, _), body in self.server.held.items() if kind.plural == "clusterroles")
        return role["rules"]

    def test_what_an_installation_writes(self) -> None:
        """It is what the daemon would: with the priority class exactly where pods of tenants have that of liqod."""
        for own in ("", "theirs"):
            self.setUp()
            contract = Contract(HostingSettings(priority_class=own) if own else HostingSettings())
            self.successResultOf(Deferred.fromCoroutine(ensure_borrower_role(cast(Any, self.server), contract)))
            written = sorted((body["kind"], name) for (_, _, name), body in self.server.held.items())
            self.assertEqual(
                sorted((body["kind"], body["metadata"]["name"]) for body in tenant_objects(contract)), written
            )
            self.assertEqual("PriorityClass" in dict(written), not own)


class DismissalTests(AccessCases):
    """What is left of a borrower."""

    def test_nothing_is_left(self) -> None:
        """Account, rights, and namespaces go; what is another's stays."""
        self.admit()
        self.put_granted()
        self.put_granted("shop-milan", "milan")
        self.assertTrue(self.dismiss())
        left = {(kind.plural, space, name) for kind, space, name in self.server.held if space or kind is NAMESPACES}
        wanted = {("namespaces", "", "shop-milan"), ("rolebindings", "shop-milan", rights.BORROWER_ROLE)}
        self.assertEqual(left, wanted)

    def test_whether_there_was_anything(self) -> None:
        """An account or a granted namespace is something; a tenant namespace alone is not."""
        self.assertFalse(self.dismiss())
        self.put_tenant()
        self.assertFalse(self.dismiss())
        self.put_granted()
        self.assertTrue(self.dismiss())
        self.assertFalse(self.dismiss())
        self.admit()
        self.assertTrue(self.dismiss())
        self.assertFalse(self.dismiss())

    def test_a_namespace_of_the_name_that_is_not_the_peers(self) -> None:
        """Nothing in it is touched, and it stays."""
        self.put_tenant(labels={REMOTE_CLUSTER_LABEL: "milan"})
        self.server.put(ROLES, {"metadata": {"name": rights.TENANT_ROLE}}, TENANT)
        self.server.put(SERVICEACCOUNTS, {"metadata": {"name": rights.SERVICE_ACCOUNT}}, TENANT)
        before = dict(self.server.held)
        self.assertFalse(self.dismiss())
        self.assertEqual(self.server.held, before)

    def test_a_namespace_of_the_peers_with_another_name(self) -> None:
        """It is not the tenant namespace, whatever its labels say: it stays, and the account goes all the same."""
        self.server.put(NAMESPACES, {"metadata": {"name": "copied", "labels": rights.tenant_labels(PEER)}})
        self.admit()
        self.assertTrue(self.dismiss())
        self.assertTrue(self.server.has(NAMESPACES, "copied"))
        self.assertEqual([name for _, space, name in self.server.held if space == TENANT], [])
        self.assertFalse(self.server.has(NAMESPACES, TENANT))

    def test_what_is_logged(self) -> None:
        """A dismissal is logged, with the number of namespaces, exactly where there was something to end."""
        for account, namespaces in ((False, 0), (True, 0), (False, 1), (True, 2)):
            self.setUp()
            if account:
                self.admit()
            for number in range(namespaces):
                self.put_granted(f"shop{number}-rome")
            with capturedLogs() as events:
                was_there = self.dismiss()
            said = [(event["peer"], event["count"]) for event in events if "count" in event]
            self.assertEqual(said, [(PEER, namespaces)] if was_there else [])
            self.assertEqual(was_there, account or bool(namespaces))

    def test_while_this_cluster_borrows(self) -> None:
        """A virtual node or a credential keeps the namespace, but no right of the peer."""
        for kind, name in ((VIRTUALNODES, PEER), (SECRETS, CREDENTIAL_SECRET)):
            self.admit()
            self.server.put(kind, {"metadata": {"name": name}}, TENANT)
            self.assertTrue(self.dismiss())
            self.assertTrue(self.server.has(NAMESPACES, TENANT), kind)
            self.assertFalse(self.server.has(SERVICEACCOUNTS, rights.SERVICE_ACCOUNT, TENANT))
            del self.server.held[kind, TENANT, name]
        self.dismiss()
        self.assertFalse(self.server.has(NAMESPACES, TENANT))

    def test_a_namespace_that_goes_already(self) -> None:
        """It is not deleted again; the account goes at once all the same."""
        self.admit()
        self.put_tenant(deletionTimestamp="2030-01-01T00:00:00Z")
        self.assertTrue(self.dismiss())
        self.assertTrue(self.server.has(NAMESPACES, TENANT))
        self.assertFalse(self.server.has(SERVICEACCOUNTS, rights.SERVICE_ACCOUNT, TENANT))

    def test_a_namespace_that_was_replaced(self) -> None:
        """Its successor stays, and the dismissal succeeds."""
        self.admit()
        self.server.replaces = True
        self.assertTrue(self.dismiss())
        self.assertTrue(self.server.has(NAMESPACES, TENANT))
