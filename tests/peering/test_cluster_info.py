"""What an offer tells besides capacity, and what a record tells about the next attempt."""

from __future__ import annotations

import msgspec

from liqod.config.schema import Sharing
from liqod.kube.resources import INGRESSCLASSES, STORAGECLASSES
from tests.peering.clusters import PairCase, PeerCluster, settings


class ClusterInfoTests(PairCase):
    """Version and classes of the lender."""

    async def offered(self, alpha: PeerCluster, beta: PeerCluster, storage: list[str], ingress: list[str]) -> str:
        async def check() -> str:
            offer = (await alpha.offer_record(beta)).spec.offer
            reported = (offer.storage_classes, offer.ingress_classes) == (storage, ingress)
            return offer.kubernetes_version if reported else ""

        return await self.becomes(check, f"the offer names {storage} and {ingress}")

    async def test_an_offer_names_version_and_classes(self) -> None:
        """The first offer is complete, and a class that comes or goes is reported."""
        joining = settings(autojoin_untrusted=True)
        alpha, beta = await self.pair(joining, msgspec.structs.replace(joining, sharing=Sharing(percentage=30)))
        storage = {"metadata": {"name": "fast"}, "provisioner": "example.com/disk"}
        await beta.admin.create(STORAGECLASSES, storage)
        await beta.admin.create(INGRESSCLASSES, {"metadata": {"name": "nginx"}, "spec": {"controller": "k8s.io/nginx"}})
        await self.pause(0.3)
        alpha.sees(beta)
        version = await self.offered(alpha, beta, ["fast"], ["nginx"])
        self.assertTrue(version.startswith("v1."), version)
        self.assertEqual((await alpha.offer_record(beta)).spec.seq, 1)
        await beta.admin.create(STORAGECLASSES, {**storage, "metadata": {"name": "slow"}})
        await self.offered(alpha, beta, ["fast", "slow"], ["nginx"])
        await beta.admin.delete(INGRESSCLASSES, "nginx")
        await self.offered(alpha, beta, ["fast", "slow"], [])


class NextAttemptTests(PairCase):
    """When it is tried again."""

    async def test_a_record_says_within_which_time_it_is_dialled_again(self) -> None:
        """A peer that is not there is dialled again, and its record says so, without being written at each attempt."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        beta_seen = beta.seen()
        await beta.stop()
        alpha.peering.update_candidates([beta_seen])
        record = await self.phase(alpha, beta, "Suspect")
        self.assertRegex(record.status.message, r"it is dialled again within \d+ s$")
        await self.pause(2.5)
        settled = await alpha.cluster_record(beta)
        await self.pause(2.0)
        after = await alpha.cluster_record(beta)
        self.assertEqual(after.metadata.resource_version, settled.metadata.resource_version)
