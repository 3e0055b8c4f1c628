"""What the packages say about the project; the version stands in setup.cfg alone."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CHECKOUT: Final = Path(__file__).resolve().parents[2]
LOCK: Final = CHECKOUT / "packaging" / "requirements.lock"
DIST: Final = CHECKOUT / "dist"
PROGRAMS: Final = {
    "liqodctl": "from liqod.cli.main import main; main()",
    "kubectl-liqod": "from liqod.cli.main import main; main()",
    "twistd": "from twisted.scripts.twistd import run; run()",
}
"""The programs of a package or image, each with its code."""


def version() -> str:
    """Return the version of liqod."""
    return _metadata()["version"]


def link(name: str) -> str:
    """Return one of the project's addresses, such as that of its source; KeyError for one that setup.cfg has not."""
    lines = _metadata()["project_urls"].strip().splitlines()
    return {key.strip(): url.strip() for key, _, url in (line.partition("=") for line in lines)}[name]


def _metadata() -> Mapping[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(CHECKOUT / "setup.cfg")
    return parser["metadata"]


def revision() -> str:
    """Return the commit that is built, with ``-dirty`` after it where the checkout has something else."""
    return _git("rev-parse", "HEAD") + ("-dirty" if _git("status", "--porcelain") else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(CHECKOUT), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def epoch() -> str:
    """Return the date of what is built, in seconds: SOURCE_DATE_EPOCH, else that of the last commit.

    See https://reproducible-builds.org/specs/source-date-epoch/.
    """
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return given
    return _git("log", "-1", "--format=%ct")


def environment() -> Mapping[str, str]:
    """Return the environment for programs that build, so that the same commit gives the same bytes."""
    # With PYTHONPATH pip takes the checkout for an installed liqod, and installs none.
    mine = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    return mine | {"SOURCE_DATE_EPOCH": epoch(), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def sources(target: Path) -> Path:
    """Copy what git knows of, as it is in the checkout, to a new directory; returns that.

    What was built before, or lies about, is no part of a release. Symbolic links become what they lead to.
    """
    words = ["git", "-C", str(CHECKOUT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0"):
        source = CHECKOUT / name
        if name and source.is_dir():
            shutil.copytree(source, target / name)
        elif name and source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target / name)
    settle(target)
    return target


def run(*words: str, cwd: Path = CHECKOUT) -> None:
    """Run a program that builds; raises CalledProcessError."""
    subprocess.run(words, check=True, cwd=cwd, env=environment())


def settle(directory: Path) -> None:
    """Give everything below a directory the date of the build, and the modes 755 and 644."""
    seconds = int(epoch())
    for path in [*directory.rglob("*"), directory]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (seconds, seconds), follow_symlinks=False)
