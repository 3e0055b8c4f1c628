"""An older release in a cluster of a newer one: the one before may take over, and changes no definition."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from liqod.kube import manifests
from liqod.kube.resources import CRDS, SERVICEACCOUNTS
from liqod.model.diagnosis.releases import VERSION_LABEL, downgrade_refusal, is_newer, parse
from tests.cli.cluster_case import ClusterCase


class ReleaseTests(SynchronousTestCase):
    def test_refusals(self) -> None:
        """A release takes over from older ones, from its own minor one and the next; from none that is no release."""
        for installed, own, is_refused in (
            ("0.1.0", "0.1.0", False),
            ("0.1.0", "0.2.0", False),
            ("0.1.7", "0.1.0", False),
            ("0.2.0", "0.1.9", False),
            ("0.3.0", "0.1.9", True),
            ("1.0.0", "0.9.0", True),
            ("0.9.0", "1.0.0", False),
            ("0.10.0", "0.9.0", False),
            ("0.11.0", "0.9.0", True),
            ("", "0.1.0", False),
            ("0.9.0", "", False),
            ("9.9.9", "(from a checkout)", False),
        ):
            refusal = downgrade_refusal(installed, own)
            self.assertEqual(bool(refusal), is_refused, (installed, own))
            if is_refused:
                self.assertIn(f"release {installed} of liqod is installed in this cluster, and this is {own}", refusal)

    def test_order(self) -> None:
        """Releases are compared by their numbers; what is none is not newer than anything, nor older."""
        self.assertTrue(is_newer("0.10.0", "0.9.9"))
        for one, other in (("0.1.0", "0.1.0"), ("0.1.0", "0.2.0"), ("", "0.1.0"), ("1.0.0", "")):
            self.assertFalse(is_newer(one, other))
        self.assertEqual(parse("0.1.0-rc1"), (0, 1, 0))


class ClusterTests(ClusterCase):
    """At the API server of a sandbox."""

    def later(self, minors: int) -> dict[str, Any]:
        """Return the label of a release so many minor ones later."""
        own = parse(manifests.release())
        assert own is not None
        return {"metadata": {"labels": {VERSION_LABEL: f"{own[0]}.{own[1] + minors}.0"}}}

    async def test_install(self) -> None:
        """`install` notes its release; from two later ones it refuses to take over, before anything is changed."""
        await self.liqodctl("install")
        account = await self.client.get(SERVICEACCOUNTS, "liqod", "liqo-system")
        self.assertEqual(account["metadata"]["labels"][VERSION_LABEL], manifests.release())
        await self.client.patch(SERVICEACCOUNTS, "liqod", self.later(2), "liqo-system")
        name = manifests.definitions()[0]["metadata"]["name"]
        await self.client.delete(CRDS, name)
        output = " ".join((await self.liqodctl("install", status=1)).split())
        self.assertIn("a rollback goes one minor release at a time", output)
        self.assertNotIn(name, [one["metadata"]["name"] for one in (await self.client.list(CRDS)).items])
        await self.client.patch(SERVICEACCOUNTS, "liqod", self.later(1), "liqo-system")
        await self.liqodctl("install")

    async def test_definitions(self) -> None:
        """A definition of a newer release stays as it is; one of an older release is brought up to date."""
        await manifests.ensure(self.client)
        name = manifests.definitions()[0]["metadata"]["name"]
        for minors, applied in ((1, []), (-1, [name])):
            body = {**self.later(minors), "spec": {"names": {"shortNames": ["zz"]}}}
            if minors < 0:
                body["metadata"] = {"labels": {VERSION_LABEL: "0.0.0"}}
            await self.client.patch(CRDS, name, body)
            self.assertEqual(await manifests.ensure(self.client), applied, minors)
