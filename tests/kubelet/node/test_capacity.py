"""How an offer is divided among the virtual nodes of its lender."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.node.capacity import limits_readiness, share_of
from liqod.model.ids import Key
from liqod.model.objects.meta import ObjectMeta
from liqod.model.objects.quantity import parse
from liqod.model.records.views import VirtualNode, VirtualNodeSpec

OFFER = {"cpu": "10", "memory": "16Gi", "pods": "50", "nvidia.com/gpu": "2"}


def node(name: str, made: int = 0, **limits: str) -> VirtualNode:
    meta = ObjectMeta(name=name, namespace="n", creation_timestamp=f"2026-01-01T00:00:{made:02}Z")
    named = {key.replace("gpu", "nvidia.com/gpu"): value for key, value in limits.items()}
    return VirtualNode(metadata=meta, spec=VirtualNodeSpec(cluster_id="milan", node_name=name, limits=named))


def key(name: str) -> Key:
    return Key("n", name)


class ShareTests(SynchronousTestCase):
    def test_alone(self) -> None:
        """The only node of a lender shows the offer as it is written."""
        self.assertEqual(share_of(key("a"), OFFER, [node("a")]).resources, OFFER)
        self.assertEqual(share_of(key("a"), {"cpu": "1000m"}, [node("a")]).resources, {"cpu": "1000m"})

    def test_the_rest(self) -> None:
        """A node without limits shows what the limits of the others leave; one with a limit shows that, and the rest of
        what it does not name.
        """
        nodes = [node("a", 0), node("b", 1, cpu="4", gpu="2")]
        first, second = (share_of(key(name), OFFER, nodes) for name in ("a", "b"))
        self.assertEqual(first.resources, {**OFFER, "cpu": "6", "nvidia.com/gpu": "0"})
        self.assertEqual(second.resources, {**OFFER, "cpu": "4", "nvidia.com/gpu": "2"})
        self.assertEqual((first.reduced, second.reduced), ((), ()))

    def test_more_than_there_is(self) -> None:
        """The oldest node has its limit first, in whatever order the records are listed; the others show less."""
        nodes = [node("c", 3, cpu="5"), node("a", 2, cpu="7"), node("b", 1, cpu="2")]
        for listed in (nodes, nodes[::-1]):
            found = {name: share_of(key(name), OFFER, listed) for name in "abc"}
            self.assertEqual([found[name].resources["cpu"] for name in "abc"], ["7", "2", "1"])
            self.assertEqual([found[name].reduced for name in "abc"], [(), (), ("cpu",)])

    def test_what_is_not_offered(self) -> None:
        """A limit for what the lender does not offer shows nothing, and says so; one of zero does not."""
        share = share_of(key("a"), {"cpu": "1"}, [node("a", gpu="1")])
        self.assertEqual((share.resources, share.reduced), ({"cpu": "1"}, ("nvidia.com/gpu",)))
        said = limits_readiness(share, {"nvidia.com/gpu": "1"})
        assert said is not None
        self.assertEqual((said.ready, said.reason), (False, "OfferExceeded"))
        self.assertIn("nvidia.com/gpu 0 of 1", said.message)
        self.assertEqual(share_of(key("a"), {"cpu": "1"}, [node("a", gpu="0")]).reduced, ())

    def test_what_is_said(self) -> None:
        """A node without limits has no condition for them."""
        share = share_of(key("a"), OFFER, [node("a")])
        self.assertIsNone(limits_readiness(share, {}))
        said = limits_readiness(share_of(key("a"), OFFER, [node("a", cpu="1")]), {"cpu": "1"})
        self.assertTrue(said is not None and said.ready)

    def test_a_record_that_is_not_listed(self) -> None:
        """A node whose record is gone shows what is left, as it is about to go."""
        self.assertEqual(share_of(key("x"), OFFER, [node("a", cpu="9")]).resources["cpu"], "1")

    @given(st.integers(0, 20), st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=6))
    def test_limits_never_exceed_the_offer(self, offered: int, limits: list[int | None]) -> None:
        """What nodes with limits show adds up to the offer at most, and nothing that is offered is lost to the rest."""
        nodes = [
            node(f"n{place}", place, **({} if limit is None else {"cpu": str(limit)}))
            for place, limit in enumerate(limits)
        ]
        offer = {"cpu": str(offered)}
        shown = [parse(share_of(each.metadata.key, offer, nodes).resources["cpu"]) for each in nodes]
        bounded = sum(one for one, limit in zip(shown, limits, strict=True) if limit is not None)
        self.assertLessEqual(bounded, offered)
        for one, limit in zip(shown, limits, strict=True):
            if limit is None:
                self.assertEqual(one, offered - bounded)
            else:
                self.assertLessEqual(one, limit)
