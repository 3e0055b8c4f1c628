"""What passes as an offer, and what is refused with the field that is wrong."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.acceptance.check import check, check_ttl
from liqod.model.objects import quantity
from liqod.model.records.offer import Offer, Refusal
from liqod.model.records.offer_rules import MAX_TTL, WELL_KNOWN, is_label_value, is_qualified_name, is_reserved

texts = st.text(max_size=80)


class CheckTests(SynchronousTestCase):
    """Offers as a hostile peer may send them."""

    def test_an_ordinary_offer_passes_in_canonical_form(self) -> None:
        """Quantities are rendered canonically, so that equal offers compare equal."""
        one = check(Offer(resources={"memory": "1024Mi", "cpu": "1500m"}, labels={"region": "north"}))
        other = check(Offer(resources={"cpu": "1.5", "memory": "1Gi"}, labels={"region": "north"}))
        self.assertEqual(one, other)
        self.assertEqual(one.resources, {"cpu": "1500m", "memory": "1Gi"})

    def test_what_is_wrong_is_named(self) -> None:
        """Each bad field is refused as InvalidOffer and the sentence begins with the field."""
        many = {f"r{n}": "1" for n in range(129)}
        for offer, field in (
            (Offer(resources={"cpu": "-1"}), "resources.cpu"),
            (Offer(resources={"cpu": "NaN"}), "resources.cpu"),
            (Offer(resources={"cpu": "inf"}), "resources.cpu"),
            (Offer(resources={"cpu": "9e99"}), "resources.cpu"),
            (Offer(resources={"cpu": "1" * 65}), "resources.cpu"),
            (Offer(resources={"../etc": "1"}), "resources"),
            (Offer(resources=many), "resources"),
            (Offer(prices={"cpu": "cheap"}), "prices.cpu"),
            (Offer(labels={"node-role.kubernetes.io/control-plane": ""}), "labels"),
            (Offer(labels={"topology.kubernetes.io/other": "a"}), "labels"),
            (Offer(labels={"kubernetes.io/hostname": "a"}), "labels"),
            (Offer(labels={"liqo.io/type": "virtual-node"}), "labels"),
            (Offer(labels={"region": "a b"}), "labels.region"),
            (Offer(labels={f"l{n}": "" for n in range(65)}), "labels"),
            (Offer(storage_classes=["Fast!"]), "storageClasses"),
            (Offer(ingress_classes=["a"] * 65), "ingressClasses"),
            (Offer(gateways=["shared"]), "gateways"),
            (Offer(gateways=["public/shared\n"]), "gateways"),
            (Offer(gateways=["a/b"] * 65), "gateways"),
            (Offer(kubernetes_version="v1\n"), "kubernetesVersion"),
        ):
            refusal = self.assertRaises(Refusal, check, offer)
            self.assertEqual(refusal.reason, "InvalidOffer")
            self.assertTrue(refusal.message.startswith(field + ":"), refusal.message)

    def test_reserved_prefixes_include_their_subdomains_only(self) -> None:
        """A domain that merely ends in the same letters is not reserved."""
        self.assertTrue(is_reserved("node-role.kubernetes.io/x"))
        self.assertTrue(is_reserved("offloading.liqo.io/x"))
        self.assertFalse(is_reserved("mykubernetes.io/x"))
        self.assertFalse(is_reserved("example.com/x"))

    def test_where_and_what_a_node_is_may_be_offered(self) -> None:
        """Well-known labels of topology and platform pass."""
        labels = dict.fromkeys(sorted(WELL_KNOWN), "a")
        self.assertEqual(check(Offer(labels=labels)).labels, labels)

    def test_classes_keep_their_order(self) -> None:
        """The lender's first storage class, its default one, stays the first."""
        checked = check(Offer(storage_classes=["standard", "archive", "standard"]))
        self.assertEqual(checked.storage_classes, ["standard", "archive"])

    def test_the_time_to_live_is_bounded(self) -> None:
        """Zero, negative and endless times to live are refused."""
        self.assertEqual(check_ttl(1800), 1800)
        for ttl in (0, -1, MAX_TTL + 1):
            self.assertRaises(Refusal, check_ttl, ttl)

    @given(st.dictionaries(texts, texts, max_size=4), st.dictionaries(texts, texts, max_size=4), st.lists(texts))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_whatever_is_sent_is_refused_or_usable(
        self, resources: dict[str, str], labels: dict[str, str], classes: list[str]
    ) -> None:
        """What passes has valid names and quantities that are not negative, and passes again unchanged."""
        try:
            checked = check(Offer(resources=resources, labels=labels, storage_classes=classes))
        except Refusal as refusal:
            self.assertEqual(refusal.reason, "InvalidOffer")
            return
        self.assertEqual(check(checked), checked)
        for name, text in checked.resources.items():
            self.assertTrue(is_qualified_name(name))
            self.assertGreaterEqual(quantity.parse(text), 0)
        for name, value in checked.labels.items():
            self.assertTrue(is_qualified_name(name) and not is_reserved(name) and is_label_value(value))
