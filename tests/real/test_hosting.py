"""Hosting on a real API server, with the controllers and the admission of Kubernetes."""

from __future__ import annotations

from typing import Any

from liqod.kube.errors import ApiError
from liqod.kube.resources import (
    CONFIGMAPS,
    INGRESSES,
    PERSISTENTVOLUMECLAIMS,
    SECRETS,
    SERVICES,
    SHADOWENDPOINTSLICES,
    SHADOWPODS,
    Resource,
)
from tests.hosting import isolation_cases
from tests.real.sides import Asked


class HostingOnRealClustersTests(Asked, isolation_cases.IsolationCase):
    """The cases of hosting, each with a tenant of its own on one cluster."""

    cluster_count = 1

    async def prepare(self) -> None:
        (self.admin,) = self.admins
        await self.begin()

    async def test_borrowers_keep_to_their_contract(self) -> None:
        """The API server refuses a borrower what other controllers would act on: hosts, names, annotations,
        finalizers, classes and slices of names.
        """
        borrower, namespace = await self.tenant()
        backend = {"service": {"name": "web", "port": {"number": 80}}}
        path = {"path": "/.well-known", "pathType": "Prefix", "backend": backend}
        ingress = {"rules": [{"host": "www.lender.example", "http": {"paths": [path]}}]}
        port: dict[str, Any] = {"ports": [{"port": 80}]}
        claim: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        beta = {"volume.beta.kubernetes.io/storage-class": ""}
        template = {"addressType": "FQDN", "endpoints": [{"addresses": ["vault.vault"]}]}
        attempts: list[tuple[str, Resource, dict[str, Any], dict[str, Any]]] = [
            ("ingress-hosts", INGRESSES, {}, {"spec": ingress}),
            ("service-types", SERVICES, {}, {"spec": {"type": "ExternalName", "externalName": "vault.vault"}}),
            ("offered", SERVICES, {}, {"spec": {**port, "type": "LoadBalancer", "loadBalancerClass": "a.b/c"}}),
            (
                "[hosting] annotations",
                SERVICES,
                {"annotations": {"metallb.io/loadBalancerIPs": "192.0.2.1"}},
                {"spec": port},
            ),
            ("[hosting] annotations", SECRETS, {"annotations": {"replicator.example/replicate-to": "x"}}, {}),
            ("[hosting] labels", CONFIGMAPS, {"labels": {"argocd.argoproj.io/secret-type": "cluster"}}, {}),
            ("finalizers", CONFIGMAPS, {"finalizers": ["x.example/never"]}, {}),
            ("finalizers", SHADOWPODS, {"finalizers": ["x.example/never"]}, {"spec": {"pod": {}}}),
            ("annotation", PERSISTENTVOLUMECLAIMS, {"annotations": beta}, {"spec": claim}),
            ("select", PERSISTENTVOLUMECLAIMS, {}, {"spec": {**claim, "selector": {"matchLabels": {"a": "b"}}}}),
            ("names", SHADOWENDPOINTSLICES, {}, {"spec": {"template": template}}),
        ]

        async def refused(resource: Resource, meta: dict[str, Any], body: dict[str, Any]) -> str:
            try:
                await borrower.create(resource, {"metadata": {"generateName": "probe-", **meta}, **body}, namespace)
            except ApiError as error:
                return error.message
            return ""

        for word, resource, meta, body in attempts:

            async def in_force(word: str = word, what: Any = (resource, meta, body)) -> bool:
                return word in await refused(*what)

            await self.becomes(in_force, f"{resource} is refused")
        fine: list[tuple[Resource, dict[str, Any], dict[str, Any]]] = [
            (SERVICES, {"annotations": {"note": "n"}, "labels": {"app.kubernetes.io/name": "web"}}, {"spec": port}),
            (SECRETS, {"annotations": {"meta.helm.sh/release-name": "r"}}, {}),
            (PERSISTENTVOLUMECLAIMS, {"annotations": {"note": "n"}}, {"spec": claim}),
            (CONFIGMAPS, {"labels": {"app": "web"}}, {"data": {"a": "b"}}),
        ]
        for resource, meta, body in fine:
            self.assertEqual(await refused(resource, meta, body), "")
