"""Certificates of every kind, shown to a daemon in a real handshake: taken, or refused with a reason."""

from __future__ import annotations

import datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID
from twisted.logger import capturedLogs

from liqod.identity.certs import KeyPair, generate
from liqod.identity.tls import MAX_CHAIN
from liqod.kube.resources import FOREIGNCLUSTERS
from liqod.model.ids import ClusterID
from liqod.wire.events import Bye, Hello
from tests.identity.hostile_chains import Shows, exponent_rsa, slow_rsa, unreadable
from tests.identity.test_tls import Foreign
from tests.identity.tls_pair import DAY, Authority
from tests.peering.clusters import PeerCluster, settings
from tests.peering.session.test_hostile import HostileCase, Raw, Speaker

WEEK = 7 * DAY
SERVER = (ExtendedKeyUsageOID.SERVER_AUTH,)


class CertificateCase(HostileCase):
    """A daemon that trusts a CA, and people who dial it."""

    async def daemon(self, **peering: Any) -> PeerCluster:
        self.now = datetime.datetime.now(datetime.UTC)
        self.authority = Authority(now=self.now)
        return await self.side("alpha", settings(**peering), ca=self.authority.pem)

    def issued(self, **options: Any) -> KeyPair:
        options = {"start": self.now - DAY, "end": self.now + DAY, **options}
        return self.authority.issue("beta", **options)

    async def outcome(self, side: PeerCluster, pair: KeyPair) -> str:
        """Return ``trusted``, the reason that was said, or nothing when the connection broke without a word."""
        speaker = Speaker("beta")
        await self.connect(side, speaker, Foreign(pair, alpn=[b"liqod/1"]))
        speaker.say(Hello("beta", "beta", 1, 0, 0, []))

        async def over() -> bool:
            return speaker.lost.called or any(view.peer == "beta" for view in side.peering.sessions())

        await self.becomes(over, "the certificate is judged")
        if not speaker.lost.called:
            connection: Any = speaker.transport
            connection.abortConnection()

            async def gone() -> bool:
                return not side.peering.sessions()

            await self.becomes(gone, "the session is over")
            await side.admin.delete(FOREIGNCLUSTERS, "beta")
            return "trusted"
        return next((event.reason for event in speaker.events if isinstance(event, Bye)), "")


class AuthorityTests(CertificateCase):
    """What a configured CA signed."""

    async def test_dates_and_usage_count(self) -> None:
        """Valid now and for a client: trusted. Expired, not yet valid, or for servers only: a stranger like any."""
        side = await self.daemon()
        minutes = datetime.timedelta(minutes=1)
        table: list[tuple[str, dict[str, Any], str]] = [
            ("expired", {"start": self.now - WEEK, "end": self.now - DAY}, "TrustPending"),
            ("not yet valid", {"start": self.now + DAY, "end": self.now + WEEK}, "TrustPending"),
            ("for servers only", {"usages": SERVER}, "TrustPending"),
            ("an RSA key", {"key": rsa.generate_private_key(65537, 2048)}, "trusted"),
            ("a P-256 key", {"key": ec.generate_private_key(ec.SECP256R1())}, "trusted"),
            ("expired a minute ago", {"start": self.now - WEEK, "end": self.now - minutes}, "trusted"),
        ]
        for what, options, expected in table[:3]:
            self.assertEqual(await self.outcome(side, self.issued(**options)), expected, what)
        for what, options, expected in table[3:]:
            again = await self.fresh(options)
            self.assertEqual(again, expected, what)

    async def fresh(self, options: dict[str, Any]) -> str:
        """Ask a daemon that has never seen anybody."""
        side = await self.side("gamma", settings(), ca=self.authority.pem)
        result = await self.outcome(side, self.issued(**options))
        await side.stop()
        return result


class KeyTypeTests(CertificateCase):
    """Kinds of keys, whichever CA signed them."""

    async def test_kinds_of_keys(self) -> None:
        """Ed25519 is a stranger's identity; ECDSA and RSA are a CA's members', weak, odd and costly ones nobody's."""
        side = await self.daemon(autojoin_untrusted=False)
        self.assertEqual(await self.outcome(side, generate(ClusterID("beta"), self.now)), "TrustPending")
        odd: list[Any] = [
            ec.generate_private_key(ec.SECP256R1()),
            ec.generate_private_key(ec.SECP384R1()),
            rsa.generate_private_key(65537, 2048),
            exponent_rsa((1 << 62) + 1),
            slow_rsa(),
            ed448.Ed448PrivateKey.generate(),
        ]
        for number, key in enumerate(odd, 1):
            self.assertEqual(await self.refused(side, key, self.stranger(key)), b"", key)
            await self.counted(side, "KeyTypeRefused", number)
        key = ec.generate_private_key(ec.SECP256K1())  # OpenSSL itself ends this one
        self.assertEqual(await self.refused(side, key, self.stranger(key)), b"")
        await self.counted(side, "HandshakeFailed")

    def stranger(self, key: Any) -> KeyPair:
        """Return a key with a certificate of a CA that nobody knows."""
        return Authority("somebody", now=self.now).issue(
            "beta", key=key, start=self.now - DAY, end=self.now + DAY, algorithm=None
        )

    async def refused(self, side: PeerCluster, key: Any, pair: KeyPair) -> bytes:
        """Return what was said to somebody who is cut off."""
        raw, creator = Raw(), Foreign(None, alpn=[b"liqod/1"])
        creator.context.use_privatekey(key)
        creator.context.use_certificate(pair.certificate)
        await self.connect(side, raw, creator)
        await raw.lost
        return raw.data


class ChainTests(CertificateCase):
    """More certificates than anybody needs."""

    async def test_long_and_enormous_chains(self) -> None:
        """A chain longer than allowed is refused with a reason; one of 20 KiB does not even finish the handshake."""
        side = await self.daemon()
        own = self.issued()
        more = [generate(ClusterID("beta"), self.now).certificate_pem for _ in range(90)]
        long = KeyPair(own.key_pem, own.certificate_pem + b"".join(more[:MAX_CHAIN]))
        enormous = KeyPair(own.key_pem, own.certificate_pem + b"".join(more))
        for pair, reason in ((long, "ChainTooLong"), (enormous, "HandshakeFailed")):
            raw = Raw()
            await self.connect(side, raw, Foreign(pair, alpn=[b"liqod/1"]))
            await raw.lost
            await self.counted(side, reason)
            self.assertEqual(raw.data, b"")

    async def test_unreadable_certificates(self) -> None:
        """What no library reads is refused and counted like all else; no traceback is in the log."""
        side = await self.daemon()
        with capturedLogs() as events:
            for number, pair in enumerate(unreadable("beta", self.now), 1):
                raw = Raw()
                await self.connect(side, raw, Shows(pair.key, [pair.certificate_pem]))
                await raw.lost
                await self.counted(side, "CertificateUnreadable", number)
                self.assertEqual(raw.data, b"")
        self.assertEqual([event for event in events if "log_failure" in event], [])
