"""Releases are signed by keys that stand in the repository, and verified by programs that every host has."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require
from tests.packaging.test_release import CHECKOUT, tool

SIGNERS = CHECKOUT / "packaging" / "release-signers"
PAGE = CHECKOUT / "docs" / "verify.md"
SECRET = re.compile(rb"BEGIN OPENSSH PRIVATE KEY-----\n[A-Za-z0-9+/]{40}|minisign encrypted secret key\nR")


class SignedCase(SynchronousTestCase):
    """A directory with two files of a release, and a maintainer with a key."""

    def setUp(self) -> None:
        require("" if shutil.which("ssh-keygen") else "ssh-keygen is not installed")
        self.place = Path(self.mktemp()).absolute()
        self.dist = self.place / "dist"
        self.dist.mkdir(parents=True)
        (self.dist / "liqod-1.whl").write_bytes(b"wheel")
        (self.dist / "liqod_1_amd64.deb").write_bytes(b"package")
        self.signers = self.place / "release-signers"
        self.signers.write_text(SIGNERS.read_text())
        self.key = self.make_key("maintainer")
        self.admit(self.key)

    def make_key(self, name: str) -> Path:
        key = self.place / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)], check=True)
        return key

    def admit(self, key: Path, options: str = 'namespaces="liqod-release" ') -> None:
        public = key.with_name(f"{key.name}.pub").read_text()
        with self.signers.open("a") as file:
            file.write(f"{key.name}@example.org {options}{public}")

    def sign(self, key: Path | None = None) -> None:
        tool(f"import pathlib, sign; sign.sign(pathlib.Path({str(self.dist)!r}), {str(key or self.key)!r})")

    def check(self) -> str:
        """Return what the check says, good or bad."""
        where = f"pathlib.Path({str(self.dist)!r}), pathlib.Path({str(self.signers)!r})"
        return tool(
            "import pathlib, sign\n"
            f"try:\n    print(*sign.check({where}), sep='\\n')\n"
            "except sign.NotVerified as error:\n    print('not verified:', error)\n"
        )


class SignTests(SignedCase):
    def test_as_it_was_signed(self) -> None:
        """The files are named with their digests, and who signed."""
        self.sign()
        said = self.check()
        self.assertIn("signed by maintainer@example.org", said)
        for name in ("liqod-1.whl", "liqod_1_amd64.deb"):
            self.assertRegex(said, rf"(?m)^[0-9a-f]{{64}}  {re.escape(name)}$")
        self.sign()
        self.assertEqual(self.check(), said)

    def test_changed(self) -> None:
        """A file that was changed, added or taken away is named; so is a list that nobody signed."""
        self.sign()
        (self.dist / "liqod-1.whl").write_bytes(b"Wheel")
        self.assertEqual(self.check(), "not verified: other than what was signed: liqod-1.whl")
        (self.dist / "liqod-1.whl").unlink()
        self.assertEqual(self.check(), "not verified: other than what was signed: liqod-1.whl")
        (self.dist / "liqod-1.whl").write_bytes(b"wheel")
        (self.dist / "more").touch()
        self.assertEqual(self.check(), "not verified: other than what was signed: more")
        (self.dist / "more").unlink()
        with (self.dist / "SHA256SUMS").open("a") as file:
            file.write(f"{64 * '0'}  more\n")
        self.assertIn("not verified: ", self.check())
        (self.dist / "SHA256SUMS.sig").unlink()
        self.assertIn("not verified: there is no ", self.check())

    def test_by_somebody_else(self) -> None:
        """A key that is not in the list, or is in it for something else, does not count."""
        self.sign(self.make_key("stranger"))
        self.assertIn("nobody in release-signers has signed", self.check())
        other = self.make_key("committer")
        self.admit(other, 'namespaces="git" ')
        self.sign(other)
        self.assertIn("not verified: ", self.check())

    def test_for_something_else(self) -> None:
        """What a maintainer signed for another purpose is no release."""
        self.sign()
        sums = self.dist / "SHA256SUMS"
        (self.dist / "SHA256SUMS.sig").unlink()
        subprocess.run(["ssh-keygen", "-Y", "sign", "-q", "-f", str(self.key), "-n", "file", str(sums)], check=True)
        self.assertIn("not verified: ", self.check())

    def test_by_hand(self) -> None:
        """The commands of the page verify, and fail for what was changed."""
        self.sign()
        (block,) = re.findall(r"\n\n((?:    .+\n)+)\nThe first", PAGE.read_text())
        script = "\n".join(line.strip() for line in block.splitlines())
        (self.dist / "release-signers").symlink_to(self.signers)
        script = script.replace("NAME", "maintainer@example.org")

        def run() -> int:
            argv = ["/bin/sh", "-ec", script]
            return subprocess.run(argv, cwd=self.dist, capture_output=True, check=False).returncode

        self.assertEqual(run(), 0)
        (self.dist / "liqod-1.whl").write_bytes(b"Wheel")
        self.assertNotEqual(run(), 0)


class RepositoryTests(SynchronousTestCase):
    """What is in the repository."""

    def test_no_private_key(self) -> None:
        """No key that signs is among the files that git knows."""
        words = ["git", "-C", str(CHECKOUT), "ls-files", "-z"]
        names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")
        holding = [
            name
            for name in names
            if name and (CHECKOUT / name).is_file() and SECRET.search((CHECKOUT / name).read_bytes())
        ]
        self.assertEqual(holding, [])

    def test_signers(self) -> None:
        """Each line of the list is a comment, or a name with a public key for releases and nothing else."""
        for line in filter(None, SIGNERS.read_text().splitlines()):
            self.assertRegex(line, r'^(#|\S+@\S+ namespaces="liqod-release" (ssh|sk-ssh|ecdsa)-\S+ [A-Za-z0-9+/=]+)')
