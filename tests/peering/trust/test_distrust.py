"""Trust that was taken back: what ends with it, and every way by which a key might come back."""

from __future__ import annotations

import datetime
from datetime import timedelta
from typing import Any

import msgspec

from liqod.config.schema import DiscoverySettings, PeerSettings, Settings
from liqod.flow.clocks import wall_clock
from liqod.identity.certs import KeyPair
from liqod.identity.pairing import Token, verifier
from liqod.kube.errors import ApiError, NotFound
from liqod.kube.resources import CONFIGMAPS, FOREIGNCLUSTERS, SECRETS, VIRTUALNODES
from liqod.model.ids import ClusterID
from liqod.model.names import tenant_namespace
from liqod.model.objects.meta import Object, find_condition
from liqod.model.records.invitations import (
    EXPIRES,
    INVITATION,
    INVITATION_LABEL,
    TOKEN_LABEL,
    VERIFIER,
    invitation_name,
    token_name,
)
from liqod.model.records.unpeering import DISTRUSTED, FINALIZER, ORDER, TOMBSTONES, Tombstone, read
from liqod.model.timestamps import rfc3339
from liqod.peering.trust.pairing import encoded
from tests.identity.tls_pair import DAY, Authority
from tests.peering.clusters import PairCase, PeerCluster, settings

SECRET = bytes(range(32))
SYSTEM = "liqo-system"
PAUSE = 3.0
"""Seconds in which a key that finds a way back would have: the attack took less than that wherever it succeeded."""


class DistrustCase(PairCase):
    """Two clusters that trusted each other."""

    async def issue(self, issuer: PeerCluster, number: int = 0) -> Token:
        """Do what ``liqodctl token create`` does."""
        name = f"0a1b{number}"
        data = {VERIFIER: verifier(SECRET), EXPIRES: rfc3339(wall_clock(issuer.reactor)() + timedelta(hours=1))}
        metadata = {"name": token_name(name), "namespace": SYSTEM, "labels": {TOKEN_LABEL: "true"}}
        await issuer.admin.create(SECRETS, {"metadata": metadata, "data": encoded(data)})
        address = f"127.0.0.1:{issuer.peering.port}"
        return Token(name, issuer.id, issuer.name, issuer.key.fingerprint, [address], SECRET)

    async def use(self, guest: PeerCluster, token: Token) -> None:
        """Do what ``liqodctl peer TOKEN`` does, whatever there is already."""
        metadata = {"name": invitation_name(token.issuer), "namespace": SYSTEM, "labels": {INVITATION_LABEL: "true"}}
        body = {"metadata": metadata, "data": encoded({INVITATION: token.text})}
        await guest.admin.apply(SECRETS, body, manager="liqodctl")
        spec = {
            "clusterID": token.issuer,
            "fingerprint": token.fingerprint,
            "endpoints": [{"address": each} for each in token.addresses],
        }
        await guest.admin.apply(FOREIGNCLUSTERS, {"metadata": {"name": token.issuer}, "spec": spec}, manager="liqodctl")

    async def distrust(self, side: PeerCluster, other: PeerCluster) -> None:
        """Do what ``liqodctl distrust`` does."""
        unseen = {"status": {"seenFingerprint": None, "words": None}}
        await side.admin.patch(FOREIGNCLUSTERS, other.id, unseen, subresource="status")
        spec = {"fingerprint": "", "announcedKey": None, "outgoingPeering": "No", "incomingPeering": "No"}
        metadata = {"annotations": {DISTRUSTED: other.key.fingerprint}}
        await side.admin.patch(FOREIGNCLUSTERS, other.id, {"metadata": metadata, "spec": spec})

    async def gone(self, side: PeerCluster, other: PeerCluster) -> None:
        async def check() -> bool:
            try:
                record = await side.admin.get(FOREIGNCLUSTERS, other.id, view=Object)
            except Exception:
                return True
            return not record.metadata.deleting and not record.metadata.finalizers

        await self.becomes(check, f"{side.name} has no peering with {other.name} any more")

    async def refused(self, guest: PeerCluster, issuer: PeerCluster) -> str:
        async def reported() -> str:
            status = (await guest.cluster_record(issuer)).status
            return status.message if status.reason == "TokenRefused" else ""

        return await self.becomes(reported, f"{guest.name} is refused")

    async def recorded(self, side: PeerCluster, other: PeerCluster) -> Tombstone:
        """Return the tombstone as it is in the ConfigMap, once it is there."""

        async def there() -> Tombstone | None:
            return read((await side.admin.get(CONFIGMAPS, TOMBSTONES, SYSTEM))["data"].get(other.id, ""))

        return await self.becomes(there, f"{side.name} has a tombstone of {other.name}")

    async def stays_out(self, side: PeerCluster, other: PeerCluster, *, name: str = "") -> None:
        """Nothing pins the key again, and there is no session, however often it comes."""
        await self.pause(PAUSE)
        for body in (await side.admin.list(FOREIGNCLUSTERS)).items:
            self.assertNotEqual(body["spec"].get("fingerprint"), other.key.fingerprint)
        self.assertEqual([view.peer for view in side.peering.sessions()], [])
        self.assertEqual(side.peering._records.pins, {})


class UsedTokenTests(DistrustCase):
    """A pairing token is good for one session's beginning."""

    async def test_after_unpeering(self) -> None:
        """The guest that was sent away does not come back by the token that it had, under its name or another."""
        issuer, guest = await self.pair()
        token = await self.issue(issuer)
        await self.use(guest, token)
        await self.peered(guest, issuer)
        await self.peered(issuer, guest)
        await issuer.admin.patch(FOREIGNCLUSTERS, guest.id, {"metadata": {"annotations": {ORDER: "dead"}}})
        await issuer.admin.delete(FOREIGNCLUSTERS, guest.id)
        await self.gone(issuer, guest)
        await self.gone(guest, issuer)
        await self.use(guest, token)
        await self.stays_out(issuer, guest)
        await guest.stop()
        other = await self.side("gamma", key=guest.key)
        await self.use(other, token)
        self.assertRegex(await self.refused(other, issuer), "used already|ended the peering")
        await self.stays_out(issuer, guest)

    async def test_after_distrust(self) -> None:
        """A distrusted key is refused by the token it used, by a fresh one, and under another ID.

        The record says that a user, who issued the token, had pinned the key, and not the settings.
        """
        issuer, guest = await self.pair()
        await self.use(guest, await self.issue(issuer))
        await self.peered(guest, issuer)
        await self.distrust(issuer, guest)
        self.assertFalse((await self.recorded(issuer, guest)).by_settings)
        for number in (0, 1):
            if number:
                await self.use(guest, await self.issue(issuer, number))
            await self.stays_out(issuer, guest)
        self.assertIn("liqodctl trust", await self.refused(guest, issuer))
        await guest.stop()
        other = await self.side("gamma", key=guest.key)
        await self.use(other, await self.issue(issuer, 2))
        self.assertIn("liqodctl trust", await self.refused(other, issuer))
        await self.stays_out(issuer, guest)

    async def test_a_token_is_spent_by_its_session(self) -> None:
        """With the pin taken away by nobody's order but the record's deletion, the same word opens nothing."""
        issuer, guest = await self.pair()
        token = await self.issue(issuer)
        await self.use(guest, token)
        await self.peered(guest, issuer)

        async def spent() -> bool:
            data = (await issuer.admin.get(SECRETS, token_name(token.id), SYSTEM))["data"]
            return "spent" in data

        await self.becomes(spent, "the token is spent")

    async def test_a_token_of_a_key_that_was_trusted_already(self) -> None:
        """It opens nothing for another key and another ID, after its holder was distrusted."""
        issuer, guest = await self.pair()
        token = await self.issue(issuer)
        await issuer.trust(guest)
        await self.use(guest, token)
        await self.peered(guest, issuer)
        await self.distrust(issuer, guest)
        await self.recorded(issuer, guest)
        await guest.stop()
        other = await self.side("gamma")
        await self.use(other, token)
        self.assertIn("used by another cluster", await self.refused(other, issuer))
        await self.stays_out(issuer, other)

    async def test_a_token_that_was_proven_and_never_led_to_a_session(self) -> None:
        """It belongs to its key until then; when that key is distrusted, it is spent all the same."""
        issuer, guest = await self.pair()
        token = await self.issue(issuer)
        data = encoded({"used-by": guest.key.fingerprint})
        await issuer.admin.patch(SECRETS, token_name(token.id), {"data": data}, SYSTEM)
        await issuer.trust(guest)

        async def guarded() -> bool:
            return bool((await issuer.admin.get(FOREIGNCLUSTERS, guest.id, view=Object)).metadata.finalizers)

        await self.becomes(guarded, "the pin is guarded")
        await self.distrust(issuer, guest)

        async def spent() -> bool:
            return "spent" in (await issuer.admin.get(SECRETS, token_name(token.id), SYSTEM))["data"]

        await self.becomes(spent, "the token is spent")


class ReturnTests(DistrustCase):
    """What trusts keys by itself."""

    async def by_ca(self) -> tuple[PeerCluster, PeerCluster]:
        now = datetime.datetime.now(datetime.UTC)
        self.authority = Authority(now=now)
        sides = [
            await self.side(name, settings(autojoin=True), key=self.member(name, now), ca=self.authority.pem)
            for name in ("alpha", "beta")
        ]
        alpha, beta = sides
        alpha.sees(beta)
        beta.sees(alpha)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        return alpha, beta

    def member(self, name: str, now: datetime.datetime, key: Any = None) -> KeyPair:
        return self.authority.issue(name, key=key, start=now - DAY, end=now + DAY)

    async def test_a_ca(self) -> None:
        """A CA vouches for the key as before; distrusted, it is not pinned again, not even after a restart.

        The record says that the settings had pinned the key.
        """
        alpha, beta = await self.by_ca()
        await self.distrust(alpha, beta)
        self.assertTrue((await self.recorded(alpha, beta)).by_settings)
        await self.stays_out(alpha, beta)
        await alpha.stop()
        await alpha.start()
        alpha.sees(beta)
        beta.sees(alpha)
        await self.stays_out(alpha, beta)
        # Nor when the record is deleted: that is no word of trust.
        await alpha.admin.delete(FOREIGNCLUSTERS, beta.id)
        await self.stays_out(alpha, beta)

    async def test_a_ca_under_another_name(self) -> None:
        """The same key with the CA's word for another ID is the same key."""
        alpha, beta = await self.by_ca()
        await self.distrust(alpha, beta)
        await self.phase(alpha, beta, "TrustPending")
        await beta.stop()
        now = datetime.datetime.now(datetime.UTC)
        gamma = await self.side("gamma", settings(), key=self.member("gamma", now, beta.key.key), ca=self.authority.pem)
        gamma.sees(alpha)
        alpha.sees(gamma)
        await self.stays_out(alpha, gamma)

    async def test_while_no_daemon_runs(self) -> None:
        """What was distrusted meanwhile is known at the next start; so is a pin that was cleared by hand."""
        alpha, beta = await self.by_ca()
        await alpha.stop()
        await self.distrust(alpha, beta)
        await alpha.start()
        alpha.sees(beta)
        beta.sees(alpha)
        await self.stays_out(alpha, beta)

    async def test_the_configuration(self) -> None:
        """A fingerprint under [discovery] peers is what the administrator said before."""
        beta = await self.side("beta")
        chosen = settings()
        named = PeerSettings(address=f"127.0.0.1:{beta.peering.port}", fingerprint=beta.key.fingerprint)
        alpha = await self.side("alpha", _with_peer(chosen, named))
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await self.distrust(alpha, beta)
        await self.stays_out(alpha, beta)

    async def test_trust_brings_it_back(self) -> None:
        """A person's word does what nothing else may."""
        alpha, beta = await self.by_ca()
        await self.distrust(alpha, beta)
        await self.stays_out(alpha, beta)
        spec = {"fingerprint": beta.key.fingerprint, "outgoingPeering": "Auto", "incomingPeering": "Auto"}
        patch = {"metadata": {"annotations": {DISTRUSTED: None}}, "spec": spec}
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, patch)
        await self.peered(alpha, beta)
        self.assertIsNone(alpha.peering._controllers.trust.records.tombstones.get(beta.id))


class ClearedPinTests(DistrustCase):
    """``spec.fingerprint: ""``, and nothing else said."""

    async def lending(self) -> tuple[PeerCluster, PeerCluster]:
        alpha, beta = await self.pair()
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)
        await self.peered(alpha, beta)
        await self.peered(beta, alpha)
        return alpha, beta

    async def test_it_ends_everything(self) -> None:
        """Session, rights, what the record says: at once, though both switches are on as before."""
        alpha, beta = await self.lending()
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": {"fingerprint": ""}})

        async def dismissed() -> bool:
            return alpha.room.dismissed == [beta.id]

        await self.becomes(dismissed, "access has ended")

        async def said() -> bool:
            status = (await alpha.cluster_record(beta)).status
            proven, lends = (find_condition(status.conditions, kind) for kind in ("Authenticated", "Lending"))
            return (
                status.lent is not None
                and (status.lent.verdict, status.lent.tenant_namespace) == ("Withdrawn", "")
                and proven is not None
                and proven.status == "False"
                and lends is not None
                and lends.status == "False"
            )

        await self.becomes(said, "the record says so")
        await self.stays_out(alpha, beta)

    async def test_it_ends_what_is_borrowed(self) -> None:
        """The virtual node of a lender whose key is trusted no more goes."""
        alpha, beta = await self.lending()
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": {"fingerprint": ""}})

        async def gone() -> bool:
            try:
                record = await alpha.admin.get(VIRTUALNODES, beta.id, tenant_namespace(beta.id), view=Object)
            except NotFound:
                return True
            return record.metadata.deleting

        await self.becomes(gone, "the virtual node goes")

    async def test_while_no_daemon_runs(self) -> None:
        """The next one dismisses the borrower before anything else."""
        alpha, beta = await self.lending()
        await alpha.stop()
        await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": {"fingerprint": ""}})
        await alpha.start()

        async def dismissed() -> bool:
            return alpha.room.dismissed == [beta.id]

        await self.becomes(dismissed, "access has ended")

    async def test_a_daemon_that_stopped_before_it_recorded_the_grant(self) -> None:
        """The next one revokes rights that no record names, after distrust and after lending was switched off."""
        for spec in ({"fingerprint": ""}, {"incomingPeering": "No"}):
            alpha, beta = await self.lending()
            await alpha.stop()
            unrecorded = {"status": {"lent": {"tenantNamespace": None}}}
            await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, unrecorded, subresource="status")
            await alpha.admin.patch(FOREIGNCLUSTERS, beta.id, {"spec": spec})
            audited = len(alpha.audit.of("AccessRevoked"))
            await alpha.start()

            async def dismissed(alpha: PeerCluster = alpha) -> bool:
                return not alpha.room.tenants

            await self.becomes(dismissed, f"access has ended after {spec}")
            self.assertEqual(len(alpha.audit.of("AccessRevoked")), audited + 1)
            await alpha.stop()
            await beta.stop()

    async def test_the_record_stays_until_the_tokens_are_spent(self) -> None:
        """The token by which a distrusted guest came is spent before its record goes, though that fails at first."""
        issuer, guest = await self.pair()
        token = await self.issue(issuer)
        await self.use(guest, token)
        await self.peered(guest, issuer)
        revoke, busy = issuer.daemon.list, [True]

        async def failing(resource: Any, *args: Any, **more: Any) -> Any:
            if resource is SECRETS and busy:
                raise ApiError(503, "ServiceUnavailable", "busy")
            return await revoke(resource, *args, **more)

        self.patch(issuer.daemon, "list", failing)
        await issuer.admin.patch(FOREIGNCLUSTERS, guest.id, {"spec": {"fingerprint": ""}})
        await self.recorded(issuer, guest)
        await issuer.admin.patch(FOREIGNCLUSTERS, guest.id, {"metadata": {"annotations": {ORDER: "dead"}}})
        await issuer.admin.delete(FOREIGNCLUSTERS, guest.id)
        await self.pause(PAUSE)
        record = await issuer.cluster_record(guest)
        self.assertTrue(record.metadata.deleting)
        self.assertIn(FINALIZER, record.metadata.finalizers)
        busy.clear()
        await self.gone(issuer, guest)

    async def test_a_record_without_a_pin_is_no_withdrawal(self) -> None:
        """A cluster that was never trusted is a stranger: nothing is dismissed, remembered or refused for that."""
        alpha, beta = await self.pair()
        await alpha.admin.create(
            FOREIGNCLUSTERS, {"metadata": {"name": beta.id}, "spec": {"clusterID": ClusterID(beta.id)}}
        )
        alpha.sees(beta)
        await self.phase(alpha, beta, "TrustPending")
        self.assertIsNone(alpha.peering._controllers.trust.records.tombstones.get(beta.id))
        self.assertEqual(alpha.room.dismissed, [])
        token = await self.issue(alpha)
        await self.use(beta, token)
        await self.peered(beta, alpha)


def _with_peer(chosen: Settings, named: PeerSettings) -> Settings:

    return msgspec.structs.replace(chosen, discovery=DiscoverySettings(peers=[named]))
