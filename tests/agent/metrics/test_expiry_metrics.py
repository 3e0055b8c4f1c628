"""When certificates and tokens end, as far as a daemon knows."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.metrics.expiry import MAX_TOKEN, Ends, token_end
from liqod.identity.serving import generate
from liqod.kube.connection.config import ClientConfig, ConfigError

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)


def jwt(claims: object) -> str:
    """Return a token with these claims, and a signature that nobody looks at."""
    parts = [json.dumps(one).encode() if not isinstance(one, bytes) else one for one in ({"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts), "c2ln"])


def daemon(**known: Any) -> Any:
    """Return a daemon that knows this alone."""
    return SimpleNamespace(**{"client": None, "home": None, "features": None, "pages": None, "node": None, **known})


def client(**config: Any) -> Any:
    return SimpleNamespace(config=ClientConfig("https://10.0.0.1:6443", **config))


class TokenTests(SynchronousTestCase):
    """What a token says of its own end."""

    def test_service_account(self) -> None:
        """The end is the claim ``exp``."""
        token = jwt({"exp": int(NOW.timestamp()), "sub": "system:serviceaccount:a:b"})
        self.assertEqual(token_end(token), NOW)

    def test_without_an_end(self) -> None:
        """A token that does not end, one that is no JWT, and one with an end that is none have none."""
        for token in (
            "",
            "abcdef.0123456789abcdef",
            "a.b.c",
            jwt({}),
            jwt({"exp": None}),
            jwt({"exp": "soon"}),
            jwt({"exp": 1e300}),
            jwt({"exp": -1e300}),
            jwt([1]),
            jwt(b"\xff\xfe"),
            jwt(b"[" * 5000),
            jwt({"exp": 1, "x": "y" * MAX_TOKEN}),
        ):
            self.assertIsNone(token_end(token), token[:60])

    @given(st.text(max_size=200) | st.binary(max_size=100).map(lambda data: jwt(data)))
    def test_anything(self, token: str) -> None:
        """Whatever a kubeconfig has as its token, nothing is raised."""
        token_end(token)


class EndsTests(SynchronousTestCase):
    """What ``/metrics`` shows."""

    def test_nothing_is_known(self) -> None:
        """A daemon that has just begun shows none, which is not zero."""
        ends = Ends(daemon())
        self.assertEqual((list(ends.certificates()), list(ends.tokens())), ([], []))

    def test_before_it_leads(self) -> None:
        """The certificate and the token of its kubeconfig, a CA that it trusts, and the certificate of these pages."""
        bundle = generate("x", ["localhost"], NOW)
        later = generate("y", ["localhost"], NOW + timedelta(days=100))
        token = jwt({"exp": NOW.timestamp()})
        known = daemon(
            client=client(client_cert_pem=bundle.certificate_pem + later.ca_pem, token=lambda: token),
            home=SimpleNamespace(ca_pem=later.certificate_pem + bundle.certificate_pem),
            pages=SimpleNamespace(certificate_end=NOW),
        )
        end = bundle.not_after.timestamp()
        found = list(Ends(known).certificates())
        self.assertEqual(found, [(("home",), end), (("identity-ca",), end), (("metrics",), NOW.timestamp())])
        self.assertEqual(list(Ends(known).tokens()), [(("home", ""), NOW.timestamp())])

    def test_what_cannot_be_read(self) -> None:
        """A certificate that is none, and a token file that is gone, hide nothing else and raise nothing."""

        def gone() -> str:
            raise ConfigError("the token file cannot be read")

        known = daemon(
            client=client(client_cert_pem=b"no certificate", token=gone),
            home=SimpleNamespace(ca_pem=b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            pages=SimpleNamespace(certificate_end=NOW),
        )
        self.assertEqual(list(Ends(known).certificates()), [(("metrics",), NOW.timestamp())])
        self.assertEqual(list(Ends(known).tokens()), [])

    def test_while_it_leads(self) -> None:
        """Those of its ports as well, where there are any, and one credential for each lender."""
        features = SimpleNamespace(
            peering=SimpleNamespace(certificate_end=NOW),
            webhook=SimpleNamespace(certificate_end=None),
            kubelets=SimpleNamespace(
                api=SimpleNamespace(certificate_end=NOW + timedelta(days=1)),
                all=lambda: [
                    SimpleNamespace(context=SimpleNamespace(lender=lender), access=SimpleNamespace(expires=expires))
                    for lender, expires in (("oslo", None), ("milan", NOW), ("milan", NOW))
                ],
            ),
        )
        ends = Ends(daemon(features=features))
        now = NOW.timestamp()
        self.assertEqual(list(ends.certificates()), [(("identity",), now), (("kubelet",), now + 86400)])
        self.assertEqual(list(ends.tokens()), [(("lender", "milan"), now)])
