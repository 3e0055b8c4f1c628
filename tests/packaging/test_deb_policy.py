"""What Debian's policy asks of the package: the tree that it is made of, without the Python environment in it."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

import deb  # noqa: E402 (the tools are scripts beside each other)
import deb_policy  # noqa: E402
from manual import pages  # noqa: E402
from project import PROGRAMS, settle  # noqa: E402

from liqod.cli.main import cli  # noqa: E402

INTERPRETER: Final = "python3.11"


def rewritten(path: Path, old: str, new: str) -> None:
    """Replace a text in a file, which has it."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def added(path: Path, text: str = "x", mode: int = 0o644) -> None:
    """Add a file to a tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


BROKEN: Final[dict[str, Callable[[Path], object]]] = {
    "required-field: Section": lambda tree: rewritten(tree / "DEBIAN/control", "Section: net\n", ""),
    "bad-version-number": lambda tree: rewritten(tree / "DEBIAN/control", "Version: ", "Version: v"),
    "bad-relation: iproute2 > 5": lambda tree: rewritten(tree / "DEBIAN/control", "iproute2", "iproute2 > 5"),
    "malformed-contact": lambda tree: rewritten(tree / "DEBIAN/control", "<liqod@example.invalid>", "nobody"),
    "unsubstituted-variable: Installed-Size": lambda tree: rewritten(
        tree / "DEBIAN/control", "Installed-Size: ", "Installed-Size: @SIZE@"
    ),
    "synopsis-too-long": lambda tree: rewritten(tree / "DEBIAN/control", "Description: ", f"Description: {'x' * 80}"),
    "synopsis: ": lambda tree: rewritten(tree / "DEBIAN/control", "Description: ", "Description: a "),
    "extended-description: ": lambda tree: rewritten(tree / "DEBIAN/control", " One daemon", "  \tOne daemon"),
    "maintainer-script-ignores-errors: prerm": lambda tree: rewritten(tree / "DEBIAN/prerm", "set -e\n", ""),
    "maintainer-script-without-shebang": lambda tree: rewritten(tree / "DEBIAN/prerm", "#!/bin/sh\n", "#!/bin/bash\n"),
    "unsubstituted-variable: postrm": lambda tree: rewritten(tree / "DEBIAN/postrm", "set -e", "set -e\n: @UNITS@"),
    "control-file-has-bad-permissions": lambda tree: (tree / "DEBIAN/postinst").chmod(0o644),
    "possible-bashism": lambda tree: rewritten(tree / "DEBIAN/postinst", "set -e", "set -e\n[[ -n x ]]"),
    "non-standard-file-perm: etc/liqod/liqod.toml 664": lambda tree: (tree / "etc/liqod/liqod.toml").chmod(0o664),
    "file-in-unusual-dir": lambda tree: added(tree / "usr/local/bin/liqodctl"),
    "package-contains-debris": lambda tree: added(tree / "usr/share/doc/liqod/copyright.orig"),
    "package-contains-broken-symlink": lambda tree: (tree / "opt/liqod/bin/python3.12").symlink_to("nowhere"),
    "unknown-interpreter": lambda tree: added(tree / "usr/bin/liqodctl", "#!/usr/bin/perl\n", 0o755),
    "script-not-executable": lambda tree: (tree / "usr/bin/liqodctl").chmod(0o644),
    "executable-not-a-script": lambda tree: (tree / "etc/liqod/liqod.toml").chmod(0o755),
    "no-manual-page: liqod-more": lambda tree: added(tree / "usr/bin/liqod-more", "#!/bin/sh\n", 0o755),
    "manual-page-in-wrong-section": lambda tree: (tree / "usr/share/man/man8/liqod.8.gz").rename(
        tree / "usr/share/man/man1/liqod.8.gz"
    ),
    "bad-so-link": lambda tree: (tree / "usr/share/man/man1/liqodctl.1.gz").unlink(),
    "bad-whatis-entry": lambda tree: (tree / "usr/share/man/man8/liqod.8.gz").write_bytes(gzip.compress(b".TH X 8\n")),
    "no-copyright-file": lambda tree: rewritten(tree / "usr/share/doc/liqod/copyright", "Format: ", ""),
    "package-contains-timestamped-gzip": lambda tree: (tree / "usr/share/doc/liqod/changelog.Debian.gz").write_bytes(
        gzip.compress(b"x", mtime=1)
    ),
    "no-changelog": lambda tree: (tree / "usr/share/doc/liqod/changelog.Debian.gz").unlink(),
    "syntax-error-in-debian-changelog": lambda tree: rewritten(tree / "DEBIAN/control", "Version: ", "Version: 9."),
    "file-in-etc-not-marked-as-conffile": lambda tree: added(tree / "etc/liqod/more.toml"),
    "conffile-is-not-in-package": lambda tree: (tree / "etc/liqod/liqod.toml").unlink(),
    "file-missing-in-md5sums": lambda tree: added(tree / "usr/share/doc/liqod/README"),
    "md5sums-lists-nonexistent-file": lambda tree: (tree / "usr/share/doc/liqod/copyright").unlink(),
    "md5sum-mismatch": lambda tree: rewritten(tree / "usr/share/doc/liqod/copyright", "2026", "1926"),
    "malformed-override": lambda tree: added(tree / "usr/share/lintian/overrides/liqod", "not an override\n"),
    "missing-description": lambda tree: rewritten(tree / "lib/systemd/system/liqod.service", "Description=", "#"),
    "refers-to-missing-program": lambda tree: (tree / "opt/liqod/bin/twistd").unlink(),
    "refers-to-unknown-user": lambda tree: added(tree / "usr/lib/sysusers.d/liqod.conf", "u other -\n"),
}
"""The begin or a part of each finding, with what is done to a good tree for it."""


class PolicyTests(SynchronousTestCase):
    """The tree of the package."""

    def setUp(self) -> None:
        require("" if shutil.which("dpkg") else "dpkg is not installed")
        self.tree = Path(self.mktemp()).absolute() / "stage"
        programs = self.tree / deb.OPT / "bin"
        programs.mkdir(parents=True)
        for name in ("python3", "python"):
            (programs / name).symlink_to(f"/usr/bin/{INTERPRETER}")
        for name, code in PROGRAMS.items():
            added(programs / name, f"#!/{deb.OPT}/bin/python3 -PE\n{code}\n", 0o755)
        deb.files(self.tree, INTERPRETER)
        deb.control(self.tree, INTERPRETER)
        settle(self.tree)

    def test_good(self) -> None:
        """The policy has nothing against it."""
        self.assertEqual(deb_policy.problems(self.tree), [])

    def test_scripts_parse(self) -> None:
        """The shell parses each of the maintainer's scripts, and the programs."""
        scripts = [*(self.tree / "DEBIAN" / name for name in deb_policy.SCRIPTS), *(self.tree / "usr/bin").iterdir()]
        for script in scripts:
            done = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), script.name)

    def test_each_rule_finds_something(self) -> None:
        """What breaks a rule is found, whichever it is; and each rule is broken once."""
        good = self.tree.with_name("good")
        self.tree.rename(good)
        for wanted, spoil in BROKEN.items():
            shutil.copytree(good, self.tree, symlinks=True)
            spoil(self.tree)
            found = deb_policy.problems(self.tree)
            self.assertTrue(any(wanted in one for one in found), f"{wanted}: {found}")
            shutil.rmtree(self.tree)


class ManualTests(SynchronousTestCase):
    """The manual pages, as troff reads them."""

    def test_no_warning(self) -> None:
        """groff formats each page and warns of nothing."""
        require("" if shutil.which("groff") else "groff is not installed")
        for name, text in pages(cli).items():
            if not text.startswith(".so "):
                words = ["groff", "-man", "-Kutf8", "-Tutf8", "-wmac", "-z"]
                done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
                self.assertEqual((done.returncode, done.stderr), (0, ""), name)

    def test_daemon(self) -> None:
        """liqod(8) has the daemon's options, its units, and the pages beside it."""
        page = pages(cli)["man8/liqod.8"]
        wanted = ("\\-\\-config FILE", "\\-\\-check", "liqod\\-network.service", "/etc/liqod/liqod.toml", "liqodctl(1)")
        for text in wanted:
            self.assertIn(text, page)
        self.assertNotIn("liqod(8)", page.partition(".SH SEE ALSO")[2])

    def test_what_a_user_looks_for(self) -> None:
        """liqodctl(1) says what its exit status means, which variables it reads, and where its files are."""
        page = pages(cli)["man1/liqodctl.1"]
        for section in ("EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"):
            self.assertIn(f"\n.SH {section}\n", page)
