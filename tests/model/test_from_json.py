"""JSON of somebody else, without a type."""

from __future__ import annotations

import re

import msgspec
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.objects.meta import from_json
from tests.project.test_architecture import CHECKOUT

_UNTYPED = re.compile(r"msgspec\.json\.decode\((?![^\n]*type=)")
_OWN = ("cli/", "agent/host/", "kube/manifests.py")
"""What reads its own files, and what a command has just written."""


class FromJsonTests(SynchronousTestCase):
    """What it takes, and who uses it."""

    def test_values(self) -> None:
        """They are what they are for msgspec."""
        for data in (b'{"a":[1,-2.5,1e308,1e-320,"x",null,true]}', b"12345678901234567890123", b"0.1"):
            self.assertEqual(from_json(data), msgspec.json.decode(data))

    def test_out_of_range(self) -> None:
        """A number that is none in Python is refused as msgspec does it; in JSON again it would be null."""
        for data in (b"[1e400]", b"[-1e309]", b"{"):
            self.assertRaises(msgspec.MsgspecError, from_json, data)

    def test_nothing_else_reads_what_others_wrote(self) -> None:
        """Without a type msgspec takes ten microseconds for a number such as 1e308, of which a pod may have 40 000."""
        found = [
            str(file.relative_to(CHECKOUT / "liqod"))
            for file in sorted((CHECKOUT / "liqod").rglob("*.py"))
            if _UNTYPED.search(file.read_text())
        ]
        self.assertEqual([one for one in found if not one.startswith(_OWN)], [])
