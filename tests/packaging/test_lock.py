"""The locked dependencies of the packages are those that setup.cfg asks for."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from twisted.trial.unittest import SynchronousTestCase

CHECKOUT = Path(__file__).resolve().parents[2]
LOCK = (CHECKOUT / "packaging" / "requirements.lock").read_text()


class LockTests(SynchronousTestCase):
    def test_every_dependency(self) -> None:
        """Each dependency is locked, at a version that setup.cfg allows; `make lock` renews the file."""
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(CHECKOUT / "setup.cfg")
        locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, re.MULTILINE))
        for line in parser["options"]["install_requires"].split():
            wanted = Requirement(line)
            version = locked.get(canonicalize_name(wanted.name), "")
            self.assertTrue(version and wanted.specifier.contains(version), f"{line} is locked as {version!r}")

    def test_digests_alone(self) -> None:
        """Each entry has digests, and none says where it is from: that is the choice of who builds."""
        entries = re.split(r"\n(?=\S)", LOCK.strip())
        for entry in entries:
            self.assertRegex(entry, r"^[a-z0-9-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+$")
