"""Endpoints at another lender, which the one that gets a slice reaches directly, or by way of home."""

from __future__ import annotations

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.kubelet.reflection.forge.endpointslice import observe
from liqod.kubelet.reflection.views import WithSpec
from liqod.model.ids import ClusterID
from tests.kubelet.reflection.test_address_exports import Network, slice_of, wanted

HERE, AT_TURIN = "10.1.0.5", "10.66.0.7"


class DirectNetwork(Network):
    """The pod at turin is exported as 10.70.0.9, and is 10.201.0.7 there."""

    def __init__(self, *, connected: bool) -> None:
        super().__init__()
        self.given = {AT_TURIN: "10.70.0.9"}
        self.connected = connected

    def direct(self, address: str) -> tuple[ClusterID, str] | None:
        return (ClusterID("turin"), "10.201.0.7") if self.connected and address == AT_TURIN else None


class DirectTests(SynchronousTestCase):
    """What the lender is to know."""

    def test_both_ways_are_named(self) -> None:
        """The addresses of the slice lead by way of home in any case: they are what the lender goes back to."""
        for connected, direct in (
            (True, [{"address": "10.70.0.9", "lender": "turin", "original": "10.201.0.7"}]),
            (False, None),
        ):
            desired = wanted(slice_of(HERE, AT_TURIN), DirectNetwork(connected=connected))
            spec = desired.content["spec"]
            self.assertEqual([one["addresses"] for one in spec["template"]["endpoints"]], [[HERE], ["10.70.0.9"]])
            self.assertEqual(spec.get("direct"), direct)
            # It stays exported: without that there is nothing to go back to.
            self.assertEqual(desired.exports, {(AT_TURIN, "TCP/5432")})

    def test_before_it_is_exported(self) -> None:
        """An endpoint without a way by home is not named: nothing would be left when the tunnel fails."""
        network = DirectNetwork(connected=True)
        network.given = {}
        self.assertNotIn("direct", wanted(slice_of(AT_TURIN), network).content["spec"])

    def test_names_have_no_way(self) -> None:
        """A slice of names is left as it is."""
        body = {**slice_of("db.example.com"), "addressType": "FQDN"}
        self.assertNotIn("direct", wanted(body, DirectNetwork(connected=True)).content["spec"])

    def test_what_is_there(self) -> None:
        """What the lender has is compared as a whole: an end of the direct way is written."""
        direct = [{"address": "10.70.0.9", "lender": "turin", "original": "10.201.0.7"}]
        desired = wanted(slice_of(AT_TURIN), DirectNetwork(connected=False))
        there = _there({"template": desired.content["spec"]["template"], "direct": direct})
        self.assertNotEqual(observe(there, desired), desired.content)
        there = _there({"template": desired.content["spec"]["template"]})
        self.assertEqual(observe(there, desired), desired.content)


def _there(spec: object) -> WithSpec:
    return msgspec.json.decode(msgspec.json.encode({"metadata": {"name": "db-1"}, "spec": spec}), type=WithSpec)
