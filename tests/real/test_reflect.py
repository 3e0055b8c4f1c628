"""Reflection between two real API servers, with their validation, admission policies and controllers."""

from __future__ import annotations

from typing import Any

from liqod.kube.client import Client
from liqod.kube.connection.config import from_grant
from liqod.kube.errors import ApiError
from liqod.kube.resources import (
    CONFIGMAPS,
    ENDPOINTSLICES,
    PERSISTENTVOLUMECLAIMS,
    SECRETS,
    SERVICES,
    VALIDATINGPOLICIES,
    VALIDATINGPOLICYBINDINGS,
    Resource,
)
from liqod.model.names import ORIGIN_LABEL
from liqod.model.objects.portable_metadata import METADATA_POLICY
from tests.kubelet.reflection import cases, tokens_and_claims_cases
from tests.real.sides import Pair


class ReflectionOnRealClustersTests(Pair, cases.ReflectionCase):
    """The cases of reflection, each with cluster IDs and namespaces of its own."""

    async def test_custom_endpoints(self) -> None:
        """Endpoints that a user wrote are mirrored to a slice at home, and that slice is reflected and follows."""
        await self.served()
        endpoints = Resource("", "v1", "endpoints", "Endpoints", True)
        body = {"metadata": {"name": "outside"}, "spec": {"ports": [{"port": 5432, "name": "sql"}]}}
        await self.home.create(SERVICES, body, self.space)
        subset = {"addresses": [{"ip": "192.0.2.7"}], "ports": [{"port": 5432, "name": "sql"}]}
        await self.home.create(endpoints, {"metadata": {"name": "outside"}, "subsets": [subset]}, self.space)

        async def reached(address: str) -> bool:
            labels = "kubernetes.io/service-name=outside"
            slices = await self.lender.list(ENDPOINTSLICES, self.remote, labels=labels)
            found = {a for each in slices.items for e in each.get("endpoints") or () for a in e["addresses"]}
            return found == {address}

        await self.eventually(lambda: reached("192.0.2.7"))
        subset["addresses"] = [{"ip": "192.0.2.8"}]
        await self.home.patch(endpoints, "outside", {"subsets": [subset]}, self.space)
        await self.eventually(lambda: reached("192.0.2.8"))

    async def test_metadata_that_is_not_granted(self) -> None:
        """A config map and a secret with labels and annotations of tools at home go without these, and say so; later
        changes go the same way.
        """
        await self.served()
        tools = {"kustomize.example.com/name": "apps", "note": "n"}
        for resource in (CONFIGMAPS, SECRETS):
            metadata = {"name": "tooled", "labels": {**tools, "app": "web"}, "annotations": tools}
            await self.home.create(resource, {"metadata": metadata}, self.space)
            found = (await self.there(resource, "tooled"))["metadata"]
            self.assertEqual(found["annotations"].get("note"), "n")
            self.assertEqual(found["labels"].get("app"), "web")
            for part in ("labels", "annotations"):
                self.assertNotIn("kustomize.example.com/name", found[part])

        async def reported() -> bool:
            return any("[hosting] annotations" in message for _, _, message in self.events.seen)

        await self.eventually(reported)
        await self.home.patch(CONFIGMAPS, "tooled", {"data": {"a": "b"}}, self.space)

        async def followed() -> bool:
            return (await self.lender.get(CONFIGMAPS, "tooled", self.remote)).get("data") == {"a": "b"}

        await self.eventually(followed)

    async def test_refused_by_a_policy(self) -> None:
        """What an admission policy of the lender refuses is reported at home in its words; the rest goes, and it as
        well when it may.
        """
        await self.served()
        name = f"no-words-{self.space}"
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
        policy = {
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {
                    "resourceRules": [{**rule, "resources": ["configmaps"]}],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.remote}},
                },
                "validations": [
                    {"expression": "!has(object.data) || !('word' in object.data)", "message": "words are not allowed"}
                ],
            },
        }
        binding = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}}
        await self.lender.create(VALIDATINGPOLICIES, policy)
        self.addCleanup(self.lender.delete, VALIDATINGPOLICIES, name)
        await self.lender.create(VALIDATINGPOLICYBINDINGS, binding)
        self.addCleanup(self.lender.delete, VALIDATINGPOLICYBINDINGS, name)

        async def in_force() -> bool:
            probe = {"metadata": {"generateName": "probe-"}, "data": {"word": "x"}}
            try:
                await self.lender.create(CONFIGMAPS, probe, self.remote)
            except ApiError:
                return True
            return False

        await self.eventually(in_force)
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "bad"}, "data": {"word": "x"}}, self.space)
        await self.home.create(CONFIGMAPS, {"metadata": {"name": "good"}, "data": {"a": "1"}}, self.space)
        await self.there(CONFIGMAPS, "good")

        async def reported() -> bool:
            return any("words are not allowed" in message for about, _, message in self.events.seen if about == "bad")

        await self.eventually(reported)
        await self.home.patch(CONFIGMAPS, "bad", {"data": {"word": None, "b": "2"}}, self.space)
        self.assertEqual((await self.there(CONFIGMAPS, "bad"))["data"], {"b": "2"})

    async def test_borrowers_take_no_data(self) -> None:
        """The API server refuses a borrower claims that choose their volume, or that are of no class."""
        from twisted.internet import reactor

        await self.served()
        borrower = Client(from_grant(self.grant.api_url, self.grant.ca.encode(), lambda: self.grant.token), reactor)
        self.addCleanup(borrower.close)
        plain: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        own = {ORIGIN_LABEL: "any"}

        async def refused(spec: dict[str, Any]) -> str:
            body = {"metadata": {"generateName": "probe-", "labels": own}, "spec": spec}
            try:
                await borrower.create(PERSISTENTVOLUMECLAIMS, body, self.remote)
            except ApiError as error:
                return error.message
            return ""

        async def in_force() -> bool:
            return "choose the volume" in await refused({**plain, "volumeName": "of-others"})

        await self.eventually(in_force)
        self.assertIn("storage class", await refused({**plain, "storageClassName": ""}))
        self.assertEqual(await refused(plain), "")

    async def test_borrowers_take_no_traffic(self) -> None:
        """The API server refuses a borrower external addresses, other types of its services, and tokens of accounts."""
        from twisted.internet import reactor

        await self.served()
        borrower = Client(from_grant(self.grant.api_url, self.grant.ca.encode(), lambda: self.grant.token), reactor)
        self.addCleanup(borrower.close)
        plain: dict[str, Any] = {"ports": [{"port": 80}]}
        own = {ORIGIN_LABEL: "any"}

        async def refused(attempt: Any) -> str:
            try:
                await attempt
            except ApiError as error:
                return error.message
            return ""

        async def in_force() -> bool:
            metadata = {"generateName": "probe-", "labels": own}
            probe = {"metadata": metadata, "spec": {**plain, "externalIPs": ["192.0.2.1"]}}
            return "externalIPs" in await refused(borrower.create(SERVICES, probe, self.remote))

        await self.eventually(in_force)
        chosen = {
            "metadata": {"name": "chosen", "labels": own},
            "spec": {**plain, "type": "LoadBalancer", "loadBalancerIP": "192.0.2.9"},
        }
        self.assertIn("loadBalancerIP", await refused(borrower.create(SERVICES, chosen, self.remote)))
        await borrower.create(SERVICES, {"metadata": {"name": "fine", "labels": own}, "spec": plain}, self.remote)
        for change, word in (({"externalIPs": ["192.0.2.1"]}, "externalIPs"), ({"type": "NodePort"}, "type")):
            said = await refused(borrower.patch(SERVICES, "fine", {"spec": change}, self.remote))
            self.assertIn(word, said)
        await borrower.patch(SERVICES, "fine", {"spec": {"ports": [{"port": 81}]}}, self.remote)
        token = {
            "metadata": {
                "name": "token",
                "labels": own,
                "annotations": {"kubernetes.io/service-account.name": "default"},
            },
            "type": "kubernetes.io/service-account-token",
        }
        # Two policies refuse it, for its type and for its annotation, and the API server names one of them: each has to
        # do so alone.
        self.assertRegex(await refused(borrower.create(SECRETS, token, self.remote)), "service accounts|annotations")
        binding = await self.lender.get(VALIDATINGPOLICYBINDINGS, METADATA_POLICY)
        await self.lender.delete(VALIDATINGPOLICYBINDINGS, METADATA_POLICY)

        async def refused_for_its_type() -> bool:
            return "service accounts" in await refused(borrower.create(SECRETS, token, self.remote))

        try:
            await self.eventually(refused_for_its_type)
        finally:
            metadata = {key: binding["metadata"][key] for key in ("name", "labels") if key in binding["metadata"]}
            await self.lender.create(VALIDATINGPOLICYBINDINGS, {"metadata": metadata, "spec": binding["spec"]})
        await self.lender.patch(SERVICES, "fine", {"spec": {"type": "NodePort"}}, self.remote)


class TokensOnRealClustersTests(Pair, tokens_and_claims_cases.TokenCase):
    """What pods need besides, each case with cluster IDs and namespaces of its own."""
