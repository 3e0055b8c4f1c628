"""Pairing by token: one person's word on each side, and nothing for anybody in between."""

from __future__ import annotations

import base64
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.flow.clocks import wall_clock
from liqod.flow.controller import After
from liqod.identity.pairing import BadToken, Token, is_proven, proof, read_token, verifier
from liqod.kube.errors import NotFound
from liqod.kube.resources import FOREIGNCLUSTERS, SECRETS
from liqod.model.ids import ClusterID, Fingerprint
from liqod.model.objects.meta import ObjectMeta
from liqod.model.records.invitations import (
    EXPIRES,
    INVITATION,
    INVITATION_LABEL,
    MAX_LIFE,
    VERIFIER,
    invitation_name,
    token_name,
)
from liqod.model.timestamps import rfc3339
from liqod.peering.trust.invitation_expiry import InvitationExpiry
from liqod.peering.trust.pairing import Invitations, Secret, encoded
from tests.clocks import HostClock
from tests.peering.clusters import PairCase, PeerCluster, context_of

KEY = Fingerprint("sha256:" + "a" * 64)
OTHER = Fingerprint("sha256:" + "b" * 64)
TOKEN = Token("0a1b", ClusterID("milan"), "Milan", KEY, ["192.0.2.1:5872"], bytes(range(32)))
SYSTEM = "liqo-system"


class TokenTests(SynchronousTestCase):
    """What is handed over."""

    def test_a_token_survives_being_written_down(self) -> None:
        """Its text is one word, with whatever blanks came along around it."""
        self.assertEqual(read_token(f"  {TOKEN.text}\n"), TOKEN)
        self.assertNotIn(" ", TOKEN.text)

    @given(st.data())
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_a_mistyped_token_is_refused_with_a_sentence(self, data: Any) -> None:
        """Any cut and any changed character is noticed, and nothing else is raised for any text."""
        text = TOKEN.text
        at = data.draw(st.integers(0, len(text) - 2))
        letter = data.draw(st.sampled_from("Aa0-_=. ~é"))
        for broken in (text[:at], text[:at] + letter + text[at + 1 :]):
            if broken != text:
                with self.assertRaises(BadToken):
                    read_token(broken)

    @given(st.text(max_size=300))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_text_is_a_token_or_refused(self, text: str) -> None:
        """Bad input raises BadToken and nothing else."""
        with self.assertRaises(BadToken):
            read_token("liqo1." + text)

    def test_the_secret_is_not_shown(self) -> None:
        """Neither as bytes nor as text."""
        self.assertNotIn(repr(TOKEN.secret), repr(TOKEN))
        self.assertNotIn(TOKEN.text[20:40], repr(TOKEN))

    def test_a_proof_holds_in_its_session_only(self) -> None:
        """Another session, token, dialer or issuer needs another proof."""
        known = verifier(TOKEN.secret)
        good = proof(known, b"x" * 32, "0a1b", KEY, OTHER)
        self.assertTrue(is_proven(good, proof(known, b"x" * 32, "0a1b", KEY, OTHER)))
        others = (
            proof(known, b"y" * 32, "0a1b", KEY, OTHER),
            proof(known, b"x" * 32, "0a1c", KEY, OTHER),
            proof(known, b"x" * 32, "0a1b", OTHER, OTHER),
            proof(known, b"x" * 32, "0a1b", KEY, KEY),
            proof(verifier(bytes(32)), b"x" * 32, "0a1b", KEY, OTHER),
        )
        self.assertFalse(any(is_proven(good, other) for other in others))


class TokenCase(PairCase):
    """Clusters that issue tokens and use them."""

    async def issue(self, issuer: PeerCluster, *, ttl: float = 60.0, secret: bytes = TOKEN.secret) -> Token:
        data = {
            VERIFIER: verifier(TOKEN.secret),
            EXPIRES: rfc3339(wall_clock(issuer.reactor)() + timedelta(seconds=ttl)),
        }
        body = {"metadata": {"name": token_name("0a1b"), "namespace": SYSTEM}, "data": encoded(data)}
        await issuer.admin.create(SECRETS, body)
        address = f"127.0.0.1:{issuer.peering.port}"
        return Token("0a1b", issuer.id, issuer.name, issuer.key.fingerprint, [address], secret)

    async def use(self, guest: PeerCluster, token: Token) -> None:
        """Do what ``liqodctl peer TOKEN`` does."""
        metadata = {
            "name": invitation_name(token.issuer),
            "namespace": SYSTEM,
            "labels": {INVITATION_LABEL: "true"},
        }
        await guest.admin.create(SECRETS, {"metadata": metadata, "data": encoded({INVITATION: token.text})})
        spec = {
            "clusterID": token.issuer,
            "fingerprint": token.fingerprint,
            "endpoints": [{"address": each} for each in token.addresses],
        }
        await guest.admin.create(FOREIGNCLUSTERS, {"metadata": {"name": token.issuer}, "spec": spec})


class JoinTests(TokenCase):
    """Two clusters and a token."""

    async def kept(self, issuer: PeerCluster) -> dict[str, str]:
        data = (await issuer.admin.get(SECRETS, token_name("0a1b"), SYSTEM))["data"]
        return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in data.items()}

    async def refused(self, guest: PeerCluster, issuer: PeerCluster) -> str:
        """Wait until the guest is refused; returns why."""

        async def reported() -> str:
            status = (await guest.cluster_record(issuer)).status
            return status.message if status.reason == "TokenRefused" else ""

        return await self.becomes(reported, f"{guest.name} is refused")

    async def test_a_token_is_trust_on_both_sides(self) -> None:
        """Nothing more is said on either side; the token is spent, and neither side keeps its secret."""
        issuer, guest = await self.pair()
        await self.use(guest, await self.issue(issuer))
        await self.peered(guest, issuer)
        await self.peered(issuer, guest)
        self.assertEqual((await issuer.cluster_record(guest)).spec.fingerprint, guest.key.fingerprint)
        self.assertEqual((await self.kept(issuer))["used-by"], guest.key.fingerprint)

        async def forgotten() -> bool:
            try:
                await guest.admin.get(SECRETS, invitation_name(issuer.id), SYSTEM)
            except NotFound:
                return True
            return False

        await self.becomes(forgotten, "the invitation is forgotten")

    async def test_a_token_is_good_for_one_cluster(self) -> None:
        """A second one is refused with the reason, and shows up as a stranger does: not at all, or waiting for
        trust.
        """
        issuer, guest = await self.pair()
        token = await self.issue(issuer)
        await self.use(guest, token)
        await self.peered(guest, issuer)
        second = await self.side("gamma")
        await self.use(second, token)
        # The token is named, so that the refusal of the next one differs.
        self.assertIn("refuses token/0a1b: the token was used by another cluster", await self.refused(second, issuer))
        self.assertEqual([session.peer for session in issuer.peering.sessions()], [guest.id])

    async def test_an_expired_token_is_refused_and_removed(self) -> None:
        """Its Secret goes with the first attempt to use it."""
        issuer, guest = await self.pair()
        await self.use(guest, await self.issue(issuer, ttl=-1.0))
        self.assertIn("expired", await self.refused(guest, issuer))
        await self.assertFailure(_deferred(self.kept(issuer)), NotFound)

    async def test_five_wrong_proofs_kill_a_token(self) -> None:
        """Each is counted; afterwards the right secret does not help any more."""
        issuer = await self.side("alpha")
        wrong = await self.issue(issuer, secret=bytes(32))
        for number in range(5):
            guesser = await self.side(f"guesser-{number}")
            await self.use(guesser, wrong)
            self.assertIn("not proven", await self.refused(guesser, issuer))
        self.assertEqual((await self.kept(issuer))["attempts"], "5")
        guest = await self.side("beta")
        right = Token(wrong.id, wrong.issuer, wrong.name, wrong.fingerprint, wrong.addresses, TOKEN.secret)
        await self.use(guest, right)
        self.assertIn("tried wrongly 5 times", await self.refused(guest, issuer))
        self.assertEqual(issuer.peering.sessions(), ())

    async def test_nothing_is_said_to_another_key(self) -> None:
        """Where somebody else answers at the token's address, not even a Hello is sent; the record says so."""
        issuer, guest = await self.pair()
        impostor = await self.side("gamma")
        token = await self.issue(issuer)
        address = [f"127.0.0.1:{impostor.peering.port}"]
        await self.use(guest, Token(token.id, token.issuer, token.name, token.fingerprint, address, token.secret))

        async def reported() -> bool:
            status = (await guest.cluster_record(issuer)).status
            return status.reason == "UnexpectedKey" and "nothing was sent" in status.message

        await self.becomes(reported, "the guest says that another key answers")
        self.assertEqual((await impostor.admin.list(FOREIGNCLUSTERS)).items, [])
        self.assertNotIn("used-by", await self.kept(issuer))

    async def test_an_invitation_goes_when_its_token_has_expired_in_any_case(self) -> None:
        """Also where its issuer never answers, so that it has no end otherwise."""
        clock, deleted = HostClock(1e9), list[Any]()
        made = wall_clock(clock)() - MAX_LIFE + timedelta(minutes=1)
        meta = ObjectMeta(name="liqod-invitation-milan", namespace=SYSTEM, uid="u", creation_timestamp=rfc3339(made))

        class Around:
            """The API server, and the invitations that a watch has shown."""

            def get(self, key: object) -> Secret:
                return Secret(metadata=meta)

            async def delete(self, resource: object, name: str, namespace: str, **more: object) -> None:
                deleted.append((name, namespace, more))

        expiry = InvitationExpiry(context_of(clock, client=Around()), cast(Any, Around()))
        self.assertEqual(await expiry.reconcile(meta.key), After(60.0))
        self.assertEqual(deleted, [])
        clock.advance(61)
        self.assertIsNone(await expiry.reconcile(meta.key))
        self.assertEqual(deleted, [(meta.name, SYSTEM, {"uid": "u"})])

    async def test_a_late_refusal_leaves_the_next_invitation(self) -> None:
        """What is deleted is the invitation of the token that was refused, not the one that replaced it."""
        deleted = list[str]()
        meta = ObjectMeta(name=invitation_name(TOKEN.issuer), namespace=SYSTEM, uid="u")
        kept = Secret(metadata=meta, data=encoded({INVITATION: TOKEN.text}))
        informer = SimpleNamespace(get=lambda key: kept)

        async def delete(resource: object, name: str, namespace: str, *, uid: str) -> None:
            deleted.append(uid)

        around = cast(Any, SimpleNamespace(of=lambda *a, **k: informer, delete=delete))
        invitations = Invitations(around, around, SYSTEM, cast(Any, None))
        await invitations.delete(TOKEN.issuer, "0a1a")
        self.assertEqual(deleted, [])
        await invitations.delete(TOKEN.issuer, TOKEN.id)
        self.assertEqual(deleted, ["u"])

    async def test_unknown_tokens_cannot_be_guessed_forever(self) -> None:
        """Beyond thirty a minute the API is not even asked."""
        issuer, guest = await self.pair()
        token = await self.issue(issuer)
        await issuer.admin.delete(SECRETS, token_name(token.id), SYSTEM)
        issuer.peering._sessions._authenticator._tokens._guesses = 30
        issuer.peering._sessions._authenticator._tokens._minute = int(issuer.reactor.seconds() // 60)
        await self.use(guest, token)
        await self.refused(guest, issuer)


def _deferred(coroutine: Any) -> Any:
    from twisted.internet.defer import Deferred

    return Deferred.fromCoroutine(coroutine)
