"""What the steps of a class stand on is made once; where that failed every step says so."""

from __future__ import annotations

from collections.abc import Callable

from twisted.trial.unittest import FailTest, SkipTest, SynchronousTestCase

from tests.real.base import made_once


class MadeOnceTests(SynchronousTestCase):
    """Each test has a class of its own that something is made for."""

    def setUp(self) -> None:
        self.owner = type("Steps", (), {})
        self.made: list[str] = []

    def making(self, error: Exception | None = None) -> Callable[[], None]:
        """Return what notes that it was called, and fails where it is to."""

        def make() -> None:
            self.made.append("made")
            if error is not None:
                raise error

        return make

    def test_once(self) -> None:
        """The second step finds what the first one made; another class has its own."""
        for owner in (self.owner, self.owner, type("Others", (), {})):
            made_once(owner, self.making())
        self.assertEqual(len(self.made), 2)

    def test_failure(self) -> None:
        """The first step fails with the error itself, each further one names it, and nothing is begun again."""
        with self.assertRaises(ValueError):
            made_once(self.owner, self.making(ValueError("no image")))
        for _ in range(2):
            with self.assertRaises(FailTest) as caught:
                made_once(self.owner, self.making())
            self.assertIn("ValueError: no image", str(caught.exception))
        self.assertEqual(len(self.made), 1)

    def test_skip(self) -> None:
        """What a machine cannot carry is no failure: each step is skipped with the reason."""
        for _ in range(2):
            with self.assertRaises(SkipTest):
                made_once(self.owner, self.making(SkipTest("no root")))
