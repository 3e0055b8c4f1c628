"""The package and the images are built twice, at two places and in two environments: the same commit, the same bytes.

It fetches what they are made of, and takes minutes: a part of the night.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from twisted.trial.unittest import SynchronousTestCase

from tests.environment import require

CHECKOUT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "packaging/tools"))

from project import link, sources, version  # noqa: E402 (the tools are scripts beside each other)

_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "somebody"), ("EMAIL", "somebody@example.invalid"), ("DATE", "2025-06-01T12:00:00Z"))
}
_ENVIRONMENTS: Final[tuple[dict[str, str], ...]] = (
    {"TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONHASHSEED": "1"},
    {"TZ": "America/Lima", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "2"},
)
_MASKS: Final = (0o022, 0o077)
_MACHINES: Final = {"amd64": 62, "arm64": 183}
"""The number of each processor in the header of its programs (elf.h, EM_X86_64 and EM_AARCH64)."""


class Built(NamedTuple):
    """A file that was built, and the commit that it is of."""

    file: Path
    commit: str


def build(tool: str, number: int, *words: str) -> Built:
    """Build in a copy of the checkout, whose place, time zone, umask and seed differ by the number."""
    place = Path(f"{'deeper/' * number}copy{number}").absolute()
    if not place.exists():
        shutil.copytree(repository(), place, symlinks=True)
    output = place.parent / "-".join(("built", tool, str(number), *words))
    done = subprocess.run(
        [sys.executable, str(place / "packaging/tools" / f"{tool}.py"), f"--output={output}", *words],
        env=os.environ | {"PYTHONPATH": str(place)} | _ENVIRONMENTS[number],
        cwd=place,
        umask=_MASKS[number],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = (one for one in output.iterdir() if one.suffix in (".deb", ".tar"))
    return Built(file, _git(place, "rev-parse", "HEAD"))


@cache
def repository() -> Path:
    """Make a repository of what is in the checkout now, with one commit; return its place."""
    place = Path("repository").absolute()
    sources(place)
    _git(place, "init", "--quiet")
    _git(place, "add", "--all", "--force")
    _git(place, "commit", "--quiet", "--message=all")
    return place


def _git(place: Path, *words: str) -> str:
    command = ["git", "-C", str(place), *words]
    return subprocess.run(command, env=os.environ | _AUTHOR, check=True, capture_output=True, text=True).stdout.strip()


@cache
def image(architecture: str) -> Built:
    """Return the image for a processor, as the first environment builds it."""
    return build("image", 0, f"--arch={architecture}")


def digest(file: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


class Image:
    """An image as an archive in the layout of OCI, read in memory."""

    def __init__(self, file: Path) -> None:
        with tarfile.open(file) as tar:
            self._files = {one.name: _content(tar, one) for one in tar if one.isreg()}
        self._manifest = self._read(json.loads(self._files["index.json"])["manifests"][0])

    @property
    def configuration(self) -> dict[str, Any]:
        """What the image says about itself and what it runs."""
        return self._read(self._manifest["config"])

    def programs(self) -> dict[str, int]:
        """Return the processor of each program and library, by its path: the number in its header."""
        found = {}
        for described in self._manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(self._blob(described)))) as tar:
                for one in tar:
                    head = _content(tar, one)[:20] if one.isreg() else b""
                    if head.startswith(b"\x7fELF"):
                        # Two bytes at 18, of the order that is said at 5.
                        found[one.name] = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
        return found

    def _blob(self, described: Mapping[str, str]) -> bytes:
        return self._files[f"blobs/sha256/{described['digest'].removeprefix('sha256:')}"]

    def _read(self, described: Mapping[str, str]) -> dict[str, Any]:
        return dict(json.loads(self._blob(described)))


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


class SameBytesTests(SynchronousTestCase):
    """What one commit gives, twice."""

    def setUp(self) -> None:
        lacking = [name for name in ("dpkg-deb", "apt-get", "git") if shutil.which(name) is None]
        require(f"{', '.join(lacking)} not installed: packages and images are built on Debian" if lacking else "")

    def test_package(self) -> None:
        """Two builds of the Debian package are equal, byte by byte, under one name."""
        one, two = build("deb", 0), build("deb", 1)
        self.assertEqual(one.commit, two.commit)
        self.assertEqual(one.file.name, two.file.name)
        self.assertEqual(digest(one.file), digest(two.file), f"diffoscope {one.file} {two.file}")

    def test_image(self) -> None:
        """So are two builds of the image."""
        one, two = image("amd64"), build("image", 1, "--arch=amd64")
        self.assertEqual(one.file.name, two.file.name)
        self.assertEqual(digest(one.file), digest(two.file), f"diffoscope {one.file} {two.file}")

    def test_labels(self) -> None:
        """The image says of which commit it is, without ``-dirty``, and where its source is."""
        built = image("amd64")
        labels = Image(built.file).configuration["config"]["Labels"]
        said = {name.rpartition(".")[2]: value for name, value in labels.items()}
        self.assertEqual((said["version"], said["revision"], said["source"]), (version(), built.commit, link("Source")))

    def test_arm64(self) -> None:
        """The image for arm64 says so, and each program and library in it is one of that processor."""
        for architecture, number in _MACHINES.items():
            found = Image(image(architecture).file)
            self.assertEqual(found.configuration["architecture"], architecture)
            programs = found.programs()
            self.assertEqual({name: one for name, one in programs.items() if one != number}, {})
            for one in ("usr/bin/python3.11", "usr/bin/wireguard-go", "usr/sbin/nft"):
                self.assertIn(one, programs)
            self.assertTrue(any("site-packages/cryptography/" in name for name in programs), "no wheel with a library")
