"""What offloaded pods need besides what is reflected one to one, between two sandboxes."""

from __future__ import annotations

from liqod.kube.resources import ENDPOINTSLICES, SHADOWPODS
from tests.kubelet.reflection import sandboxes, tokens_and_claims_cases


class TokenTests(sandboxes.Sandboxes, tokens_and_claims_cases.TokenCase):
    """The cases of tokens, each with two clusters of its own."""

    async def test_where_the_api_server_is(self) -> None:
        """Pods are led to the addresses that the home's API servers publish."""
        await self.account()
        labels = {"kubernetes.io/service-name": "kubernetes"}
        body = {
            "metadata": {"name": "kubernetes", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["192.0.2.10"]},
                {"addresses": ["192.0.2.11"]},
                {"addresses": ["192.0.2.12"], "conditions": {"ready": False}},
            ],
            "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
        }
        await self.home.create(ENDPOINTSLICES, body, "default")
        await self.node_is("True")
        await self.pause(0.5)
        await self.token_pod("web")
        shadow = await self.eventually(lambda: self.lender.get(SHADOWPODS, "web", self.remote))
        pod = shadow["spec"]["pod"]
        self.assertEqual([alias["ip"] for alias in pod["hostAliases"]], ["192.0.2.10", "192.0.2.11"])
        values = {each["name"]: each["value"] for each in pod["containers"][0]["env"]}
        self.assertEqual(values["KUBERNETES_PORT"], "tcp://kubernetes.default:6443")


class ClaimTests(sandboxes.Sandboxes, tokens_and_claims_cases.ClaimCase):
    """The cases of storage, each with two clusters of its own."""
