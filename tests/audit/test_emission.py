"""Each security event is recorded by the path that causes it, and no secret is in any line."""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast, get_args

from twisted.internet.task import Clock
from twisted.python.reflect import namedAny
from twisted.trial.unittest import SynchronousTestCase

from liqod.audit.events import INVALID, AuditEvent, Type
from liqod.audit.file import RotatingFile
from liqod.audit.log import AuditLog
from liqod.flow.connections import admission
from liqod.identity.store import to_secret
from liqod.kube.resources import FOREIGNCLUSTERS, SECRETS
from liqod.model.host_port import host_of
from liqod.model.records import rotation
from liqod.model.records.invitations import EXPIRES, TOKEN_LABEL, VERIFIER, token_name
from liqod.peering.trust.pairing import encoded
from tests.hosting.shadowpods.test_controller import ControllerCases, shadow
from tests.peering.clusters import PeerCluster, RecordedAudit, keypair
from tests.peering.session.test_hostile import HostileCase, Raw
from tests.peering.trust.test_pairing import SYSTEM, TOKEN, TokenCase

AT = datetime(2030, 1, 1, tzinfo=UTC)
_PEERS = "audit.test_emission.PeerEventTests"
CAUSED: dict[Type, str] = {
    "TrustGranted": f"{_PEERS}.test_an_administrator_trusts_and_distrusts",
    "TrustWithdrawn": f"{_PEERS}.test_an_administrator_trusts_and_distrusts",
    "KeyChanged": f"{_PEERS}.test_the_own_key_changes",
    "Refused": f"{_PEERS}.test_an_administrator_trusts_and_distrusts",
    "RateLimited": "audit.test_emission.LimitEventTests.test_a_limit_that_is_reached",
    "AccessGranted": f"{_PEERS}.test_an_administrator_trusts_and_distrusts",
    "AccessRevoked": f"{_PEERS}.test_an_administrator_trusts_and_distrusts",
    "PolicyDenied": "audit.test_emission.DenialTests.test_a_shadowpod_that_is_refused",
    "TokenCreated": f"{_PEERS}.test_tokens_from_their_making_to_their_end",
    "TokenUsed": f"{_PEERS}.test_tokens_from_their_making_to_their_end",
    "TokenRefused": f"{_PEERS}.test_tokens_from_their_making_to_their_end",
    "TokenRevoked": f"{_PEERS}.test_tokens_from_their_making_to_their_end",
    "AccountToken": "agent.account.test_token_renewal.RenewalTests.test_at_half_of_its_life",
    "Omitted": "audit.test_log.WriterTests.test_what_was_left_out_is_reported_without_a_further_event",
}
"""The test in which each type is recorded by what causes it."""


class EveryTypeTests(SynchronousTestCase):
    """No type is only declared."""

    def test_each_is_caused_by_a_test(self) -> None:
        """Each type of the code has a test that causes it and looks for it."""
        self.assertEqual(set(CAUSED), set(get_args(Type)))
        for type_, name in CAUSED.items():
            self.assertIn(f'"{type_}"', inspect.getsource(namedAny(f"tests.{name}")), name)

    def test_each_is_written(self) -> None:
        """Whatever is recorded is a line of its type in the file, and counted."""
        path = Path(self.mktemp())
        log = AuditLog(Clock(), lambda: AT, file=RotatingFile(str(path), 1 << 20, 2))
        self.addCleanup(log.close)
        for type_ in get_args(Type):
            log.record(AuditEvent(type_, "Because", peer="milan", object="token/0a1b"))
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual([line["type"] for line in lines], list(get_args(Type)))
        self.assertEqual(dict(log.written), dict.fromkeys(get_args(Type), 1))


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


class LimitEventTests(HostileCase):
    """What is refused because there is too much of it."""

    async def test_a_limit_that_is_reached(self) -> None:
        """One connection more than an address may have without a session is recorded with that address."""
        self.patch(admission, "GRACE", 60.0)
        side = await self.side("alpha")
        raws = [Raw() for _ in range(admission.PER_ADDRESS + 1)]
        for raw in raws:
            await self.connect(side, raw)
        await self.counted(side, "TooManyFromAddress")
        limited = side.audit.of("RateLimited")
        self.assertEqual({(event.reason, event.peer) for event in limited}, {("TooManyFromAddress", "")})
        self.assertEqual({host_of(event.address) for event in limited}, {"127.0.0.1"})
        for raw in raws:
            if not raw.lost.called:
                cast(Any, raw.transport).abortConnection()
            await raw.lost


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
