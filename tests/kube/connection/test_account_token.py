"""Tests of liqod.kube.connection.account_token: what a token says, and which of several counts."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kubesandbox.auth import tokens
from twisted.trial.unittest import SynchronousTestCase

from liqod.kube.connection.account_token import AccountToken, Claims, claims_of
from liqod.kube.connection.config import load

SUBJECT = "system:serviceaccount:liqo-system:liqod"


def token(issued: int, *, uid: str = "u1", name: str = "liqod", seconds: int = 3600) -> str:
    """Return a token of an account, as a cluster signs it."""
    return tokens.sign(b"key", "liqo-system", name, uid, now=issued, seconds=seconds)


def of_claims(claims: Any) -> str:
    """Return a token with any claims."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{body}.c2ln"


class ClaimsTests(SynchronousTestCase):
    """What a token says of itself."""

    def test_requested(self) -> None:
        """One that was requested names account, UID, and both times."""
        self.assertEqual(claims_of(token(100, seconds=600)), Claims(SUBJECT, "u1", 100.0, 700.0))

    def test_of_a_secret(self) -> None:
        """One that a Secret holds has no end, and its UID in a claim of its own."""
        said = {"sub": SUBJECT, "kubernetes.io/serviceaccount/service-account.uid": "u1"}
        self.assertEqual(claims_of(of_claims(said)), Claims(SUBJECT, "u1", 0.0, None))

    @given(st.text(max_size=200) | st.builds(of_claims, st.recursive(st.none() | st.text(), st.lists)))
    def test_anything_else(self, text: str) -> None:
        """Whatever else a token is, nothing is read of it, and nothing fails."""
        self.assertIsNone(claims_of(text))

    def test_claims_of_other_types(self) -> None:
        """Times that are no numbers, accounts that are no objects, users that are no accounts."""
        good: dict[str, Any] = {"sub": SUBJECT, "iat": 1, "exp": 2, "kubernetes.io": {"serviceaccount": {"uid": "u1"}}}
        self.assertEqual(claims_of(of_claims(good)), Claims(SUBJECT, "u1", 1.0, 2.0))
        for field, value in (("iat", "1"), ("exp", []), ("kubernetes.io", "x"), ("sub", "admin"), ("sub", None)):
            self.assertIsNone(claims_of(of_claims({**good, field: value})), field)
        self.assertIsNone(claims_of(of_claims({"sub": SUBJECT})))


class AccountTokenTests(SynchronousTestCase):
    """The kubeconfig's token, the file beside it, and what this process made."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.path = self.folder / "home.token"
        self.given = token(100)

    def held(self) -> AccountToken:
        return AccountToken(self.given, lambda: self.given, self.path)

    def test_the_newest(self) -> None:
        """The one in the file counts while it is the newer one, and after a restart as well."""
        self.assertEqual(self.held()(), self.given)
        self.path.write_text(f"{token(200)}\n")
        self.assertEqual(self.held()(), token(200))
        self.given = token(300)
        self.assertEqual(self.held()(), self.given)

    def test_of_somebody_else(self) -> None:
        """A token of another account, or of another cluster's, is not used, however new it is; nor is nonsense."""
        for other in (token(200, uid="u2"), token(200, name="liqod-network"), "nonsense", "", "\x00\xff"):
            self.path.write_text(other, encoding="latin-1")
            self.assertEqual(self.held()(), self.given, other)

    def test_beside_another_kind_of_credential(self) -> None:
        """Beside a token that says nothing the file does not count."""
        self.path.write_text(token(200))
        self.given = "opaque"
        self.assertEqual(self.held()(), "opaque")

    def test_kept(self) -> None:
        """A newer one is used at once, and in a file for its owner alone, whatever was there before."""
        self.path.write_text("before")
        self.path.chmod(0o644)
        held = self.held()
        held.replace(token(200))
        self.assertEqual(held(), token(200))
        self.assertEqual(self.path.read_text(), f"{token(200)}\n")
        self.assertEqual(stat.S_IMODE(self.path.stat().st_mode), 0o600)
        self.assertEqual(list(self.folder.iterdir()), [self.path])

    def test_not_kept(self) -> None:
        """Where it cannot be written it is used all the same, and nothing is left behind."""
        self.path = self.folder / "gone" / "home.token"
        held = self.held()
        self.assertRaises(OSError, held.replace, token(200))
        self.assertEqual(held(), token(200))
        held.renew()
        self.assertEqual(held(), self.given)

    def test_rejected(self) -> None:
        """After a rejection the next newest is tried, then what the kubeconfig has now, then all of them again."""
        self.path.write_text(token(200))
        held = self.held()
        self.assertEqual(held(), token(200))
        held.renew()
        self.assertEqual(held(), token(100))
        held.renew()
        self.assertEqual(held(), token(200))
        self.given = token(300)
        held.renew()
        self.assertEqual(held(), token(300))

    def test_nothing_is_shown(self) -> None:
        """No token is in the text of the object."""
        self.assertNotIn(self.given, repr(self.held()))

    def test_in_a_kubeconfig(self) -> None:
        """Its path is relative to the kubeconfig, and the token there counts as in kubectl."""
        user = {"token": self.given, "tokenFile": "home.token"}
        body = {
            "current-context": "one",
            "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
        }
        file = self.folder / "config"
        file.write_text(json.dumps(body))
        config = load(str(file))
        assert isinstance(config.token, AccountToken) and config.renew_token is not None
        self.assertEqual((config.token(), config.token.path), (self.given, self.path))
        config.token.replace(token(200))
        again = load(str(file))
        assert again.token is not None
        self.assertEqual(again.token(), token(200))
        self.assertNotIn(token(200), repr(again))
