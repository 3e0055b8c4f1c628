"""Container images of real programs, made from Debian packages and from programs that were built here.

There is no registry. The packages come by this machine's apt, with everything that they depend on, as for a system on
which nothing is installed; no script of theirs is run, and they are unpacked where containers look for them. What was
made of the same packages is kept in the cache of the test clusters.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.testbed import versions
from tests.testbed.image import ARCHITECTURE, add_directory, add_file
from tests.testbed.process import CommandFailed

IMAGE: Final = "localhost/programs:1"
PACKAGES: Final = (
    "postgresql",
    "redis-server",
    "redis-tools",
    "prometheus",
    "prometheus-postgres-exporter",
    "prometheus-redis-exporter",
    "curl",
    "bash",
    "coreutils",
)
"""What the image of the tests holds beside busybox and the programs that were built."""
DATABASE_USER: Final = 70
"""The user of PostgreSQL and Redis in the image; PostgreSQL refuses to run as root."""

_LAYOUT: Final = "2"
"""To be changed with what is made of packages, so that nothing older is taken from the cache."""
_LEFT_OUT: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian")
_PASSWD: Final = "root:x:0:0::/:/bin/sh\npostgres:x:70:70::/tmp:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
_GROUP: Final = "root:x:0:\npostgres:x:70:\nnogroup:x:65534:\n"
_FILES: Final = {
    "etc/passwd": _PASSWD,
    "etc/group": _GROUP,
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_APT: Final = ("-qq", "--yes", "-o", "APT::Install-Recommends=false", "-o", "APT::Sandbox::User=root")


def make_image(
    archive: Path, programs: Mapping[str, Path], *, packages: Sequence[str] = PACKAGES, name: str = IMAGE
) -> None:
    """Write an archive with one image: packages, busybox, and programs in ``/usr/local/bin``.

    Raises CommandFailed or OSError where that is not possible on this machine.
    """
    layers = [_packages_layer(packages)]
    with tempfile.TemporaryDirectory(dir=archive.parent) as scratch:
        if programs:
            own = Path(scratch) / "programs.tar"
            _write_programs(own, programs)
            layers.append(own)
        digests = [_digest(layer) for layer in layers]
        config = {
            "architecture": ARCHITECTURE,
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"], "Entrypoint": [], "Cmd": ["sh"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
        names = [f"{digest[:16]}.tar" for digest in digests]
        index = [{"Config": "config.json", "RepoTags": [name], "Layers": names}]
        with tarfile.open(archive, "w") as tar:
            add_file(tar, "config.json", json.dumps(config).encode())
            for layer, entry in zip(layers, names, strict=True):
                tar.add(layer, entry)
            add_file(tar, "manifest.json", json.dumps(index).encode())


def lacking() -> str:
    """Return why no image can be made of packages here, or nothing."""
    absent = [name for name in ("apt-get", "dpkg-deb", "busybox") if shutil.which(name) is None]
    return f"{', '.join(absent)} not found: images are made of Debian packages" if absent else ""


def _packages_layer(packages: Sequence[str]) -> Path:
    """Return the tar file with packages and busybox, unpacked as a container has them."""
    versions.cache().mkdir(parents=True, exist_ok=True)
    wanted = hashlib.sha256(" ".join([_LAYOUT, *packages]).encode()).hexdigest()[:16]
    place = versions.cache() / f"packages-{wanted}.tar"
    with _only_one():
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=versions.cache(), prefix="packages-") as scratch:
                fresh = Path(scratch) / "layer.tar"
                root = Path(scratch) / "root"
                _unpack(packages, Path(scratch), root)
                _furnish(root)
                _write_tree(fresh, root)
                fresh.replace(place)
    return place


def _unpack(packages: Sequence[str], scratch: Path, root: Path) -> None:
    """Download packages with what they depend on, and unpack them below a directory."""
    (scratch / "cache/archives/partial").mkdir(parents=True)
    (scratch / "status").write_text("")
    # An empty list of what is installed: apt then takes everything that is needed, and not this machine's own.
    own = ["-o", f"Dir::State::status={scratch}/status", "-o", f"Dir::Cache={scratch}/cache"]
    _run(["apt-get", "-qq", "update"])
    _run(["apt-get", *_APT, *own, "--download-only", "install", *packages], DEBIAN_FRONTEND="noninteractive")
    root.mkdir()
    found = sorted((scratch / "cache/archives").glob("*.deb"), key=_is_layout, reverse=True)
    if not found:
        raise FileNotFoundError(f"apt brought nothing for {' '.join(packages)}")
    for package in found:
        _run(["dpkg-deb", "--extract", str(package), str(root)])


def _is_layout(package: Path) -> bool:
    """Return whether a package says where the folders of all others are, and so comes before them."""
    return package.name.startswith("base-files_")


def _furnish(root: Path) -> None:
    """Leave out what no program reads, and add users, busybox and its links where nothing has those names."""
    for name in _LEFT_OUT:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("bin", "etc", "tmp", "var/tmp", "root", "run", "usr/local/bin"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    own = root / "bin/busybox"
    own.unlink(missing_ok=True)
    shutil.copyfile(busybox, own)
    own.chmod(0o755)
    applets = _run([str(busybox), "--list"]).split()
    places = [root / name for name in ("bin", "usr/bin", "sbin", "usr/sbin")]
    for applet in applets:
        if not any(os.path.lexists(place / applet) for place in places):
            (root / "bin" / applet).symlink_to("busybox")


def _write_tree(archive: Path, root: Path) -> None:
    def owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w") as tar:
        for entry in sorted(root.iterdir()):
            tar.add(entry, entry.name, filter=owned_by_root)


def _write_programs(archive: Path, programs: Mapping[str, Path]) -> None:
    with tarfile.open(archive, "w") as tar:
        for name in ("usr", "usr/local", "usr/local/bin"):
            add_directory(tar, name, 0o755)
        for name, program in sorted(programs.items()):
            entry = tarfile.TarInfo(f"usr/local/bin/{name}")
            entry.size, entry.mode = program.stat().st_size, 0o755
            with program.open("rb") as file:
                tar.addfile(entry, file)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _run(argv: Sequence[str], **environ: str) -> str:
    done = subprocess.run(argv, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandFailed(argv, done.returncode, done.stderr + done.stdout)
    return done.stdout


@contextmanager
def _only_one() -> Iterator[None]:
    with (versions.cache() / "packages.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
