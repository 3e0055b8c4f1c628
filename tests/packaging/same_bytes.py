"""The package and the images are built twice, at two places and in two environments: the same commit, the same bytes.

It fetches what they are made of, and takes minutes: a part of the night.
"""

from __future__ import annotations

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

from benchmarks.daemon.footprint import unpack
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
    commit = _copy(place)
    output = place.parent / f"built-{tool}{number}"
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
    return Built(file, commit)


def _copy(place: Path) -> str:
    """Make a repository of what is in the checkout, with one commit, and return that."""
    shutil.rmtree(place, ignore_errors=True)
    sources(place)
    git = ["git", "-C", str(place), "-c", "core.excludesFile="]
    for words in (["init", "--quiet"], ["add", "--all"], ["commit", "--quiet", "--message=all"]):
        subprocess.run([*git, *words], env=os.environ | _AUTHOR, check=True)
    return subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@cache
def image(architecture: str) -> Built:
    """Return the image for a processor, as the first environment builds it."""
    return build("image", 0, f"--arch={architecture}")


def digest(file: Path) -> str:
    """Return the digest of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def configuration(archive: Path) -> dict[str, Any]:
    """Return the configuration of an image."""
    with tarfile.open(archive) as tar:

        def read(name: str) -> dict[str, Any]:
            file = tar.extractfile(name)
            assert isinstance(file, io.BufferedReader)
            return dict(json.load(file))

        manifest = read(_blob(read("index.json")["manifests"][0]))
        return read(_blob(manifest["config"]))


def _blob(described: Mapping[str, str]) -> str:
    return f"blobs/sha256/{described['digest'].removeprefix('sha256:')}"


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
        labels = configuration(built.file)["config"]["Labels"]
        said = {name.rpartition(".")[2]: value for name, value in labels.items()}
        self.assertEqual((said["version"], said["revision"], said["source"]), (version(), built.commit, link("Source")))

    def test_arm64(self) -> None:
        """The image for arm64 says so, and each program and library in it is one of that processor."""
        for architecture in _MACHINES:
            built = image(architecture)
            self.assertEqual(configuration(built.file)["architecture"], architecture)
            root = Path(f"root-{architecture}").absolute()
            unpack(built.file, root)
            found = {str(path.relative_to(root)): machine(path) for path in root.rglob("*") if is_program(path)}
            self.assertEqual({name: number for name, number in found.items() if number != _MACHINES[architecture]}, {})
            for one in ("usr/bin/python3.11", "usr/bin/wireguard-go", "usr/sbin/nft"):
                self.assertIn(one, found)
            self.assertTrue(any("cryptography" in name for name in found), "no wheel with a library")
            shutil.rmtree(root)


def is_program(path: Path) -> bool:
    """Tell whether a file is a program or a library of some processor."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def machine(path: Path) -> int:
    """Return the number of the processor that a program is for: two bytes at 18 of its header, of the order at 5."""
    head = path.read_bytes()[:20]
    return int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
