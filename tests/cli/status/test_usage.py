"""What ``usage`` makes of requests, measurements, claims, quotas and counters."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.console.table import layout
from liqod.cli.status.usage import bounds
from liqod.cli.status.usage_rows import (
    COLUMNS,
    WIDE,
    Carried,
    Claimed,
    Known,
    PodUsage,
    Used,
    lenders_of,
    measured,
    shown,
    usage_rows,
)
from liqod.kube.resources import NAMESPACES, PODS, RESOURCEQUOTAS
from liqod.model.diagnosis.cluster import ClusterRecords
from liqod.model.ids import Key
from liqod.model.records.views import Advertisement, ForeignCluster, VirtualNode
from tests.cli.test_every_command import EveryCase

HALF = {"cpu": Fraction(1, 2), "memory": Fraction(2**30), "pods": Fraction(1)}
NAMES = {"c2": "milan", "c3": "turin"}


def pod(space: str, *, peer: str = "c2", **more: Any) -> Used:
    return Used(**{"peer": peer, "direction": "borrowed", "namespace": space, "requests": HALF, **more})


class RowsTests(SynchronousTestCase):
    """Rows of peers and namespaces."""

    def test_sums(self) -> None:
        """A row for all and one for each namespace; what was not measured is left out of the sum, and counted."""
        seen = PodUsage(Fraction(1, 4), 2**20, 10, 20)
        rows = usage_rows(Known(names=NAMES, used=[pod("shop", measured=seen), pod("shop"), pod("web")]))
        self.assertEqual([(one["namespace"], one["pods"]) for one in rows], [("all", 3), ("shop", 2), ("web", 1)])
        whole, shop, web = rows
        self.assertEqual(whole["requested"], {"cpu": "1500m", "memory": "3Gi"})
        self.assertEqual(shop["measured"], {"cpu": "250m", "memory": "1Mi", "pods": 1})
        self.assertEqual(web["measured"], {"cpu": None, "memory": None, "pods": 0})
        self.assertEqual((whole["received"], whole["sent"], web["received"]), (10, 20, None))

    def test_two_directions(self) -> None:
        """What is borrowed and lent are apart; bounds stand in the row for all, quotas with their namespaces."""
        lent = pod("milan-shop", direction="lent")
        known = Known(
            names=NAMES,
            used=[pod("shop"), lent],
            bounds={("c2", "lent"): {"cpu": Fraction(4)}, ("c3", "borrowed"): {"cpu": Fraction(8)}},
            counted={("c2", "milan-shop"): {"requests.cpu": Fraction(1)}},
            carried={"c2": Carried(received=1, sent=2)},
            home={"milan-shop": "shop"},
        )
        rows = usage_rows(known)
        found = [(one["peer"], one["direction"], one["namespace"], one["bound"], one["counted"]) for one in rows]
        counted = {"requests.cpu": "1"}
        self.assertEqual(
            found,
            [
                ("milan", "borrowed", "all", {}, {}),
                ("milan", "borrowed", "shop", {}, {}),
                ("milan", "lent", "all", {"cpu": "4"}, counted),
                ("milan", "lent", "milan-shop", {}, counted),
                ("turin", "borrowed", "all", {"cpu": "8"}, {}),
            ],
        )
        self.assertEqual(rows[3]["home"], "shop")
        self.assertEqual([one["tunnel"] for one in rows], [{"received": 1, "sent": 2}, None, None, None, None])

    def test_storage(self) -> None:
        """Claims are summed; a volume that two pods mount is measured once."""
        seen = PodUsage(volumes={Key("shop", "data"): 100})
        claim = Claimed(peer="c2", direction="borrowed", namespace="shop", size=Fraction(2**30))
        used = [pod("shop", measured=seen), pod("shop", measured=seen)]
        whole, shop = usage_rows(Known(names=NAMES, used=used, claimed=[claim, claim]))
        self.assertEqual((shop["claimed"], shop["stored"], whole["claimed"]), ("2Gi", 100, "2Gi"))

    def test_shown(self) -> None:
        """Cells are short enough for 80 columns, and say what is not known by saying nothing."""
        seen = PodUsage(Fraction(123456789, 10**9), 123456789)
        large = {"cpu": Fraction(64), "memory": Fraction(2**38)}
        used = [pod("a-namespace-of-23-letters", measured=seen)]
        rows = [shown(one) for one in usage_rows(Known(names=NAMES, used=used, bounds={("c2", "borrowed"): large}))]
        self.assertEqual(rows[0]["cpu"], "0.5 (0.123 used) of 64")
        self.assertEqual(rows[1]["memory"], "1Gi (118Mi used)")
        self.assertEqual((rows[0]["storage"], rows[0]["bytes"]), ("", ""))
        for columns in (COLUMNS, WIDE):
            for line in layout(rows, columns, 80):
                self.assertLessEqual(sum(len(text) for text, _ in line), 80, line)

    def test_summary(self) -> None:
        """A kubelet's summary is read as far as it is one; absurd numbers are no measurement."""
        ref = {"name": "web", "namespace": "shop"}
        volume = {"name": "v", "usedBytes": 5, "pvcRef": {"name": "data", "namespace": "shop"}}
        body = {"podRef": ref, "cpu": {"usageNanoCores": 5}, "memory": {"workingSetBytes": -1}, "volume": [volume, {}]}
        (found,) = measured(json.dumps({"node": {}, "pods": [body]}).encode()).items()
        self.assertEqual(
            found, (Key("shop", "web"), PodUsage(Fraction(5, 10**9), None, volumes={Key("shop", "data"): 5}))
        )
        for odd in (b"", b"[]", b'{"pods": 1}', b'{"pods": [{"cpu": "x"}]}'):
            self.assertRaises(ValueError, measured, odd)

    @given(st.binary(max_size=200))
    def test_any_body(self, body: bytes) -> None:
        """Whatever a node answers, it is a summary or a ValueError."""
        try:
            measured(body)
        except ValueError:
            return

    def test_volumes(self) -> None:
        """The lender of a volume is in its node affinity; other volumes have none."""

        def volume(name: str, key: str, operator: str = "In", values: tuple[str, ...] = ("c2",)) -> dict[str, Any]:
            rule = {"key": key, "operator": operator, "values": list(values)}
            terms = [{"matchExpressions": [rule]}]
            return {"metadata": {"name": name}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}

        label = "liqo.io/remote-cluster-id"
        known = [volume("a", label), volume("b", "zone"), volume("c", label, "NotIn"), volume("d", label, values=())]
        self.assertEqual(lenders_of([*known, {"metadata": {"name": "e"}}]), {"a": "c2"})

    def test_bounds(self) -> None:
        """Offers bound what is used; what of a peer's offer is no quantity is left out."""
        offer = {"clusterID": "c2", "offer": {"resources": {"cpu": "2", "memory": "lots"}}}
        advertised = msgspec.convert({"metadata": {"name": "advertisement-c2"}, "spec": offer}, Advertisement)
        record = msgspec.convert({"metadata": {"name": "c2"}, "spec": {"clusterID": "c2"}}, VirtualNode)
        lent = {"lent": {"resources": {"cpu": "1"}}}
        cluster = msgspec.convert({"metadata": {"name": "c3"}, "status": lent}, ForeignCluster)
        facts = ClusterRecords(offers=[advertised], virtual_nodes=[record], peers=[cluster])
        self.assertEqual(bounds(facts), {("c2", "borrowed"): {"cpu": 2}, ("c3", "lent"): {"cpu": 1}})


class CommandTests(EveryCase):
    """The command against a simulated cluster."""

    async def test_both(self) -> None:
        """Pods on the virtual node are borrowed, those of ShadowPods in a granted namespace lent, with the quota."""
        labels = {"liqo.io/remote-cluster-id": "c2"}
        meta = {"name": "milan-shop", "labels": labels, "annotations": {"liqo.io/original-name": "shop"}}
        await self.client.create(NAMESPACES, {"metadata": meta})
        spec = {"nodeName": "n1", "containers": [{"name": "a", "image": "x", "resources": {"requests": {"cpu": "2"}}}]}
        managed = {"name": "theirs", "labels": {"liqo.io/managed-by": "shadowpod"}}
        await self.client.create(PODS, {"metadata": managed, "spec": spec}, "milan-shop")
        await self.client.create(PODS, {"metadata": {"name": "mine"}, "spec": spec}, "milan-shop")
        quota = {"metadata": {"name": "liqod-tenant"}, "spec": {"hard": {"pods": "5"}}}
        await self.client.create(RESOURCEQUOTAS, quota, "milan-shop")
        used = {"status": {"used": {"pods": "1"}}}
        await self.client.patch(RESOURCEQUOTAS, "liqod-tenant", used, "milan-shop", subresource="status")
        out, err, status = await self.outcome("usage", "milan", "-o", "json")
        self.assertEqual(status, 0, err)
        found = {(one["direction"], one["namespace"]): one for one in json.loads(out)["rows"]}
        self.assertEqual(found["borrowed", "default"]["pods"], 1)
        theirs = found["lent", "milan-shop"]
        self.assertEqual((theirs["pods"], theirs["home"], theirs["requested"]["cpu"]), (1, "shop", "2"))
        self.assertEqual(theirs["counted"], {"pods": "1"})
        self.assertEqual(theirs["measured"]["cpu"], None)
        self.assertTrue(json.loads(out)["notes"])
        self.assertIn("LQ2001", (await self.outcome("usage", "nobody"))[1])
