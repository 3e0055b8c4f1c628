"""The bill of materials names what is locked, and nothing of the machine that made it."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.packaging.test_release import tool

FOUND: dict[str, Any] = {
    "bomFormat": "CycloneDX",
    "metadata": {"timestamp": "now"},
    "components": [
        {
            "name": "liqod",
            "type": "library",
            "bom-ref": "liqod==1",
            "externalReferences": [{"type": "distribution", "url": "file:///srv/somebody/liqod"}],
        },
        {"name": "Zope.Interface", "type": "library", "version": "8.1", "purl": "pkg:pypi/zope-interface@8.1"},
    ],
    "dependencies": [{"ref": "liqod==1", "dependsOn": ["Zope.Interface==8.1"]}],
}
KNOWN = {"zope-interface": ["a" * 64, "b" * 64]}


def about(bom: dict[str, Any], known: dict[str, list[str]]) -> dict[str, Any]:
    code = f"import json, sbom; print(json.dumps(sbom.about_liqod({bom!r}, {known!r}, '2030-01-01T00:00:00+00:00')))"
    made: dict[str, Any] = json.loads(tool(code))
    return made


class BillOfMaterialsTests(SynchronousTestCase):
    def test_liqod_is_the_subject(self) -> None:
        """The file is about liqod, of the commit's date, and does not say where it was installed."""
        made = about(FOUND, KNOWN)
        subject = made["metadata"]["component"]
        self.assertEqual((subject["name"], subject["type"]), ("liqod", "application"))
        self.assertEqual(made["metadata"]["timestamp"], "2030-01-01T00:00:00+00:00")
        self.assertEqual([part["name"] for part in made["components"]], ["Zope.Interface"])
        self.assertEqual(made["dependencies"], FOUND["dependencies"])
        self.assertNotIn("somebody", json.dumps(made))

    def test_digests_of_the_lock(self) -> None:
        """Each package has the digests that pip compares when liqod is installed from the lock."""
        (source,) = about(FOUND, KNOWN)["components"][0]["externalReferences"]
        self.assertEqual([one["content"] for one in source["hashes"]], KNOWN["zope-interface"])
        self.assertEqual(source["url"], "pkg:pypi/zope-interface@8.1")

    def test_what_is_not_locked(self) -> None:
        """A package that nobody locked is no part of a release: the error names it, and what to do."""
        with self.assertRaises(AssertionError) as caught:
            about(FOUND, {})
        self.assertIn(
            "Zope.Interface is installed with liqod, and is not in requirements.lock: make lock", str(caught.exception)
        )

    def test_the_whole_lock_is_read(self) -> None:
        """Every package of the lock has digests."""
        code = "import json, sbom; print(json.dumps(sbom.digests(sbom.LOCK.read_text())))"
        found = json.loads(tool(code))
        self.assertGreater(len(found), 20)
        self.assertEqual([name for name, digests in found.items() if not digests], [])
