"""Two peering services against sandboxes: trust, offers, acceptance, credentials, restarts, bad peers."""

from __future__ import annotations

import base64
import datetime
from typing import Any

import msgspec

from liqod.acceptance.stages import AcceptanceRules
from liqod.config.schema import DiscoverySettings, PeerSettings, SharingSettings
from liqod.fabric.control.records import is_peered
from liqod.kube.errors import ApiError
from liqod.kube.resources import ADVERTISEMENTS, FOREIGNCLUSTERS
from liqod.model.ids import ClusterID
from liqod.model.names import advertisement_name
from liqod.model.objects.meta import Condition, find_condition
from liqod.model.records.offer import PeerUnreachable, Refusal
from liqod.peering.records import foreignclusters as records
from tests.identity.tls_pair import DAY, Authority
from tests.peering.clusters import FakeSighting, PairCase, PeerCluster, accepting, keypair, settings, use_rules


class TrustTests(PairCase):
    """How two clusters come to trust each other, or do not."""

    async def test_trust_on_both_sides_ends_in_virtual_nodes(self) -> None:
        """Each side sees the other and trusts it: offers, credentials and virtual nodes follow by themselves."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        offer = await alpha.offer_record(beta)
        self.assertEqual(offer.spec.offer.resources, {"cpu": "3", "memory": "3Gi", "pods": "30"})
        self.assertEqual((offer.status.phase, offer.spec.cluster_id), ("Accepted", "beta"))
        self.assertEqual((await alpha.virtual_node(beta)).spec.node_name, "liqo-beta")
        self.assertEqual(beta.room.tenants["alpha"], {"cpu": "3", "memory": "3Gi", "pods": "30"})  # type: ignore[index]
        credential = {key: base64.b64decode(value) for key, value in (await alpha.credential(beta)).items()}
        self.assertEqual(credential["api-url"], b"https://lender:6443")
        self.assertTrue(credential["token"].startswith(b"token-"))
        self.assertEqual(set(credential), {"api-url", "ca.crt", "token", "namespace", "relay", "expires-at"})
        self.assertEqual(len(alpha.peering.sessions()), 1)

        async def lending() -> bool:
            status = (await alpha.cluster_record(beta)).status
            condition = find_condition(status.conditions, "Lending")
            return condition is not None and condition.status == "True" and status.lent is not None

        await self.becomes(lending, "alpha knows that it lends")

    async def test_strangers_are_shown_and_trusted_later(self) -> None:
        """Without trust both see TrustPending with words; the side that trusts last makes it work at once."""
        alpha, beta = await self.pair()
        alpha.sees(beta)
        beta.sees(alpha)
        record = await self.phase(alpha, beta, "TrustPending")
        await self.phase(beta, alpha, "TrustPending")
        self.assertEqual(record.status.seen_fingerprint, beta.key.fingerprint)
        self.assertEqual(len(record.status.words.split("-")), 10)
        self.assertEqual(record.spec.fingerprint, "")
        self.assertEqual(alpha.peering.sessions(), ())
        await alpha.trust(beta)

        async def waiting() -> bool:
            return (await alpha.cluster_record(beta)).status.reason == "WaitingForPeerTrust"

        await self.becomes(waiting, "alpha waits for beta's trust")
        await self.pause(1.0)
        await beta.trust(alpha)
        await self.peered(alpha, beta)

    async def test_an_address_without_a_name_is_enough(self) -> None:
        """A peer written by hand with its fingerprint is pinned on contact; the other side needs to trust us itself."""
        beta = await self.side("beta", settings(autojoin_untrusted=True))
        by_hand = DiscoverySettings(peers=[PeerSettings(address="127.0.0.1:1", fingerprint=beta.key.fingerprint)])
        alpha = await self.side("alpha", msgspec.structs.replace(settings(), discovery=by_hand))
        alpha.peering.update_candidates([beta.seen(nameless=True, fingerprint=beta.key.fingerprint)])
        await self.peered(alpha, beta)
        self.assertEqual((await alpha.cluster_record(beta)).spec.fingerprint, beta.key.fingerprint)
        self.assertEqual((await beta.cluster_record(alpha)).spec.fingerprint, alpha.key.fingerprint)

    async def test_who_is_peer_answered_otherwise_is_dialled(self) -> None:
        """A peer that answers by another way than a session is dialled at once; one with a session, or a stranger, is
        left alone.
        """
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        peer = alpha.peering._peers[beta.id]
        woken: list[str] = []

        class Link:
            def wake(self) -> None:
                woken.append("woken")

        link, session = peer.dialer.link, peer.session
        peer.dialer.link = Link()  # type: ignore[assignment]
        try:
            alpha.peering.peer_answered(beta.id)
            alpha.peering.peer_answered(ClusterID("nobody"))
            self.assertEqual(woken, [])
            peer.session = None
            # As after a long absence: the next attempts follow soon, too, should this one come a moment early.
            peer.dialer._failures = 9
            alpha.peering.peer_answered(beta.id)
            self.assertEqual(peer.dialer._failures, 0)
        finally:
            peer.dialer.link, peer.session = link, session
        self.assertEqual(woken, ["woken"])

    async def test_another_key_for_a_known_id_is_refused(self) -> None:
        """An impostor gets nothing, is reported, and does not disturb the session of the true holder."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        impostor = await self.side("beta", settings(autojoin_untrusted=True), key=keypair("beta"))
        impostor.sees(alpha)

        async def refused() -> bool:
            return alpha.peering.refusals["ClusterIDRepetition"] > 0

        await self.becomes(refused, "the impostor is refused")
        await self.is_reported(alpha, "ClusterIDRepetition")
        record = await alpha.cluster_record(beta)
        self.assertEqual(record.spec.fingerprint, beta.key.fingerprint)
        condition = find_condition(record.status.conditions, "Authenticated")
        self.assertEqual(condition.status if condition else "", "True")
        self.assertEqual([session.peer for session in alpha.peering.sessions()], ["beta"])
        reported = await self.phase(impostor, alpha, "Refused")
        self.assertEqual(reported.status.reason, "ClusterIDRepetition")

    async def test_an_announcement_with_anothers_id_leads_nowhere(self) -> None:
        """Who answers where an announcement says that a peer is gets no session, whatever ID it claims."""
        beta = await self.side("beta")
        for name, reason in (("mallory", "UnexpectedIdentity"), ("beta", "ClusterIDRepetition")):
            alpha = await self.side("alpha")
            await alpha.trust(beta)
            mean = await self.side(name, settings(autojoin_untrusted=True), key=keypair(name))
            forged = FakeSighting("127.0.0.1", mean.peering.port, beta.id, beta.name, beta.key.fingerprint)
            alpha.peering.update_candidates([forged])

            async def refused(alpha: PeerCluster = alpha, reason: str = reason) -> bool:
                return alpha.peering.refusals[reason] > 0

            await self.becomes(refused, f"{name} is refused")
            self.assertEqual((alpha.peering.sessions(), mean.peering.sessions()), ((), ()))
            self.assertEqual((await alpha.cluster_record(beta)).spec.fingerprint, beta.key.fingerprint)

    async def test_strangers_do_not_fill_the_records(self) -> None:
        """Beyond max-untrusted nothing more is recorded; that is counted."""
        alpha = await self.side("alpha", settings(max_untrusted=1))
        for name in ("one", "two"):
            stranger = await self.side(name)
            stranger.sees(alpha)
            await self.phase(stranger, alpha, "TrustPending")
        records = await alpha.admin.list(FOREIGNCLUSTERS)
        self.assertEqual(len(records.items), 1)
        self.assertEqual(alpha.peering.refusals["TooManyUntrusted"], 1)

    async def test_a_stranger_in_sight_is_shown_once_there_is_room(self) -> None:
        """Who is in sight and finds no room is shown, without being met again, when another one is trusted."""
        self.patch(records, "NO_ROOM", 0.1)
        alpha = await self.side("alpha", settings(max_untrusted=1))
        one, two = await self.side("one"), await self.side("two")
        alpha.sees(one, two)

        async def shown(count: int) -> set[str] | None:
            found = {body["metadata"]["name"] for body in (await alpha.admin.list(FOREIGNCLUSTERS)).items}
            return found if len(found) == count else None

        (first,) = await self.becomes(lambda: shown(1), "one of them is shown")
        await self.pause(0.5)
        self.assertEqual(await shown(1), {first})
        await alpha.trust(one if first == "one" else two)
        await self.becomes(lambda: shown(2), "the other is shown as well")
        await self.phase(alpha, two if first == "one" else one, "TrustPending")

    async def test_a_stranger_is_shown_although_the_first_attempts_fail(self) -> None:
        """Its record is made as soon as the API server takes it."""
        alpha, beta = await self.pair()
        create, failures = alpha.daemon.create, iter(range(3))

        async def failing(resource: Any, *args: Any, **more: Any) -> Any:
            if resource is FOREIGNCLUSTERS and next(failures, None) is not None:
                raise ApiError(503, "ServiceUnavailable", "busy")
            return await create(resource, *args, **more)

        self.patch(alpha.daemon, "create", failing)
        alpha.sees(beta)
        await self.phase(alpha, beta, "TrustPending")
        self.assertIsNone(next(failures, None), "it did fail")

    async def test_taking_trust_back_ends_the_session(self) -> None:
        """Clearing the pin closes the session; what was accepted is refused, and the key is looked at again."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": {"fingerprint": ""}})

        async def gone() -> bool:
            return not alpha.peering.sessions() and (await alpha.offer_record(beta)).status.reason == "NotTrusted"

        await self.becomes(gone, "beta is not trusted any more")
        self.assertEqual((await self.phase(alpha, beta, "TrustPending")).status.seen_fingerprint, beta.key.fingerprint)

    async def test_a_common_ca_is_trust_enough(self) -> None:
        """With autojoin, whom the configured CA names is pinned without asking; under another's name it is not."""
        now = datetime.datetime.now(datetime.UTC)
        authority = Authority(now=now)

        def member(name: str) -> Any:
            return authority.issue(name, start=now - DAY, end=now + DAY)

        alpha = await self.side("alpha", key=member("alpha"), ca=authority.pem)
        beta = await self.side("beta", key=member("beta"), ca=authority.pem)
        liar = await self.side("gamma", settings(autojoin_untrusted=True), key=member("delta"), ca=authority.pem)
        careful = await self.side("omega", settings(autojoin=False), key=member("omega"), ca=authority.pem)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        self.assertEqual((await beta.cluster_record(alpha)).spec.fingerprint, alpha.key.fingerprint)
        liar.sees(alpha)
        await self.phase(alpha, liar, "TrustPending")
        self.assertEqual((await alpha.cluster_record(liar)).spec.fingerprint, "")
        beta.sees(careful)
        await self.phase(careful, beta, "TrustPending")
        self.assertEqual((await careful.cluster_record(beta)).spec.fingerprint, "")

    async def test_no_more_sessions_than_allowed(self) -> None:
        """A connection beyond max-sessions is turned away before TLS and counted; there is room again afterwards."""
        alpha = await self.side("alpha", settings(autojoin_untrusted=True, max_sessions=1))
        first = await self.side("first", settings(autojoin_untrusted=True))
        first.sees(alpha)
        await self.peered(first, alpha)
        second = await self.side("second", settings(autojoin_untrusted=True))
        second.sees(alpha)

        async def refused() -> bool:
            return alpha.peering.refusals["TooManySessions"] > 0

        await self.becomes(refused, "the second is turned away")
        self.assertEqual([session.peer for session in alpha.peering.sessions()], ["first"])
        await first.stop()
        await self.peered(second, alpha)

    async def test_meeting_oneself_is_no_peering(self) -> None:
        """A cluster that sees its own announcement records nothing."""
        alpha = await self.side("alpha", settings(autojoin_untrusted=True))
        alpha.peering.update_candidates([FakeSighting("127.0.0.1", alpha.peering.port)])
        await self.pause(0.5)
        self.assertEqual((await alpha.admin.list(FOREIGNCLUSTERS)).items, [])


class OfferTests(PairCase):
    """Offers and what becomes of them."""

    async def lending(self, count: int, chosen: Any) -> tuple[PeerCluster, list[PeerCluster]]:
        home = await self.side("home", chosen)
        lenders = []
        for number in range(count):
            lender = await self.side(f"lender-{number}", settings(autojoin_untrusted=True, outgoing="No"))
            lenders.append(lender)
            await home.trust(lender)
            home.sees(*lenders)

            async def offered(lender: PeerCluster = lender) -> bool:
                return bool((await home.offer_record(lender)).status.phase)

            await self.becomes(offered, f"{lender.name} offers")
            await self.pause(1.05)  # creation times are in seconds: first seen, first served
        return home, lenders

    async def test_room_is_given_in_first_seen_order(self) -> None:
        """AutoAcceptMax(1): the second is refused for room, and accepted when the first is refused by the user."""
        home, (first, second) = await self.lending(2, accepting("AutoAcceptMax", 1))
        await self.peered(home, first)

        async def reason(expected: str) -> bool:
            return (await home.offer_record(second)).status.reason == expected

        await self.becomes(lambda: reason("NoRoom"), "the second is refused for room")
        self.assertEqual((await second.cluster_record(home)).status.lent.reason, "NoRoom")  # type: ignore[union-attr]
        use_rules(home.peering._acceptance, AcceptanceRules("AutoAcceptMax", 0))
        await self.pause(0.2)
        self.assertEqual((await home.offer_record(first)).status.phase, "Accepted")
        use_rules(home.peering._acceptance, AcceptanceRules("AutoAcceptMax", 1))
        await home.admin.patch(ADVERTISEMENTS, advertisement_name(first.id), {"spec": {"decision": "Refuse"}})
        await self.peered(home, second)

        async def undone() -> bool:
            return home.id not in first.room.tenants and home.id in first.room.dismissed

        await self.becomes(undone, "the first dismissed its tenant")
        self.assertEqual((await home.offer_record(first)).status.reason, "RefusedByUser")

    async def test_manual_waits_for_the_user(self) -> None:
        """Nothing is lent before the user says Accept, and the lender knows that it is being thought about."""
        home, (lender,) = await self.lending(1, accepting("Manual"))
        self.assertEqual((await home.offer_record(lender)).status.phase, "Pending")

        async def reported() -> bool:
            lent = (await lender.cluster_record(home)).status.lent
            return lent is not None and lent.verdict == "Pending"

        await self.becomes(reported, "the lender is sent Pending")
        self.assertEqual(lender.room.tenants, {})
        await home.admin.patch(ADVERTISEMENTS, advertisement_name(lender.id), {"spec": {"decision": "Accept"}})
        await self.peered(home, lender)

    async def test_a_change_of_five_percent_is_reported(self) -> None:
        """A little less capacity is kept quiet, a lot less arrives in the record; nothing is accepted again."""
        home, (lender,) = await self.lending(1, accepting("AutoAcceptAll"))
        await self.peered(home, lender)
        before = await home.offer_record(lender)
        await lender.set_cpu("one", "9900m")
        await self.pause(1.5)
        self.assertEqual((await home.offer_record(lender)).metadata.resource_version, before.metadata.resource_version)
        await lender.set_cpu("one", "5")

        async def halved() -> bool:
            return (await home.offer_record(lender)).spec.offer.resources["cpu"] == "1500m"

        await self.becomes(halved, "the offer is halved")
        lent = (await lender.cluster_record(home)).status.lent
        self.assertEqual(lent.resources["cpu"] if lent else "", "1500m")
        self.assertEqual((await home.offer_record(lender)).status.phase, "Accepted")

    async def test_no_longer_lending_withdraws(self) -> None:
        """incomingPeering No takes the offer back and the rights with it; Yes offers again."""
        home, (lender,) = await self.lending(1, accepting("AutoAcceptAll"))
        await self.peered(home, lender)
        await lender.admin.patch(FOREIGNCLUSTERS, home.id, {"spec": {"incomingPeering": "No"}})

        async def withdrawn() -> bool:
            return (await home.offer_record(lender)).status.phase == "Withdrawn" and home.id not in lender.room.tenants

        await self.becomes(withdrawn, "the offer is withdrawn")
        await lender.admin.patch(FOREIGNCLUSTERS, home.id, {"spec": {"incomingPeering": "Yes"}})

        async def again() -> bool:
            return (await home.offer_record(lender)).status.phase == "Accepted" and home.id in lender.room.tenants

        await self.becomes(again, "the offer is back")

    async def test_a_lender_that_cannot_make_room_says_so_and_tries_again(self) -> None:
        """While admitting is refused both records stay accepted, ours tells why; the borrower gets in once it works."""
        home = await self.side("home", accepting("AutoAcceptAll"))
        lender = await self.side("lender", settings(autojoin_untrusted=True, outgoing="No"))
        lender.room.refuse = Refusal("NamespaceTaken", "somebody else's namespace has the name")
        await home.trust(lender)
        home.sees(lender)

        async def reported() -> str:
            status = (await lender.cluster_record(home)).status
            lending = find_condition(status.conditions, "Lending")
            known = lending is not None and lending.message == status.message
            return status.message if known and "somebody else's namespace" in status.message else ""

        message = await self.becomes(reported, "the lender's record tells why")
        self.assertRegex(message, r"tried again within \d+ s")
        self.assertEqual((await home.offer_record(lender)).status.phase, "Accepted")
        lender.room.refuse = None
        await self.peered(home, lender)

        async def untold() -> bool:
            return "somebody else" not in (await lender.cluster_record(home)).status.message

        await self.becomes(untold, "the trouble is over")

    async def test_not_borrowing_refuses(self) -> None:
        """outgoingPeering No refuses with PeeringDisabled, and removes the virtual node."""
        home, (lender,) = await self.lending(1, accepting("AutoAcceptAll"))
        await self.peered(home, lender)
        await home.admin.patch(FOREIGNCLUSTERS, lender.id, {"spec": {"outgoingPeering": "No"}})

        async def refused() -> bool:
            lent = (await lender.cluster_record(home)).status.lent
            return lent is not None and (lent.verdict, lent.reason) == ("Refused", "PeeringDisabled")

        await self.becomes(refused, "the lender is sent PeeringDisabled")


class NamespaceTests(PairCase):
    """Places for namespaces."""

    async def test_a_namespace_is_mapped_and_released(self) -> None:
        """The lender's answer comes back; its refusal too; and without a session the peer is unreachable."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        self.assertEqual(await alpha.peering.map_namespace(beta.id, "shop", "shop-alpha"), "shop-alpha")
        self.assertEqual(beta.room.namespaces, {("alpha", "shop-alpha"): "shop"})
        beta.room.refuse = Refusal("QuotaExceeded", "no more namespaces")
        refusal = await self.assertFailure(_d(alpha.peering.map_namespace(beta.id, "a", "a-alpha")), Refusal)
        self.assertEqual(refusal.reason, "QuotaExceeded")
        await alpha.peering.release_namespace(beta.id, "shop-alpha")
        self.assertEqual(beta.room.namespaces, {})
        await beta.stop()
        await self.assertFailure(_d(alpha.peering.map_namespace(beta.id, "a", "a-alpha")), PeerUnreachable)


class RestartTests(PairCase):
    """Restarts change nothing."""

    async def test_a_restart_on_either_side_tears_nothing_down(self) -> None:
        """Sessions come back, offers are sent again, credentials renewed; records that are equal are not rewritten."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        await self.pause(0.3)
        offer, node = await alpha.offer_record(beta), await alpha.virtual_node(beta)
        minted = beta.room.minted
        for side, other in ((beta, alpha), (alpha, beta)):
            await side.stop()
            await side.start()
            side.sees(other)
            other.sees(side)

            async def session(side: PeerCluster = side) -> bool:
                return bool(side.peering.sessions())

            await self.becomes(session, f"{side.name} is back")

        async def renewed() -> bool:
            return beta.room.minted > minted

        await self.becomes(renewed, "the credential is renewed")
        await self.pause(0.5)
        self.assertEqual((await alpha.virtual_node(beta)).metadata.uid, node.metadata.uid)
        after = await alpha.offer_record(beta)
        self.assertEqual(after.metadata.resource_version, offer.metadata.resource_version)

    async def test_a_quiet_peering_writes_nothing(self) -> None:
        """Once peered, neither side writes to its API server while nothing changes."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        await self.pause(1.0)
        before = [dict(side.daemon.requests) for side in (alpha, beta)]
        await self.pause(3.0)
        self.assertEqual([dict(side.daemon.requests) for side in (alpha, beta)], before)
        self.assertEqual(len(alpha.peering.sessions()) + len(beta.peering.sessions()), 2)

    async def test_losing_sight_deletes_nothing(self) -> None:
        """A peer that stops and is not seen any more becomes Suspect; its offer and virtual node stay."""
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await beta.stop()
        alpha.peering.update_candidates([])
        await self.phase(alpha, beta, "Suspect")
        self.assertEqual((await alpha.offer_record(beta)).status.phase, "Accepted")
        self.assertEqual((await alpha.virtual_node(beta)).spec.node_name, "liqo-beta")
        condition = find_condition((await alpha.cluster_record(beta)).status.conditions, "Discovered")
        self.assertEqual((condition.status, condition.reason) if condition else (), ("Unknown", "OutOfSight"))


class LostTests(PairCase):
    """An offer that is not renewed in time."""

    async def test_an_offer_that_is_not_renewed_expires_and_comes_back(self) -> None:
        """Lost after the TTL: the offer is Expired, keeps its place, and is Accepted again when the lender returns."""
        short = msgspec.structs.replace(settings(autojoin_untrusted=True), sharing=SharingSettings(ttl=1.0))
        alpha, beta = await self.pair(settings(autojoin_untrusted=True), short)
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        node = await alpha.virtual_node(beta)
        alpha.peering._acceptance._started -= 1000.0  # as if the daemon had been up for long
        await self.pause(1.5)
        self.assertEqual((await alpha.offer_record(beta)).status.phase, "Accepted")
        await beta.stop()
        record = await self.phase(alpha, beta, "Lost")
        self.assertEqual((await alpha.offer_record(beta)).status.phase, "Expired")
        self.assertEqual((await alpha.virtual_node(beta)).metadata.uid, node.metadata.uid)
        # Also where nothing is lent in the other direction the networks stay.
        one_way = [one for one in record.status.conditions if one.type != "Lending"]
        one_way.append(Condition(type="Lending", status="False", reason="PeeringDisabled"))
        status = msgspec.structs.replace(record.status, conditions=one_way)
        self.assertIsNone(is_peered(msgspec.structs.replace(record, status=status)))
        await beta.start()
        alpha.sees(beta)
        beta.sees(alpha)

        async def back() -> bool:
            return (await alpha.offer_record(beta)).status.phase == "Accepted"

        await self.becomes(back, "the offer is accepted again")
        self.assertEqual((await alpha.virtual_node(beta)).metadata.uid, node.metadata.uid)


def _d(coroutine: Any) -> Any:
    from twisted.internet.defer import Deferred

    return Deferred.fromCoroutine(coroutine)
