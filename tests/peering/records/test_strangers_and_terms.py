"""Peering as the wide world has it: strangers by hand, terms for one peer, several addresses, addresses that change."""

from __future__ import annotations

import socket
from datetime import UTC, datetime
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.endpoints import TCP4ClientEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import Settings, SharingSettings
from liqod.identity.tls import PeerTLS
from liqod.kube.resources import FOREIGNCLUSTERS, NODES
from liqod.model.ids import ClusterID
from liqod.model.records.views import Advertisement, ForeignClusterStatus
from liqod.peering.records import record_gc
from liqod.peering.records.events import transition
from liqod.peering.records.stranger_places import NAMED, StrangerRecord, evicted
from tests.peering.clusters import FakeSighting, PairCase, PeerCluster, keypair, settings
from tests.peering.session.test_hostile import HostileCase, Speaker


def lending(**sharing: object) -> Settings:
    joining = settings(autojoin_untrusted=True)
    return msgspec.structs.replace(joining, sharing=msgspec.structs.replace(SharingSettings(), **sharing))


def nowhere() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class StrangerTests(PairCase):
    """A peer that is named by hand and not trusted yet."""

    patience = 5.0

    async def test_the_first_key_is_shown_at_once(self) -> None:
        """However recently the record was written, the key that an administrator waits for is there without delay."""
        alpha, beta = await self.pair()
        endpoints = [{"address": f"127.0.0.1:{nowhere()}"}]
        spec = {"clusterID": beta.id, "endpoints": endpoints}
        await alpha.admin.create(FOREIGNCLUSTERS, {"metadata": {"name": beta.id}, "spec": spec})
        await self.phase(alpha, beta, "Discovered")
        spec["endpoints"] = [{"address": f"127.0.0.1:{beta.peering.port}"}]
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": spec}, view=None)
        record = await self.phase(alpha, beta, "TrustPending")
        self.assertEqual(record.status.seen_fingerprint, beta.key.fingerprint)

    async def test_a_distrusted_peer_shows_its_key_again(self) -> None:
        """Once the pin is taken back, the key to trust is the one that the peer has now, not the one it had."""
        alpha, beta = await self.pair(settings(autojoin_untrusted=False), lending())
        await alpha.trust(beta)
        alpha.sees(beta)
        await self.phase(alpha, beta, "Accepted")
        await beta.stop()
        old, beta.key = beta.key.fingerprint, keypair("beta")
        await beta.start()
        alpha.sees(beta)
        refused = await self.phase(alpha, beta, "Refused")
        self.assertEqual((refused.status.reason, refused.spec.fingerprint), ("ClusterIDRepetition", old))
        unseen = {"status": {"seenFingerprint": None, "words": None}}
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, unseen, subresource="status", view=None)
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": {"fingerprint": ""}}, view=None)

        async def shown() -> bool:
            return (await alpha.cluster_record(beta)).status.seen_fingerprint == beta.key.fingerprint

        await self.becomes(shown, "the new key is shown")


class RecordCollectionTests(PairCase):
    """Which records go by themselves."""

    async def test_only_a_stranger_that_nobody_wants_is_forgotten(self) -> None:
        """Long out of sight a stranger's record goes; one written by hand, with a spec, or trusted stays."""
        self.patch(record_gc, "FORGET", 1.0)
        alpha = await self.side("alpha")
        others = [await self.side(name) for name in ("passer-by", "named", "decided", "trusted")]
        alpha.sees(*others)
        for other in others:
            await self.phase(alpha, other, "TrustPending")
        _, named, decided, trusted = others
        by_hand = {"endpoints": [{"address": f"127.0.0.1:{named.peering.port}"}]}
        for other, spec in ((named, by_hand), (decided, {"outgoingPeering": "No"})):
            await alpha.admin.patch(FOREIGNCLUSTERS, other.id, {"spec": spec}, view=None)
        await alpha.trust(trusted)
        await self.pause(2.5)
        self.assertEqual(len((await alpha.admin.list(FOREIGNCLUSTERS)).items), 4, "who is in sight stays")
        for other in others:
            await other.stop()
        alpha.peering.update_candidates([])

        async def left() -> bool:
            found = {one["metadata"]["name"] for one in (await alpha.admin.list(FOREIGNCLUSTERS)).items}
            return found == {"named", "decided", "trusted"}

        await self.becomes(left, "the passer-by is forgotten")
        await self.pause(2.0)
        self.assertTrue(await left())


class PlacesTests(SynchronousTestCase):
    """Who makes way for whom."""

    @given(st.lists(st.sampled_from("abcdef"), max_size=12), st.sampled_from(["a", "b", "new", NAMED]))
    def test_places_are_shared_by_network(self, networks: list[str], newcomer: str) -> None:
        """The longest unseen of a network with most places makes way, where that makes the shares more even."""
        places = {ClusterID(f"c{number}"): StrangerRecord(one, float(number)) for number, one in enumerate(networks)}
        victim = evicted(places, newcomer)
        most = max(map(networks.count, networks), default=0)
        if newcomer == NAMED:
            self.assertEqual(victim is not None, bool(networks))
        else:
            self.assertEqual(victim is not None, most >= networks.count(newcomer) + 2)
        if victim is not None:
            own = places[victim].network
            self.assertEqual(networks.count(own), most)
            tied = [one for one in places.values() if networks.count(one.network) == most]
            self.assertEqual(min(one.last for one in tied), places[victim].last)

    def test_many_networks_of_one_site(self) -> None:
        """Who has a thousand networks side by side has no more places for that; a newcomer from elsewhere gets one."""
        for crowd, newcomer, beside in (
            ([f"2001:db8:7:{number:x}::/64" for number in range(64)], "2001:db8:8::/64", "2001:db8:7:ffff::/64"),
            ([f"192.0.2.{number}" for number in range(64)], "198.51.100.7", "192.0.2.200"),
        ):
            places = {ClusterID(f"c{number}"): StrangerRecord(one, float(number)) for number, one in enumerate(crowd)}
            self.assertEqual(evicted(places, newcomer), "c0")
            self.assertIsNone(evicted(places, beside))
            del places[ClusterID("c0")]
            places[ClusterID("new")] = StrangerRecord(newcomer, 100.0)
            self.assertNotEqual(evicted(places, beside), "new")

    @given(st.lists(st.sampled_from(range(12)), min_size=4, max_size=200))
    def test_it_comes_to_an_end(self, callers: list[int]) -> None:
        """However the same callers come again and again, nobody is written for ever: the shares become even."""
        networks = {number: f"2001:db8:{number % 3}:{number}::/64" for number in range(12)}
        places = {ClusterID(f"c{number}"): StrangerRecord(networks[number % 4], float(number)) for number in range(6)}
        turns = 0
        for now, caller in enumerate(callers * 20):
            if any(place.network == networks[caller] for place in places.values()):
                continue
            if (victim := evicted(places, networks[caller])) is not None:
                del places[victim]
                places[ClusterID(f"n{now}")] = StrangerRecord(networks[caller], 10.0 + now)
                turns += 1
        self.assertLess(turns, 20)

    def test_nobody_takes_the_place_of_the_named(self) -> None:
        """A stranger at an address of the configuration stays."""
        places = {ClusterID("a"): StrangerRecord(NAMED, 0.0), ClusterID("b"): StrangerRecord(NAMED, 1.0)}
        self.assertIsNone(evicted(places, "new"))
        self.assertIsNone(evicted(places, NAMED))


class CrowdTests(HostileCase):
    """Keys without number that keep calling."""

    async def call(self, alpha: PeerCluster, name: str, source: str) -> None:
        """Show a key that nobody trusts, from an address."""
        speaker = Speaker(name)
        plain: Any = TCP4ClientEndpoint(alpha.reactor, "127.0.0.1", alpha.peering.port, bindAddress=(source, 0))
        endpoint = wrapClientTLS(PeerTLS(keypair(name)).client_creator(), plain)
        await endpoint.connect(Factory.forProtocol(lambda: speaker))
        speaker.hello()
        await speaker.lost

    async def test_a_crowd_of_one_address_keeps_nobody_out(self) -> None:
        """With all places taken by keys of one address a newcomer from another one is shown, and stays."""
        alpha = await self.side("alpha", settings(max_untrusted=4, autojoin_untrusted=False))
        names = [f"crowd-{number}" for number in range(6)]

        async def shown() -> set[str]:
            return {one["metadata"]["name"] for one in (await alpha.admin.list(FOREIGNCLUSTERS)).items}

        for name in names:
            await self.call(alpha, name, "127.0.0.2")

        async def full() -> bool:
            return len(await shown()) == 4

        await self.becomes(full, "all places are taken")
        await self.call(alpha, "newcomer", "127.0.0.3")

        async def is_shown() -> bool:
            return "newcomer" in await shown()

        await self.becomes(is_shown, "the newcomer is shown")
        for name in names:
            await self.call(alpha, name, "127.0.0.2")
        await self.pause(0.5)
        found = await shown()
        self.assertEqual(("newcomer" in found, len(found)), (True, 4))


class EventTests(PairCase):
    """Events on transitions."""

    async def test_each_step_is_an_event_once(self) -> None:
        """A stranger that waits for trust, a peer that is Ready, one that is Suspect: each is reported, and only
        then.
        """
        alpha, beta = await self.pair()
        alpha.sees(beta)
        await self.phase(alpha, beta, "TrustPending")
        await self.is_reported(alpha, "TrustPending")
        await alpha.trust(beta)
        await beta.trust(alpha)
        await self.peered(alpha, beta)
        await self.phase(alpha, beta, "Accepted")
        await self.pause(1.0)  # an event is recorded after the write of the status
        before = list(alpha.events.reasons)
        await self.pause(1.0)
        self.assertEqual(alpha.events.reasons, before, "a quiet peering tells nothing")
        await beta.stop()
        suspect = await self.phase(alpha, beta, "Suspect")
        await self.is_reported(alpha, suspect.status.reason)
        self.assertEqual(alpha.events.reasons[-1], suspect.status.reason)


class TransitionTests(SynchronousTestCase):
    """Which changes are worth an event."""

    def test_the_table(self) -> None:
        """Changes of phase, the bad ones as warnings; what says nothing new, and what stays, is not reported."""
        for before, after, kind in (
            ("", "Discovered", ""),
            ("Discovered", "TrustPending", "Normal"),
            ("Accepted", "Ready", "Normal"),
            ("Ready", "Ready", ""),
            ("Ready", "Suspect", "Warning"),
            ("Suspect", "Lost", "Warning"),
            ("Offered", "Refused", "Warning"),
            ("Ready", "Withdrawing", ""),
        ):
            status = ForeignClusterStatus(phase=after, reason="Why", message="because")
            reported = transition(ForeignClusterStatus(phase=before), status)
            self.assertEqual(reported[0] if reported else "", kind, (before, after))
            if reported:
                self.assertEqual((reported[1], reported[2][-7:]), ("Why", "because"))


class TermsTests(PairCase):
    """What is lent to one peer."""

    async def offers(self, alpha: PeerCluster, beta: PeerCluster, **wanted: str) -> Advertisement:
        async def check() -> Advertisement | None:
            record = await alpha.offer_record(beta)
            found = record.spec.offer.resources
            return record if {name: found.get(name) for name in wanted} == wanted else None

        return await self.becomes(check, f"{alpha.name} is offered {wanted}")

    async def test_terms_of_one_peer_change_its_offer_alone_and_at_once(self) -> None:
        """Percentage and limits in a ForeignCluster hold for that peer; without them the general ones hold again."""
        beta = await self.side("beta", lending())
        alpha, gamma = await self.side("alpha", lending()), await self.side("gamma", lending())
        for borrower in (alpha, gamma):
            borrower.sees(beta)
            await self.offers(borrower, beta, cpu="3", memory="3Gi")
        own = {"sharing": {"percentage": 80, "limits": {"memory": "1Gi"}}}
        await beta.admin.patch(FOREIGNCLUSTERS, alpha.id, {"spec": own}, view=None)
        await self.offers(alpha, beta, cpu="8", memory="1Gi")
        await self.offers(gamma, beta, cpu="3", memory="3Gi")
        await beta.admin.patch(FOREIGNCLUSTERS, alpha.id, {"spec": {"sharing": None}}, view=None)
        await self.offers(alpha, beta, cpu="3", memory="3Gi")

    async def test_what_is_taken_back_from_one_peer(self) -> None:
        """It is offered nothing, with the moment; others keep what they have, and it has it again without the order."""
        beta = await self.side("beta", lending())
        alpha, gamma = await self.side("alpha", lending()), await self.side("gamma", lending())
        for borrower in (alpha, gamma):
            borrower.sees(beta)
            await self.offers(borrower, beta, cpu="3", memory="3Gi")
        order = {"spec": {"reclaim": {"by": "2030-01-01T00:10:00Z"}}}
        await beta.admin.patch(FOREIGNCLUSTERS, alpha.id, order, view=None)
        record = await self.offers(alpha, beta, cpu="0", memory="0")
        self.assertEqual(record.spec.offer.reclaimed_by, datetime(2030, 1, 1, 0, 10, tzinfo=UTC))
        self.assertEqual(record.status.phase, "Accepted")
        await self.offers(gamma, beta, cpu="3", memory="3Gi")
        await beta.admin.patch(FOREIGNCLUSTERS, alpha.id, {"spec": {"reclaim": None}}, view=None)
        record = await self.offers(alpha, beta, cpu="3", memory="3Gi")
        self.assertIsNone(record.spec.offer.reclaimed_by)

    async def test_an_offer_names_prices_labels_and_classes_of_load_balancers(self) -> None:
        """What the settings say about the offer arrives in the borrower's record; the last device is offered."""
        more = lending(
            prices={"cpu": "0.05", "gold": "1"}, labels={"region": "north"}, load_balancer_classes=["example.com/vip"]
        )
        beta = await self.side("beta", more)
        alpha = await self.side("alpha", lending())
        gpu = {"nvidia.com/gpu": "1"}
        await beta.admin.patch(
            NODES, "one", {"status": {"allocatable": gpu, "capacity": gpu}}, subresource="status", view=None
        )
        alpha.sees(beta)
        record = await self.offers(alpha, beta, **gpu)
        offer = record.spec.offer
        self.assertEqual((offer.prices, offer.labels), ({"cpu": "50m"}, {"region": "north"}))
        self.assertEqual(offer.load_balancer_classes, ["example.com/vip"])
        self.assertEqual(offer.resources["cpu"], "3")


class PaceTests(PairCase):
    """How often offers are sent."""

    async def test_a_restless_cluster_sends_one_offer_a_second_and_the_last_one_counts(self) -> None:
        """Capacity that changes all the time is reported once a second at most; what is reported in the end is how it
        ended.
        """
        alpha, beta = await self.pair(lending(), lending())
        alpha.sees(beta)
        await self.peered(alpha, beta)
        before, begun = (await alpha.offer_record(beta)).spec.seq, alpha.reactor.seconds()
        for number in range(25):
            await beta.set_cpu("one", str(20 + 10 * (number % 2)))
            await self.pause(0.1)
        await beta.set_cpu("one", "60")

        async def reported() -> bool:
            return (await alpha.offer_record(beta)).spec.offer.resources["cpu"] == "18"

        await self.becomes(reported, "the last capacity is offered")
        sent, took = (await alpha.offer_record(beta)).spec.seq - before, alpha.reactor.seconds() - begun
        self.assertLessEqual(sent, took + 1)


class ManyPeersTests(PairCase):
    """What many peers must not cost."""

    async def test_nodes_that_are_not_lent_make_nobody_look_at_offers(self) -> None:
        """A virtual node that comes, changes and goes is no change of what may be lent; a real one is."""
        alpha, beta = await self.pair(lending(), lending())
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await self.pause(2.0)
        looks: list[None] = []
        revision = alpha.peering._controllers.lending.capacity.revision
        self.addCleanup(revision.subscribe(lambda _: looks.append(None)))
        virtual = {"metadata": {"name": "liqo-x", "labels": {"liqo.io/type": "virtual-node"}}}
        await alpha.admin.create(NODES, virtual)
        await alpha.set_cpu("liqo-x", "7")
        await alpha.set_cpu("liqo-x", "8")
        await alpha.admin.delete(NODES, "liqo-x")
        await self.pause(2.0)
        self.assertEqual(looks, [])
        await alpha.set_cpu("one", "11")

        async def looked() -> bool:
            return looks != []

        await self.becomes(looked, "a real node's change is looked at")


class AddressTests(PairCase):
    """Several addresses, and addresses that change."""

    async def test_of_several_addresses_one_that_answers_is_taken(self) -> None:
        """Addresses that refuse, or lead nowhere, keep nobody from the one that answers."""
        alpha, beta = await self.pair(lending(), lending())
        dead = [
            FakeSighting("127.0.0.1", nowhere(), beta.id, beta.name),
            FakeSighting("2001:db8::1", 5872, beta.id, beta.name),
        ]
        alpha.peering.update_candidates([*dead, beta.seen()])
        await self.peered(alpha, beta)
        self.assertEqual(alpha.peering.sessions()[0].address, f"127.0.0.1:{beta.peering.port}")

    async def test_another_address_of_the_same_key_is_the_same_peer(self) -> None:
        """A peer that moved is reached at its new address: same record, same node, nothing is made again."""
        alpha, beta = await self.pair(lending(), lending())
        alpha.sees(beta)
        await self.peered(alpha, beta)
        record, node = await alpha.cluster_record(beta), await alpha.virtual_node(beta)
        before = beta.peering.port
        await beta.stop()
        await self.phase(alpha, beta, "Suspect")
        await beta.start()
        self.assertNotEqual(beta.peering.port, before)
        alpha.sees(beta)

        async def moved() -> bool:
            return [view.address for view in alpha.peering.sessions()] == [f"127.0.0.1:{beta.peering.port}"]

        await self.becomes(moved, "the session goes to the new address")
        self.assertEqual((await alpha.cluster_record(beta)).metadata.uid, record.metadata.uid)
        self.assertEqual((await alpha.virtual_node(beta)).metadata.uid, node.metadata.uid)
