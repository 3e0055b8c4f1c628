"""Each security event is recorded by the path that causes it, and no secret is in any line."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from liqod.audit.events import INVALID, AuditEvent
from liqod.identity.store import to_secret
from liqod.kube.resources import FOREIGNCLUSTERS, SECRETS
from liqod.model.records import rotation
from liqod.model.records.invitations import EXPIRES, TOKEN_LABEL, VERIFIER, token_name
from liqod.peering.trust.pairing import encoded
from tests.hosting.test_controller import ControllerCases, shadow
from tests.peering.clusters import PeerCluster, RecordedAudit, keypair
from tests.peering.test_pairing import SYSTEM, TOKEN, TokenCase

AT = datetime(2030, 1, 1, tzinfo=UTC)


class PeerEventTests(TokenCase):
    """Two clusters, from the first trust to the end."""

    async def recorded(self, side: PeerCluster, type: str, when: Callable[[AuditEvent], bool] = bool) -> AuditEvent:
        """Wait until an event of a type is recorded; return the first."""

        async def first() -> AuditEvent | None:
            return next((event for event in side.audit.of(type) if when(event)), None)

        return await self.becomes(first, f"{type} at {side.name}")

    async def test_an_administrator_trusts_and_distrusts(self) -> None:
        """Trust, access and their end are recorded with peer and key; the stranger of before was refused."""
        lender, borrower = await self.pair()
        borrower.sees(lender)
        refused = await self.recorded(lender, "Refused")
        self.assertEqual((refused.reason, refused.peer), ("TrustPending", borrower.id))
        self.assertEqual((refused.fingerprint, refused.address), (borrower.key.fingerprint, "127.0.0.1"))
        await lender.trust(borrower)
        await borrower.trust(lender)
        trusted = await self.recorded(lender, "TrustGranted")
        self.assertEqual((trusted.reason, trusted.peer), ("Administrator", borrower.id))
        self.assertEqual(trusted.fingerprint, borrower.key.fingerprint)
        granted = await self.recorded(lender, "AccessGranted")
        self.assertEqual((granted.reason, granted.peer), ("Admitted", borrower.id))
        await lender.admin.patch(FOREIGNCLUSTERS, borrower.id, {"spec": {"fingerprint": None}})
        withdrawn = await self.recorded(lender, "TrustWithdrawn")
        self.assertEqual((withdrawn.peer, withdrawn.fingerprint), (borrower.id, borrower.key.fingerprint))
        self.assertEqual((await self.recorded(lender, "AccessRevoked")).peer, borrower.id)

    async def test_tokens_from_their_making_to_their_end(self) -> None:
        """Made, refused, used and taken back; the lines have neither the secret, nor what proves it, nor a key."""
        issuer, guest = await self.pair()
        await issuer.admin.create(SECRETS, self.token("0a1c"))
        self.assertEqual((await self.recorded(issuer, "TokenCreated")).object, "token/0a1c")
        await issuer.admin.delete(SECRETS, token_name("0a1c"), SYSTEM)
        self.assertEqual((await self.recorded(issuer, "TokenRevoked")).reason, "Deleted")
        await self.use(guest, await self.issue(issuer, secret=bytes(32)))
        refused = await self.recorded(issuer, "TokenRefused")
        self.assertEqual((refused.object, refused.peer), ("token/0a1b", guest.id))
        second = await self.side("gamma")
        await issuer.admin.delete(SECRETS, token_name("0a1b"), SYSTEM)
        token = await self.issue(issuer)
        await self.use(second, token)
        used = await self.recorded(issuer, "TokenUsed")
        self.assertEqual((used.peer, used.fingerprint), (second.id, second.key.fingerprint))
        trusted = await self.recorded(issuer, "TrustGranted", lambda event: event.peer == second.id)
        self.assertEqual(trusted.reason, "Token")
        self.assert_no_secret(issuer, guest, second)

    async def test_the_own_key_changes(self) -> None:
        """A rotation is recorded with the new key's fingerprint."""
        side = await self.side("alpha")
        following = keypair("alpha")
        metadata = {"name": rotation.IDENTITY_SECRET, "namespace": SYSTEM}
        await side.admin.create(SECRETS, {"metadata": metadata, "data": to_secret(following)})
        self.assertEqual((await self.recorded(side, "KeyChanged")).fingerprint, following.fingerprint)
        self.assert_no_secret(side)

    def token(self, name: str) -> dict[str, Any]:
        metadata = {"name": token_name(name), "namespace": SYSTEM, "labels": {TOKEN_LABEL: "true"}}
        return {"metadata": metadata, "data": encoded({VERIFIER: b"v" * 32, EXPIRES: "2999-01-01T00:00:00Z"})}

    def assert_no_secret(self, *sides: PeerCluster) -> None:
        planted = [TOKEN.text, TOKEN.secret.hex(), base64.b64encode(TOKEN.secret).decode(), "v" * 32]
        for side in sides:
            planted += [line for line in side.key.key_pem.decode().splitlines() if len(line) > 40 and "-" not in line]
        lines = [event.line(AT) for side in sides for event in side.audit.events]
        self.assertNotEqual(lines, [])
        for line in lines:
            self.assertNotIn(INVALID, line)
            for secret in planted:
                self.assertNotIn(secret, line)


class DenialTests(ControllerCases):
    """What a tenant asks for and does not get."""

    def test_a_shadowpod_that_is_refused(self) -> None:
        """It is recorded once with tenant, object and reason, however often it is tried again."""
        self.audit = RecordedAudit()
        self.foreign.held.clear()
        self.start()
        self.shadows.put(shadow())
        self.pass_time(1.0)
        self.assertEqual(
            [(event.reason, event.peer, event.object) for event in self.audit.of("PolicyDenied")],
            [("NotLent", "borrower", "shadowpod/shop/web")],
        )
