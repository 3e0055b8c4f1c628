"""The pages of any records: nothing of a peer becomes markup, and everybody can use them. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs
import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.web import pages
from liqod.cli.web.cluster_map import SHOWN
from liqod.cli.web.markup import join, tag
from liqod.cli.web.pages import error_page, overview_page, peer_html
from liqod.cli.web.view import SHOWN_PEERS, SHOWN_PODS, TONES, Snapshot, overview, peer_page
from liqod.model.diagnosis.cluster import ClusterRecords, LeaderFacts
from liqod.model.diagnosis.installation import Unread
from liqod.model.diagnosis.problem import WORKLOADS
from liqod.model.objects.meta import Condition, ObjectMeta
from liqod.model.objects.node import Node, NodeStatus
from liqod.model.objects.pod import Container, Pod, PodSpec, PodStatus, Requirements
from liqod.model.records.network import TunnelEndpoint, TunnelEndpointStatus
from liqod.model.records.offer import Offer
from liqod.model.records.views import (
    Advertisement,
    AdvertisementSpec,
    AdvertisementStatus,
    ForeignCluster,
    ForeignClusterSpec,
    ForeignClusterStatus,
    Lent,
    VirtualNode,
    VirtualNodeSpec,
)
from tests.cli.web.page import flaws, parse

HOSTILE = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        (
            "</text></svg><script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "' autofocus onfocus='alert(1)",
            "&lt;b&gt; &#0; \x1b[31m\u202egpj",
            "<!--",
            "]]>",
            "javascript:alert(1)",
        )
    ),
)
NOW = "2026-01-01T10:00:00Z"


def peer(number: int, phase: str = "Ready", name: str = "", message: str = "") -> ForeignCluster:
    """Return a peer that is trusted; ``message`` is in its status and its conditions."""
    condition = Condition(type="Network", status="True", reason="Agreed", message=message, last_transition_time=NOW)
    status = ForeignClusterStatus(
        cluster_name=name or f"peer-{number}",
        phase=phase,
        message=message,
        lent=Lent(resources={"cpu": "1"}, verdict="Accepted"),
        conditions=[condition],
    )
    return ForeignCluster(
        metadata=ObjectMeta(name=f"c{number}"), spec=ForeignClusterSpec(fingerprint="f"), status=status
    )


def records(*peers: ForeignCluster, text: str = "", pods: int = 3, home: str = "rome") -> Snapshot:
    """Return the records of a cluster that borrows two cores of ``c0``; ``text`` is in what a peer may write."""
    node = Node(
        metadata=ObjectMeta(name="liqo-c0"),
        status=NodeStatus(
            allocatable={"cpu": "4", "memory": "8Gi", "pods": "100"},
            conditions=[Condition(type="Ready", status="True", last_transition_time=NOW)],
        ),
    )
    spec = PodSpec(node_name="liqo-c0", containers=[Container(resources=Requirements(requests={"cpu": "500m"}))])
    listed = [
        Pod(metadata=ObjectMeta(namespace="shop", name=f"web-{one}"), spec=spec, status=PodStatus(phase="Running"))
        for one in range(pods)
    ]
    offer = Advertisement(
        metadata=ObjectMeta(name="advertisement-c0"),
        spec=AdvertisementSpec(cluster_id="c0", offer=Offer(resources={"cpu": "4", text or "gpu": "1"})),
        status=AdvertisementStatus(phase="Accepted"),
    )
    tunnel = TunnelEndpoint(
        metadata=ObjectMeta(name="c0"), status=TunnelEndpointStatus(phase="Connected", rtt="1.2ms", loss="0%")
    )
    event = {"involvedObject": {"name": "c0"}, "reason": text or "KeyRotated", "message": text, "lastTimestamp": NOW}
    record = VirtualNode(metadata=ObjectMeta(name="c0"), spec=VirtualNodeSpec(cluster_id="c0", node_name="liqo-c0"))
    facts = ClusterRecords(
        leader=LeaderFacts("rome-1", alive=True, age=1.0),
        peers=peers,
        offers=[offer],
        virtual_nodes=[record],
        nodes=[node],
        tunnels=[tunnel],
    )
    return Snapshot(home=home, facts=facts, pods={"liqo-c0": listed}, events=[event])


def shape(page: Any) -> list[tuple[str, tuple[str, ...]]]:
    """Return the elements of a page with the names of their attributes: what text must never change."""
    return [(one.name, tuple(one.attributes)) for one in page.all()]


class MarkupTests(SynchronousTestCase):
    """Text and markup."""

    @given(HOSTILE)
    def test_escaped(self, text: str) -> None:
        """No text becomes an element or an attribute, in a place of text or in an attribute's."""
        element = parse(tag("p", text, title=text).text)
        self.assertEqual(shape(element), [("document", ()), ("p", ("title",))])
        self.assertTrue(element.text.isprintable())

    def test_whole(self) -> None:
        """Text arrives as it was written, apart from what a terminal would not be given either."""
        self.assertEqual(parse(join('a <b> & "c"').text).text, 'a <b> & "c"')
        self.assertEqual(parse(join("\x1b[31m\u202e").text).text, "�[31m�")


class PageTests(SynchronousTestCase):
    """Whole pages."""

    @given(HOSTILE.filter(lambda text: text.strip() != ""), HOSTILE)
    def test_hostile(self, name: str, text: str) -> None:
        """Whatever a peer calls itself and says, the elements of the pages are the same."""
        usual = records(peer(0, name="milan", message="fine"), text="fine")
        attacked = records(peer(0, name=name, message=text or "x"), text=text or "x")
        for render in (lambda one: overview_page(overview(one)), lambda one: peer_html(_page(one, "c0"))):
            page = parse(render(attacked))
            self.assertEqual(shape(page), shape(parse(render(usual))))
            self.assertEqual(flaws(page), [])

    def test_usable(self) -> None:
        """Pages without peers, with one, with many, and with an error keep the rules."""
        for many in (0, 1, 2, 5, SHOWN + 3, SHOWN_PEERS + 7):
            known = records(*(peer(one, "Ready" if one % 3 else "Lost") for one in range(many)))
            self.assertEqual(flaws(parse(overview_page(overview(known)))), [], many)
        self.assertEqual(flaws(parse(peer_html(_page(records(peer(0)), "c0"), "old"))), [])
        self.assertEqual(flaws(parse(error_page("LQ1003", "cannot reach it", "check the network"))), [])

    def test_words(self) -> None:
        """The state of each peer stands in words on the map and in the table, not in a colour alone."""
        known = records(peer(0), peer(1, "Lost"), ForeignCluster(metadata=ObjectMeta(name="c2")))
        page = parse(overview_page(overview(known)))
        for tone in ("good", "broken", "stranger"):
            for place in ("map", "peers"):
                self.assertIn(TONES[tone], page.one(place).text, (tone, place))
        lines = {one.attributes["class"] for one in page.all("path") if "class" in one.attributes}
        self.assertLessEqual({"line good", "line broken", "line stranger"}, lines)

    def test_keyboard(self) -> None:
        """Each peer is a link on the map and in the table, in the same order, the worst first."""
        page = parse(overview_page(overview(records(peer(0), peer(1, "Lost"), peer(2)))))
        for place in ("map", "peers"):
            links = [one.attributes["href"] for one in page.one(place).all("a")]
            self.assertEqual(links, ["peer/c1", "peer/c0", "peer/c2"], place)

    def test_traffic_and_capacity(self) -> None:
        """The state of the tunnel and what is requested of a node are shown."""
        known = records(peer(0))
        self.assertIn("round trip 1.2ms, loss 0%", parse(overview_page(overview(known))).one("peers").text)
        offers = parse(peer_html(_page(known, "c0"))).one("offers")
        self.assertIn("1500m", offers.text)
        self.assertIn("38 %", offers.text)

    def test_unreadable_quantities(self) -> None:
        """A node with quantities that cannot be read has no shares, and the page is whole."""
        known = records(peer(0))
        (node,) = known.facts.nodes
        node.status.allocatable["cpu"] = "many"
        self.assertEqual(overview(known).peers[0].shares, [])

    def test_bounded(self) -> None:
        """However many peers and pods there are, the page shows some and counts the others."""
        page = parse(overview_page(overview(records(*(peer(one) for one in range(SHOWN_PEERS + 7))))))
        self.assertEqual(len(list(page.one("map").all("a"))), SHOWN)
        self.assertIn("and 7 more", page.one("peers").text)
        pods = parse(peer_html(_page(records(peer(0), pods=SHOWN_PODS + 9), "c0"))).one("pods")
        self.assertEqual(len(list(pods.all("tr"))), SHOWN_PODS + 1)
        self.assertIn("and 9 more", pods.text)

    def test_timeline(self) -> None:
        """Changes of conditions of the peer and its node, and events about it, are in the timeline."""
        shown = parse(peer_html(_page(records(peer(0)), "c0"))).one("timeline").text
        for expected in ("Network True", "Ready True", "KeyRotated"):
            self.assertIn(expected, shown)

    def test_ids_of_peers(self) -> None:
        """A peer chooses its ID, and cannot take that of a part of the page."""
        named = [
            msgspec.structs.replace(one, metadata=ObjectMeta(name=name))
            for name in ("h", "scroll")
            for one in [peer(0)]
        ]
        self.assertEqual(flaws(parse(overview_page(overview(records(*named))))), [])

    def test_not_all_was_read(self) -> None:
        """What was not read is among what to do next; nothing is called well beside it, and pods are not none."""
        known = records(peer(0))
        self.assertIn("Nothing is wrong", parse(overview_page(overview(known))).one("next").text)
        self.assertIn("web-0", parse(peer_html(_page(known, "c0"))).one("pods").text)
        left_out = Unread(WORKLOADS, "pods: the API server did not answer within 7 s", "try it again")
        partly = attrs.evolve(known, pods={}, unread=[left_out])
        for text in (overview_page(overview(partly)), peer_html(_page(partly, "c0"))):
            page = parse(text)
            self.assertEqual(flaws(page), [])
            self.assertIn("Workloads: NotExamined: pods: the API server did not answer", page.one("next").text)
            self.assertNotIn("nothing is wrong", page.text.lower())
        self.assertIn("not read", parse(peer_html(_page(partly, "c0"))).one("pods").text)
        self.assertEqual(overview(partly).peers[0].shares, [])

    def test_nobody(self) -> None:
        """There is no page of a peer that is not known."""
        self.assertIsNone(peer_page(records(peer(0)), "c9"))


def _page(known: Snapshot, name: str) -> Any:
    page = peer_page(known, name)
    assert page is not None
    return page


class LiveTests(SynchronousTestCase):
    """The script that asks for the page again."""

    def test_no_request_waits_for_ever(self) -> None:
        """Each request has a time-out: one without an answer would end the questions, and nobody would see it."""
        text = (Path(pages.__file__).parent / "files/live.js").read_text()
        asked = re.findall(r"fetch\((.*)\);", text)
        self.assertEqual(len(asked), text.count("fetch("))
        for one in asked:
            self.assertIn("signal", one)
        self.assertIn("AbortSignal.timeout(PATIENCE)", text)
