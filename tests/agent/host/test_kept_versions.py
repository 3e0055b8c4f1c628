"""Tests of liqod.agent.host.kept_versions and of what it keeps."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from liqod.agent.host.kept_versions import KeptVersions
from liqod.kube.connection.seen_versions import SeenVersions
from liqod.kube.resources import NAMESPACES, PODS


class KeptVersionsTests(SynchronousTestCase):
    """What one process leaves to the next."""

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.directory.mkdir()

    def kept(self, cluster: str = "rome") -> KeptVersions:
        return KeptVersions(cluster, {"STATE_DIRECTORY": f"{self.directory}:/nowhere"})

    def test_to_the_next_process(self) -> None:
        """What was seen is there for the next process on the same cluster, and for none on another."""
        seen = self.kept().read()
        seen.note(PODS, 7)
        seen.note(PODS, 5)
        self.kept().write(seen)
        self.assertEqual(self.kept().read().newest(PODS), 7)
        self.assertEqual(self.kept().read().newest(NAMESPACES), 0)
        self.assertEqual(self.kept("milan").read().newest(PODS), 0)
        seen.note(PODS, 5, went_back=True)
        self.kept().write(seen)
        self.assertEqual(self.kept().read().newest(PODS), 5)

    def test_a_list_of_an_earlier_state(self) -> None:
        """A list whose version is lower than one that was seen is of a restored state; other texts say nothing."""
        seen = SeenVersions()
        seen.note(PODS, 7)
        for version, is_before in (("6", True), ("7", False), ("8", False), ("", False), ("0", False), ("x", False)):
            self.assertEqual(seen.is_before(PODS, version), is_before)
        self.assertFalse(seen.is_before(NAMESPACES, "6"))

    def test_what_cannot_be_read(self) -> None:
        """A file that is broken, or none, is as if nothing had been seen; without a directory nothing is kept."""
        (file,) = [self.directory / "resource-versions.json"]
        for text in ("", "[]", "{", '{"cluster":"rome","versions":[]}', '{"cluster":"rome","versions":{"pods":"x"}}'):
            file.write_text(text)
            self.assertEqual(self.kept().read().as_dict(), {}, text)
        nowhere = KeptVersions("rome", {})
        nowhere.write(SeenVersions({"pods": 3}))
        self.assertEqual(nowhere.read().as_dict(), {})

    def test_only_versions(self) -> None:
        """What is no version of etcd is left out: true, negative numbers, larger ones than there are."""
        odd = {"a": True, "b": -1, "c": 1 << 63, "d": 0, "e": 4.5, "f": 9}
        self.assertEqual(SeenVersions(odd).as_dict(), {"f": 9})
