"""Who may what: certificates, tokens, roles, impersonation."""

from __future__ import annotations

from liqod.kube.client import Client
from tests.contract.base import Body, ContractCase

RBAC = "/apis/rbac.authorization.k8s.io/v1"


class AccessCase(ContractCase):
    """Authentication and authorization."""

    async def grant(self, rules: list[Body], subjects: list[Body], *, cluster: bool = False) -> None:
        """Give subjects these rights, in the namespace or everywhere."""
        name = self.unique("grant")
        group = "rbac.authorization.k8s.io"
        base = RBAC if cluster else f"{RBAC}/namespaces/{self.namespace}"
        kind = "ClusterRole" if cluster else "Role"
        roles, bindings = (f"{base}/{kind.lower()}s", f"{base}/{kind.lower()}bindings")
        if cluster:
            self.leave(f"{roles}/{name}")
            self.leave(f"{bindings}/{name}")
        await self.call("POST", roles, {"metadata": {"name": name}, "rules": rules})
        reference = {"apiGroup": group, "kind": kind, "name": name}
        await self.call("POST", bindings, {"metadata": {"name": name}, "roleRef": reference, "subjects": subjects})

    async def may(self, client: Client, path: str) -> bool:
        try:
            await self.call("GET", path, client=client)
        except Exception:
            return False
        return True

    async def test_stranger_may_nothing(self) -> None:
        """Somebody without rights learns what they may not, and where."""
        client = self.client_of("somebody")
        error = await self.refused(403, "Forbidden", "GET", f"{self.space}/pods", client=client)
        self.assertEqual(
            error.message,
            'pods is forbidden: User "somebody" cannot list resource "pods" in API group "" in the namespace '
            f'"{self.namespace}"',
        )
        self.assertEqual(error.details, {"kind": "pods"})
        error = await self.refused(403, "Forbidden", "GET", "/apis/apps/v1/deployments", client=client)
        self.assertEqual(
            error.message,
            'deployments.apps is forbidden: User "somebody" cannot list resource "deployments" in API group "apps" '
            "at the cluster scope",
        )
        error = await self.refused(403, "Forbidden", "DELETE", f"{self.space}/pods/p", client=client)
        self.assertTrue(
            error.message.startswith('pods "p" is forbidden: User "somebody" cannot delete resource "pods"')
        )

    async def test_bad_token(self) -> None:
        """A token that nobody was given is 401."""
        client = self.client_with("not-a-token")
        await self.refused(401, "Unauthorized", "GET", f"{self.space}/pods", client=client)

    async def test_role_in_a_namespace(self) -> None:
        """A role allows its verbs on its resources in its namespace, and nothing else."""
        client = self.client_of("reader")
        user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "reader"}
        await self.grant([{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["configmaps"]}], [user])
        await self.eventually(lambda: self.may(client, f"{self.space}/configmaps"), "the right to list")
        await self.refused(403, "Forbidden", "GET", f"{self.space}/secrets", client=client)
        await self.refused(403, "Forbidden", "GET", "/api/v1/configmaps", client=client)
        await self.refused(
            403, "Forbidden", "POST", f"{self.space}/configmaps", {"metadata": {"name": "a"}}, client=client
        )

    async def test_resource_names(self) -> None:
        """A rule with names allows only those."""
        await self.config_map("one")
        await self.config_map("two")
        client = self.client_of("picky")
        user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "picky"}
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"]}
        await self.grant([rule], [user])
        await self.eventually(lambda: self.may(client, f"{self.space}/configmaps/one"), "the right to one")
        await self.refused(403, "Forbidden", "GET", f"{self.space}/configmaps/two", client=client)

    async def test_subresource_is_its_own_right(self) -> None:
        """Who may read pods may not therefore read their logs."""
        await self.pod("p", {"schedulerName": "nobody"})
        client = self.client_of("watcher")
        user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "watcher"}
        await self.grant([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}], [user])
        await self.eventually(lambda: self.may(client, f"{self.space}/pods/p"), "the right to the pod")
        error = await self.refused(403, "Forbidden", "GET", f"{self.space}/pods/p/log", client=client)
        self.assertIn('cannot get resource "pods/log" in API group ""', error.message)

    async def test_group_of_a_certificate(self) -> None:
        """Organizations of a client certificate are groups."""
        client = self.client_of("member", [self.unique("team")])
        group = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": self.unique("team")}
        await self.grant([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}], [group], cluster=True)
        await self.eventually(lambda: self.may(client, "/api/v1/pods"), "the group's right")

    async def test_service_account_token(self) -> None:
        """A requested token authenticates as its account, in its groups, until the account goes."""
        await self.call("POST", f"{self.space}/serviceaccounts", {"metadata": {"name": "robot"}})
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = await self.call("POST", f"{self.space}/serviceaccounts/robot/token", body)
        self.assertTrue(answer["status"]["expirationTimestamp"].endswith("Z"))
        client = self.client_with(answer["status"]["token"])
        who = await self.call(
            "POST",
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            client=client,
        )
        info = who["status"]["userInfo"]
        self.assertEqual(info["username"], f"system:serviceaccount:{self.namespace}:robot")
        self.assertLessEqual(
            {"system:serviceaccounts", f"system:serviceaccounts:{self.namespace}", "system:authenticated"},
            set(info["groups"]),
        )
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": self.namespace}
        await self.grant([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}], [subject])
        await self.eventually(lambda: self.may(client, f"{self.space}/pods"), "the account's right")
        await self.call("DELETE", f"{self.space}/serviceaccounts/robot")

        async def refused() -> bool:
            try:
                await self.call("GET", f"{self.space}/pods", client=client)
            except Exception as error:
                return getattr(error, "code", 0) == 401
            return False

        await self.eventually(refused, "the token to be invalid")

    async def test_token_bound_to_a_secret(self) -> None:
        """Such a token ends with the Secret, which has to be there, by its name and UID."""
        await self.call("POST", f"{self.space}/serviceaccounts", {"metadata": {"name": "robot"}})
        path = f"{self.space}/serviceaccounts/robot/token"
        bound = {"apiVersion": "v1", "kind": "Secret", "name": "anchor"}
        await self.refused(404, "NotFound", "POST", path, {"spec": {"boundObjectRef": bound}})
        await self.call("POST", f"{self.space}/secrets", {"metadata": {"name": "anchor"}})
        other = {"spec": {"boundObjectRef": {**bound, "uid": "00000000-0000-0000-0000-000000000000"}}}
        await self.refused(409, "Conflict", "POST", path, other)
        answer = await self.call("POST", path, {"spec": {"boundObjectRef": bound}})
        client = self.client_with(answer["status"]["token"])
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": self.namespace}
        await self.grant([{"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]}], [subject])
        await self.eventually(lambda: self.may(client, f"{self.space}/pods"), "the account's right")
        await self.call("DELETE", f"{self.space}/secrets/anchor")
        await self.call("POST", f"{self.space}/secrets", {"metadata": {"name": "anchor"}})

        async def refused() -> bool:
            try:
                await self.call("GET", f"{self.space}/pods", client=client)
            except Exception as error:
                return getattr(error, "code", 0) == 401
            return False

        await self.eventually(refused, "the token to be invalid")

    async def test_short_token_is_refused(self) -> None:
        """A token for less than ten minutes is not given."""
        body = {"spec": {"expirationSeconds": 10}}
        error = await self.refused(422, "Invalid", "POST", f"{self.space}/serviceaccounts/default/token", body)
        self.assertIn("may not specify a duration less than 10 minutes", error.message)

    async def test_token_for_a_missing_account(self) -> None:
        """An account that is not there gets no token."""
        await self.refused(404, "NotFound", "POST", f"{self.space}/serviceaccounts/none/token", {"spec": {}})

    async def test_impersonation(self) -> None:
        """Who may impersonate is judged as that user; who may not is refused."""
        headers = {"Impersonate-User": "somebody"}
        error = await self.refused(403, "Forbidden", "GET", f"{self.space}/pods", headers=headers)
        self.assertIn('User "somebody" cannot list resource "pods"', error.message)
        error = await self.refused(
            403, "Forbidden", "GET", f"{self.space}/pods", headers=headers, client=self.client_of("nobody-special")
        )
        self.assertIn('User "nobody-special" cannot impersonate', error.message)

    async def test_access_review(self) -> None:
        """Anybody may ask what they may."""
        attributes = {"verb": "list", "resource": "pods", "namespace": self.namespace}
        body = {"spec": {"resourceAttributes": attributes}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        self.assertTrue((await self.call("POST", path, body))["status"]["allowed"])
        client = self.client_of("somebody")
        self.assertFalse((await self.call("POST", path, body, client=client))["status"]["allowed"])

    async def test_rights_one_does_not_hold_cannot_be_granted(self) -> None:
        """Who may write roles cannot give more than they have."""
        client = self.client_of("climber")
        user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "climber"}
        rules = [
            {"verbs": ["create", "get", "list"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        ]
        await self.grant(rules, [user])
        roles = f"{RBAC}/namespaces/{self.namespace}/roles"
        await self.eventually(lambda: self.may(client, roles), "the right to roles")
        fine = {"metadata": {"name": "fine"}, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
        await self.call("POST", roles, fine, client=client)
        more = {
            "metadata": {"name": "more"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"]}],
        }
        error = await self.refused(403, "Forbidden", "POST", roles, more, client=client)
        self.assertIn('user "climber"', error.message)
        self.assertIn("is attempting to grant RBAC permissions not currently held", error.message)

    async def test_role_reference_is_fixed(self) -> None:
        """A binding does not change the role it refers to."""
        user = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "reader"}
        await self.grant([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}], [user])
        path = f"{RBAC}/namespaces/{self.namespace}/rolebindings/{self.unique('grant')}"
        body = {"roleRef": {"name": "other"}}
        kind = "application/merge-patch+json"
        error = await self.refused(422, "Invalid", "PATCH", path, body, kind=kind)
        self.assertIn("cannot change roleRef", error.message)
