"""Tests of liqod.model.text and liqod.model.timestamps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.text import clean_text, clip_utf8
from liqod.model.timestamps import from_epoch, parse_rfc3339, rfc3339, rfc3339_micro


class TextTests(SynchronousTestCase):
    """What comes from elsewhere is made fit to be stored and printed."""

    def test_examples(self) -> None:
        """Terminal escapes, bidirectional overrides and lone surrogates go; what people write stays."""
        for text, clean in (
            ("plain, größer, 日本", "plain, größer, 日本"),
            ("\x1b[31mred\x07", " [31mred "),
            ("safe\u202egnp.exe", "safe gnp.exe"),
            ("a\nb\r\n", "a b  "),
            ("\ud800", " "),
            ("\u2028\x9b", "  "),
        ):
            self.assertEqual(clean_text(text, 100), clean)

    def test_policies(self) -> None:
        """Length, ellipsis, line feeds and the replacement are the caller's choice."""
        self.assertEqual(clean_text("abcdef", 4), "abcd")
        self.assertEqual(clean_text("abcdef", 4, ellipsis=True), "abc…")
        self.assertEqual(clean_text("abcd", 4, ellipsis=True), "abcd")
        self.assertEqual(clean_text("a\nb\x1b", 9, newlines=True), "a\nb ")
        self.assertEqual(clean_text("a\x1b", 9, replacement="�"), "a�")
        self.assertEqual(clean_text("abc", 0, ellipsis=True), "")

    @settings(deadline=None)
    @given(st.text(max_size=40), st.integers(0, 30), st.booleans(), st.booleans())
    def test_any_text(self, text: str, limit: int, newlines: bool, ellipsis: bool) -> None:
        """Whatever comes in, the result is bounded, printable, and is cleaned only once."""
        clean = clean_text(text, limit, newlines=newlines, ellipsis=ellipsis)
        self.assertLessEqual(len(clean), limit)
        self.assertTrue((clean.replace("\n", "") if newlines else clean).isprintable())
        self.assertEqual(clean_text(clean, limit, newlines=newlines, ellipsis=ellipsis), clean)

    @given(st.text(max_size=40), st.integers(0, 60))
    def test_clip(self, text: str, limit: int) -> None:
        """A text that is cut by bytes stays whole characters."""
        clipped = clip_utf8(text, limit)
        self.assertLessEqual(len(clipped.encode()), limit)
        if len(text.encode("utf-8", "replace")) <= limit:
            self.assertEqual(clipped, text.encode("utf-8", "replace").decode())


class TimestampTests(SynchronousTestCase):
    """Dates as Kubernetes writes them."""

    MOMENT = datetime(2026, 3, 1, 12, 30, 5, 123456, UTC)

    def test_written(self) -> None:
        """Dates are in UTC and end in Z, to the second or the microsecond, wherever they come from."""
        there = self.MOMENT.astimezone(timezone(timedelta(hours=5)))
        for moment in (self.MOMENT, there):
            self.assertEqual(rfc3339(moment), "2026-03-01T12:30:05Z")
            self.assertEqual(rfc3339_micro(moment), "2026-03-01T12:30:05.123456Z")
        self.assertEqual(rfc3339_micro(self.MOMENT.replace(microsecond=0)), "2026-03-01T12:30:05.000000Z")
        self.assertRaises(ValueError, rfc3339, datetime(2026, 1, 1))

    def test_read(self) -> None:
        """What is a date is read in UTC; what is none, or has no zone, is none."""
        for text in ("2026-03-01T12:30:05.123456Z", "2026-03-01T17:30:05.123456+05:00"):
            self.assertEqual(parse_rfc3339(text), self.MOMENT)
        for nothing in ("", None, "soon", "2026-03-01T12:30:05", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00+14:00"):
            self.assertIsNone(parse_rfc3339(nothing))

    @given(st.integers(0, 4102444800))
    def test_there_and_back(self, seconds: int) -> None:
        """A date that was written is the date that is read."""
        self.assertEqual(parse_rfc3339(rfc3339(from_epoch(seconds))), from_epoch(seconds))
