"""``make dist``: the wheel and the source distribution; the same commit gives the same bytes."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from project import CHECKOUT, DIST, epoch, run, sources

CONSTRAINTS = CHECKOUT / "packaging" / "build-constraints.txt"


def main() -> None:
    """Build both files and print them with their digests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=DIST, help="the directory for the files")
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    for path in build(output):
        print(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}")


def build(output: Path) -> list[Path]:
    """Build both files in a directory; returns them."""
    os.environ["PIP_CONSTRAINT"] = str(CONSTRAINTS)
    with tempfile.TemporaryDirectory() as scratch:
        tree = sources(Path(scratch) / "sources")
        run(sys.executable, "-m", "build", "--outdir", scratch, str(tree))
        (wheel,) = Path(scratch).glob("liqod-*.whl")
        (archive,) = Path(scratch).glob("liqod-*.tar.gz")
        (output / wheel.name).write_bytes(wheel.read_bytes())
        (output / archive.name).write_bytes(repacked(archive.read_bytes(), int(epoch())))
        return [output / wheel.name, output / archive.name]


def repacked(archive: bytes, seconds: int) -> bytes:
    """Return a tar.gz with its members sorted, of root, with one date: setuptools writes the date of the build."""
    plain = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive)) as source,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "root", "root"
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            target.addfile(member, source.extractfile(member))
    return gzip.compress(plain.getvalue(), 9, mtime=seconds)


if __name__ == "__main__":
    main()
