"""Who gets streams, how many, and where they lead."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.records.facts import MAX_VALUES
from liqod.model.records.offer import HomeStreamsGrant
from liqod.peering.relay.splice.limits import (
    MOST_OPEN,
    StreamSituation,
    grant,
    is_tls,
    missing_names,
    place_of,
    refusal,
)
from liqod.wire.check import MAX_STREAMS

CALLED = ("kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "kubernetes")
NAMES = (*CALLED, "10.96.0.1")


def given_to(asked: int = 4, most: int = 16, **other: object) -> HomeStreamsGrant:
    """Return what a lender gets where nothing stands against it but what is named."""
    values = {"borrows": True, "target": "192.0.2.1", "certified": NAMES, "called": CALLED, **other}
    return grant(asked, most, **values)  # type: ignore[arg-type]


class GrantTests(SynchronousTestCase):
    def test_table(self) -> None:
        """What it asks for, up to the setting; and otherwise nothing, with the reason."""
        for found, count, reason in (
            (given_to(), 4, ""),
            (given_to(0), 0, ""),
            (given_to(32), 16, "FewerStreams"),
            (given_to(most=0), 0, "NoStreams"),
            (given_to(borrows=False), 0, "NotBorrowing"),
            (given_to(target=""), 0, "NoAddress"),
            (given_to(certified=("api.example",)), 0, "NamesMissing"),
        ):
            self.assertEqual((found.count, found.reason), (count, reason))
            self.assertEqual(bool(found.message), bool(reason))

    def test_what_is_missing_is_said(self) -> None:
        """The refusal names all names that the certificate lacks; a grant those that only some programs call."""
        self.assertIn(f"is not for {', '.join(CALLED)}:", given_to(certified=("api.example",)).message)
        for name in CALLED[1:]:
            certified = [one for one in CALLED if one != name]
            for asked, count, reason in ((4, 4, ""), (32, 16, "FewerStreams")):
                with self.subTest(name=name, asked=asked):
                    found = given_to(asked, certified=certified)
                    self.assertEqual((found.count, found.reason), (count, reason))
                    self.assertIn(f"is not for {name}:", found.message)
        self.assertEqual(given_to(certified=CALLED[1:]).reason, "NamesMissing")

    def test_unknown_names_are_not_missing(self) -> None:
        """A certificate that was not seen is no ground to refuse, nor one with more names than are kept of it."""
        self.assertEqual(given_to(certified=()).count, 4)
        self.assertEqual(missing_names((), CALLED), ())
        many = [f"a{number}.example" for number in range(MAX_VALUES)]
        self.assertEqual(missing_names(many, CALLED), ())
        self.assertEqual(missing_names(many[1:], CALLED), CALLED)

    def test_a_wildcard_counts(self) -> None:
        """One label is covered by it, and no more."""
        self.assertEqual(missing_names(("*.default",), CALLED), CALLED[1:])
        self.assertEqual(missing_names(("*.default", "*.default.svc", "KUBERNETES"), CALLED), CALLED[2:3])
        self.assertEqual(missing_names(("*",), CALLED), CALLED)

    @given(st.integers(0, MAX_STREAMS), st.integers(0, MAX_STREAMS), st.booleans(), st.sampled_from(["", "h"]))
    def test_never_more_than_either_wants(self, asked: int, most: int, borrows: bool, target: str) -> None:
        """Whatever is asked, no more is granted than that and the setting."""
        found = given_to(asked, most, borrows=borrows, target=target)
        self.assertLessEqual(found.count, min(asked, most))
        if asked and not (borrows and target):
            self.assertEqual(found.count, 0)


class RefusalTests(SynchronousTestCase):
    def test_table(self) -> None:
        """Without a session or a grant no stream is kept, and not more than was agreed on."""
        for values, reason in (
            ((True, 4, 0, 0), None),
            ((True, 4, 4, 0), None),
            ((True, 4, 5, 0), "TooManyStreams"),
            ((True, 4, 0, MOST_OPEN), "TooManyStreams"),
            ((True, 0, 0, 0), "StreamNotAsked"),
            ((False, 4, 0, 0), "StreamWithoutSession"),
        ):
            has_session, granted, idle, used = values
            why = refusal(StreamSituation(has_session=has_session, granted=granted, idle=idle, used=used))
            self.assertEqual(why and why[0], reason)


class PlaceTests(SynchronousTestCase):
    def test_table(self) -> None:
        """TLS alone, at a server of its own; the first that is that."""
        for urls, place in (
            (["https://192.0.2.1:6443"], ("192.0.2.1", 6443)),
            (["https://api.example"], ("api.example", 443)),
            (["https://[2001:db8::1]:6443/"], ("2001:db8::1", 6443)),
            (["http://192.0.2.1:8080", "https://192.0.2.2:6443"], ("192.0.2.2", 6443)),
            (["https://rancher.example/k8s/clusters/c"], None),
            (["https://192.0.2.1:99999", ""], None),
            ([], None),
        ):
            self.assertEqual(place_of(urls), place, urls)

    def test_what_is_tls(self) -> None:
        """A handshake's first byte; a request in the clear is none."""
        self.assertTrue(is_tls(b"\x16\x03\x01"))
        for data in (b"", b"GET / HTTP/1.1", b"\x17"):
            self.assertFalse(is_tls(data))
