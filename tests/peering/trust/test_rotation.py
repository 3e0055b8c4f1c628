"""Changing a cluster's key between two peering services on real sockets: announced, kept, used; and forged."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, cast

import msgspec
from twisted.internet import reactor
from twisted.protocols import portforward

from liqod.identity.rotation import announce
from liqod.identity.store import from_secret, to_secret
from liqod.identity.tls import NEW_KEY, PeerTLS
from liqod.kube.resources import FOREIGNCLUSTERS, SECRETS
from liqod.model.ids import ClusterID
from liqod.model.records.rotation import IDENTITY_SECRET, NEXT_KEY, ORDER, PROGRESS, RotationOrder
from liqod.model.records.views import ForeignCluster
from liqod.peering.trust.rotation import KeyRotation
from liqod.wire.events import Hello, KeyNoted, NewKey, Welcome
from tests.peering.clusters import FakeSighting, PairCase, PeerCluster, accepting, keypair
from tests.peering.session.test_hostile import HostileCase, Speaker

OWN = "liqo-system"


class RotationCase(PairCase):
    """Two sides whose keys lie in Secrets, as the daemon keeps them."""

    patience = 20.0

    async def keep(self, side: PeerCluster) -> None:
        body = {
            "metadata": {"name": IDENTITY_SECRET},
            "type": "kubernetes.io/tls",
            "data": to_secret(side.key),
        }
        await side.admin.create(SECRETS, body, OWN)

    async def secret(self, side: PeerCluster) -> dict[str, Any]:
        found: dict[str, Any] = await side.admin.get(SECRETS, IDENTITY_SECRET, OWN)
        return found

    async def order(self, side: PeerCluster, within: float | None = 3600.0) -> None:
        change = {"metadata": {"annotations": {ORDER: RotationOrder(within).render()}}}
        await side.admin.patch(SECRETS, IDENTITY_SECRET, change, OWN)

    async def progress(self, side: PeerCluster) -> str:
        secret = await self.secret(side)
        return str(secret["metadata"].get("annotations", {}).get(PROGRESS, ""))

    async def says(self, side: PeerCluster, words: str) -> None:
        async def check() -> bool:
            return words in await self.progress(side)

        await self.becomes(check, f"{side.name} says {words!r}")

    async def start(self, side: PeerCluster) -> None:
        """Start a daemon as the agent does: with the key that the Secret holds now."""
        side.key = from_secret((await self.secret(side))["data"])
        await side.start()

    async def trusting_pair(self) -> tuple[PeerCluster, PeerCluster]:
        alpha, beta = await self.pair(accepting("AutoAcceptAll"), accepting("AutoAcceptAll"))
        for side, other in ((alpha, beta), (beta, alpha)):
            await self.keep(side)
            await side.trust(other)
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        return alpha, beta

    async def has_changed(self, side: PeerCluster, other: PeerCluster, before: str) -> str:
        """Wait until a side has another key, the other pins it, and they have a session; returns the key."""

        async def check() -> str | None:
            key = from_secret((await self.secret(side))["data"]).fingerprint
            pinned = (await side_record(other, side)).spec.fingerprint
            if key == before or pinned != key or not side.peering.sessions() or not other.peering.sessions():
                return None
            return key if side.peering.fingerprint == key else None

        return await self.becomes(check, f"{side.name} has a new key and a session with it")


async def side_record(at: PeerCluster, of: PeerCluster) -> ForeignCluster:
    return await at.cluster_record(of)


class RotationTests(RotationCase):
    """What an administrator sees."""

    async def test_a_connected_peer_follows(self) -> None:
        """The next key is announced, noted, used; the peering goes on as the same one, and the old key is refused."""
        alpha, beta = await self.trusting_pair()
        before, node = alpha.key, await beta.virtual_node(alpha)
        await self.order(alpha)
        key = await self.has_changed(alpha, beta, before.fingerprint)
        await self.says(alpha, "done")
        self.assertNotIn(NEXT_KEY, (await self.secret(alpha))["data"])
        self.assertNotIn(ORDER, (await self.secret(alpha))["metadata"]["annotations"])
        self.assertEqual((await beta.virtual_node(alpha)).metadata.uid, node.metadata.uid)
        self.assertEqual((await alpha.cluster_record(beta)).spec.fingerprint, beta.key.fingerprint)
        await self.is_reported(beta, "KeyRotated")
        await alpha.stop()
        alpha.key = before
        await alpha.admin.delete(SECRETS, IDENTITY_SECRET, OWN)  # so that the daemon believes that the old one is right
        await alpha.start()
        alpha.sees(beta)
        beta.sees(alpha)

        async def refused() -> bool:
            return beta.peering.refusals["ClusterIDRepetition"] > 0

        await self.becomes(refused, "the old key is refused")
        self.assertEqual((await beta.cluster_record(alpha)).spec.fingerprint, key)

    async def test_a_peer_that_is_away_hears_when_it_returns(self) -> None:
        """The present key serves until the one that was away has the next one; the sentence names whom it waits for."""
        alpha, beta = await self.trusting_pair()
        before = alpha.key.fingerprint
        await beta.stop()
        await self.order(alpha)
        await self.says(alpha, "waiting")
        self.assertIn("for beta to note", await self.progress(alpha))
        self.assertEqual(alpha.peering.fingerprint, before)
        await self.start(beta)
        beta.sees(alpha)
        alpha.sees(beta)
        await self.has_changed(alpha, beta, before)

    async def test_a_peer_that_comes_too_late_must_trust_again(self) -> None:
        """When the wait is over the key changes all the same: who was away refuses it until its admin trusts it."""
        alpha, beta = await self.trusting_pair()
        before = alpha.key.fingerprint
        await beta.stop()
        await self.order(alpha, 0.0)
        await self.says(alpha, "beta did not learn of it and must trust this cluster again")
        await self.start(beta)
        beta.sees(alpha)
        alpha.sees(beta)

        async def refused() -> bool:
            return (await beta.cluster_record(alpha)).status.reason == "ClusterIDRepetition"

        await self.becomes(refused, "beta refuses the key that was never announced")
        self.assertEqual((await beta.cluster_record(alpha)).spec.fingerprint, before)
        alpha.key = from_secret((await self.secret(alpha))["data"])
        await beta.trust(alpha)
        await self.has_changed(alpha, beta, before)

    async def test_an_order_can_be_taken_back(self) -> None:
        """The next key is forgotten on both sides; the present one was never touched."""
        alpha, beta = await self.trusting_pair()
        before = alpha.key.fingerprint
        await beta.stop()
        await self.order(alpha)
        await self.says(alpha, "waiting")
        await alpha.admin.patch(SECRETS, IDENTITY_SECRET, {"metadata": {"annotations": {ORDER: None}}}, OWN)
        await self.says(alpha, "taken back")
        secret = await self.secret(alpha)
        self.assertNotIn(NEXT_KEY, secret["data"])
        self.assertEqual(from_secret(secret["data"]).fingerprint, before)

    async def test_both_may_change_at_once(self) -> None:
        """Two rotations that cross each other both end well."""
        alpha, beta = await self.trusting_pair()
        one, two = alpha.key.fingerprint, beta.key.fingerprint
        await self.order(alpha)
        await self.order(beta)
        await self.has_changed(alpha, beta, one)
        await self.has_changed(beta, alpha, two)

    async def test_an_older_peer_is_not_sent_what_it_cannot_understand(self) -> None:
        """A peer that speaks minor 0 gets no NewKey: it is waited for as one that is away, and named."""
        alpha, beta = await self.pair(accepting("AutoAcceptAll"), accepting("AutoAcceptAll"))
        sessions: Any = beta.peering._sessions
        hello = sessions.hello
        sessions.hello = lambda connection: msgspec.structs.replace(hello(connection), max_minor=0)
        await self.keep(alpha)
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        await self.order(alpha)
        await self.says(alpha, "waiting")
        self.assertIn("for beta", await self.progress(alpha))
        self.assertEqual(beta.peering.refusals["Unsupported"], 0)
        self.assertIsNone((await beta.cluster_record(alpha)).spec.announced_key)

    async def test_a_key_in_files_is_left_alone(self) -> None:
        """Who keeps the key in files is asked to replace these; the order is taken away."""
        alpha, _ = await self.trusting_pair()
        rotation: KeyRotation = alpha.peering._controllers.trust.rotation
        rotation._in_files = True
        await self.order(alpha)
        await self.says(alpha, "files named under [identity]")
        self.assertNotIn(ORDER, (await self.secret(alpha))["metadata"]["annotations"])


class Held(portforward.ProxyServer):
    """A connection through a ``Gate``."""

    factory: Any

    def connectionMade(self) -> None:
        self.transport.pauseProducing()
        self.factory.came(super().connectionMade)


class Gate(portforward.ProxyFactory):
    """Forwards to a port of this host; connections wait until it is open."""

    protocol = Held
    noisy = False

    def __init__(self, port: int) -> None:
        super().__init__("127.0.0.1", port)
        self.waiting: list[Callable[[], None]] = []
        self._is_open = False

    def came(self, forward: Callable[[], None]) -> None:
        if self._is_open:
            forward()
        else:
            self.waiting.append(forward)

    def open(self) -> None:
        self._is_open = True
        for forward in self.waiting:
            forward()


class CrashTests(RotationCase):
    """The daemon ends between any two steps; what is on record is enough to go on."""

    timeout = 180

    async def test_a_death_after_any_write(self) -> None:
        """Whichever write to the Secret was the last one, another daemon goes on; the peering is never lost."""
        alpha, beta = await self.trusting_pair()
        node = await beta.virtual_node(alpha)
        for deadly in ("the next key is made", "waiting", "done"):
            before = from_secret((await self.secret(alpha))["data"]).fingerprint
            self.die_after(alpha, deadly)
            if deadly == "waiting":
                await beta.stop()
            await self.order(alpha)
            await self.says(alpha, deadly)
            await alpha.stop()
            if deadly == "waiting":
                await self.start(beta)
            await self.start(alpha)
            alpha.sees(beta)
            beta.sees(alpha)
            await self.has_changed(alpha, beta, before)
            self.assertEqual((await beta.virtual_node(alpha)).metadata.uid, node.metadata.uid)

    async def test_a_death_of_the_peer_before_it_answers(self) -> None:
        """A peer that kept the key and could not say so any more says it in the next session."""
        alpha, beta = await self.trusting_pair()
        before = alpha.key.fingerprint
        records: Any = beta.peering._records
        kept = records.record_next_key
        said: list[bool] = []

        async def announced(*arguments: Any) -> bool:
            said.append(await kept(*arguments))
            return False  # as if the daemon had ended here

        records.record_next_key = announced
        await self.order(alpha)

        async def on_record() -> bool:
            return (await beta.cluster_record(alpha)).spec.next_key is not None

        await self.becomes(on_record, "beta keeps the next key")
        self.assertEqual(alpha.peering.fingerprint, before)
        await beta.stop()
        await self.start(beta)
        beta.sees(alpha)
        alpha.sees(beta)
        await self.has_changed(alpha, beta, before)

    async def test_a_handshake_that_outlives_the_key(self) -> None:
        """A connection that was opened with the former key, and is ready only now, takes the place of no new one."""
        alpha, beta = await self.trusting_pair()
        before = alpha.key.fingerprint
        gate = Gate(beta.peering.port)
        port = cast(Any, reactor).listenTCP(0, gate, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        beta.peering.update_candidates([])  # only alpha dials
        alpha.peering.update_candidates([FakeSighting("127.0.0.1", port.getHost().port, beta.id, beta.name)])
        sessions: Any = alpha.peering._sessions
        sessions.peer(beta.id).dialer._connect(f"127.0.0.1:{port.getHost().port}")

        async def waits() -> bool:
            return bool(gate.waiting)

        await self.becomes(waits, "a connection in its handshake")
        alpha.peering.own_key.subscribe(lambda _: gate.open())
        await self.order(alpha)
        await self.has_changed(alpha, beta, before)

    async def test_a_standby_takes_over_with_the_key_of_the_moment(self) -> None:
        """A daemon that knows only the key before the last rotation uses the one that the Secret holds."""
        alpha, beta = await self.trusting_pair()
        before = alpha.key
        await self.order(alpha)
        key = await self.has_changed(alpha, beta, before.fingerprint)
        await alpha.stop()
        alpha.key = before
        await alpha.start()
        alpha.sees(beta)
        beta.sees(alpha)

        async def connected() -> bool:
            return bool(alpha.peering.sessions()) and alpha.peering.fingerprint == key

        await self.becomes(connected, "a session with the present key")

    def die_after(self, side: PeerCluster, words: str) -> None:
        """Let a daemon take no step any more after it wrote a sentence."""
        rotation: Any = side.peering._controllers.trust.rotation
        adopt, write = rotation._use_key, rotation._write
        dead: list[bool] = []

        async def last(secret: Any, data: Any, annotations: Any) -> Any:
            if dead:
                return None
            result = await write(secret, data, annotations)
            if words in (annotations.get(PROGRESS) or ""):
                dead.append(True)
            return result

        rotation._write = last
        rotation._use_key = lambda secret: not dead and adopt(secret)


class ForgeryTests(HostileCase):
    """A peer that announces a key that is not its own, or somebody else's announcement."""

    async def speak(self, side: PeerCluster, name: str, minor: int = 1) -> tuple[Speaker, Any]:
        key = keypair(name)
        body = {"metadata": {"name": name}, "spec": {"clusterID": name, "fingerprint": key.fingerprint}}
        await side.admin.apply(FOREIGNCLUSTERS, body, manager="liqodctl")
        tls = PeerTLS(key)
        speaker = Speaker(name)

        async def known() -> bool:
            return side.peering._records.pins.get(ClusterID(name)) == key.fingerprint

        await self.becomes(known, f"{name} is trusted")
        await self.connect(side, speaker, tls.client_creator())
        speaker.say(Hello(name, name, 1, 0, minor, []))

        async def welcomed() -> bool:
            return any(isinstance(event, Welcome) for event in speaker.events)

        await self.becomes(welcomed, f"{name} is welcome")
        return speaker, tls

    async def answer(self, speaker: Speaker, event: NewKey) -> KeyNoted:
        before = sum(isinstance(seen, KeyNoted) for seen in speaker.events)
        speaker.say(event)

        async def check() -> KeyNoted | None:
            answers = [seen for seen in speaker.events if isinstance(seen, KeyNoted)]
            return answers[-1] if len(answers) > before else None

        return await self.becomes(check, "an answer")

    async def test_what_does_not_belong_here_is_refused(self) -> None:
        """An announcement of another session, of another's key, or without proof changes nothing; a good one does."""
        side = await self.side("alpha")
        mean, tls = await self.speak(side, "mean")
        other, _ = await self.speak(side, "other")
        here = tls.binding(mean.transport, NEW_KEY)
        following = keypair("mean")
        present = tls.keypair.fingerprint
        elsewhere = NewKey(*announce(following, ClusterID("mean"), present, bytes(32)))
        of_other = NewKey(*announce(following, ClusterID("other"), present, here))
        garbled = NewKey(elsewhere.public_key, base64.b64encode(bytes(64)).decode())
        for forged in (elsewhere, of_other, garbled):
            self.assertEqual((await self.answer(mean, forged)).reason, "KeyNotProven")
        good = NewKey(*announce(following, ClusterID("mean"), present, here))
        self.assertEqual((await self.answer(other, good)).reason, "KeyNotProven")
        taken = NewKey(*announce(side.key, ClusterID("mean"), present, here))
        self.assertEqual((await self.answer(mean, taken)).reason, "KeyInUse")
        record = await side.admin.get(FOREIGNCLUSTERS, "mean", view=ForeignCluster)
        self.assertIsNone(record.spec.announced_key)
        self.assertEqual(side.peering.refusals["KeyNotProven"], 4)
        self.assertEqual((await self.answer(mean, good)).reason, "")
        record = await side.admin.get(FOREIGNCLUSTERS, "mean", view=ForeignCluster)
        self.assertEqual(record.spec.next_key, following.fingerprint)
        self.assertEqual(record.spec.fingerprint, present)

    async def test_a_flood_of_announcements_is_written_slowly(self) -> None:
        """A hundred announcements in a row cost two writes at most, and the newest is what is kept in the end."""
        side = await self.side("alpha")
        mean, tls = await self.speak(side, "mean")
        here = tls.binding(mean.transport, NEW_KEY)
        versions = set()
        for number in range(100):
            following = keypair("mean")
            mean.say(NewKey(*announce(following, ClusterID("mean"), tls.keypair.fingerprint, here)))
            if number % 10 == 0:
                await self.pause(0.02)
                record = await side.admin.get(FOREIGNCLUSTERS, "mean", view=ForeignCluster)
                versions.add(record.spec.next_key)
        await self.pause(0.2)
        record = await side.admin.get(FOREIGNCLUSTERS, "mean", view=ForeignCluster)
        versions.add(record.spec.next_key)
        self.assertLessEqual(len(versions - {None}), 2)
