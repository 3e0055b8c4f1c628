"""``make chart``: the Helm chart as one file, as ``helm package`` makes it; the same commit gives the same bytes."""

from __future__ import annotations

import argparse
import gzip
import io
import tarfile
from pathlib import Path
from typing import Final

import yaml
from project import CHECKOUT, DIST, epoch, version

CHART: Final = CHECKOUT / "packaging" / "chart"
NAME: Final = "liqod"
FIRST: Final = "Chart.yaml"
"""What a registry reads, it reads from the beginning."""


def main() -> None:
    """Write the archive and print its path."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=DIST, help="the directory for the file")
    output: Path = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    path = output / file_name()
    path.write_bytes(packed(int(epoch())))
    print(path)


def file_name() -> str:
    """Return the name that Helm gives a chart's archive."""
    return f"{NAME}-{version()}.tgz"


def packed(seconds: int) -> bytes:
    """Return the archive, with all dates of that second; raises ValueError where the chart is of another version."""
    described = yaml.safe_load((CHART / FIRST).read_text("utf-8"))
    wrong = sorted({described["version"], described["appVersion"]} - {version()})
    if wrong:
        raise ValueError(f"{CHART.relative_to(CHECKOUT)}/{FIRST} has {wrong[0]}, and setup.cfg {version()}")
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        files = (path for path in CHART.rglob("*") if path.is_file())
        for path in sorted(files, key=lambda path: (path.name != FIRST, path.relative_to(CHART).as_posix())):
            member = tarfile.TarInfo(f"{NAME}/{path.relative_to(CHART).as_posix()}")
            content = path.read_bytes()
            member.size, member.mtime, member.mode = len(content), seconds, 0o644
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


if __name__ == "__main__":
    main()
