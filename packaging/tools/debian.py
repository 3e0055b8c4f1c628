"""Debian packages as files to take apart: chosen and checked by apt, for any architecture, without installing them."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "python3",
    "ca-certificates",
    "iproute2",
    "nftables",
    "conntrack",
    "procps",
    "wireguard-tools",
    "wireguard-go",
)
LEFT_OUT: Final = frozenset(
    {
        # What only the scripts of packages use, or the programs in packages that we take for their libraries.
        "debconf",
        "dpkg",
        "init-system-helpers",
        "libcap2-bin",
        "libdb5.3",
        "libfile-find-rule-perl",
        "libgdbm-compat4",
        "libgdbm6",
        "libnumber-compare-perl",
        "libperl5.36",
        "libtext-glob-perl",
        "openssl",
        "perl",
        "perl-base",
        "perl-modules-5.36",
        "tar",
        "usrmerge",
    }
)
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def architecture() -> str:
    """Return this machine's architecture in Debian's words."""
    return _MACHINES.get(platform.machine(), platform.machine())


def download(scratch: Path, target: str) -> Sequence[Path]:
    """Fetch the packages and what they depend on; returns the files in the order of their names.

    apt compares signatures and digests. Ends the program where there is no apt, or it fails.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        sys.exit("the image is made of Debian's packages: this takes apt-get and dpkg-deb")
    for directory in ("state/lists/partial", "cache/archives/partial"):
        (scratch / directory).mkdir(parents=True)
    # An empty status: nothing counts as installed, so that every dependency is fetched.
    (scratch / "status").touch()
    options = {
        "Dir::State": scratch / "state",
        "Dir::State::status": scratch / "status",
        "Dir::Cache": scratch / "cache",
        "APT::Architecture": target,
        "APT::Architectures": target,
        "APT::Sandbox::User": "",
        "Debug::NoLocking": 1,
    }
    apt = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    for words in (["update"], ["install", "--download-only", "--no-install-recommends", "--yes", *PACKAGES]):
        done = subprocess.run([*apt, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"apt-get {words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    found = sorted((scratch / "cache/archives").glob("*.deb"))
    return [path for path in found if path.name.split("_")[0] not in LEFT_OUT]


def control(package: Path) -> bytes:
    """Return the control file of a package."""
    return _dpkg_deb("--field", package)


def files(package: Path) -> bytes:
    """Return the files of a package as a tar archive."""
    return _dpkg_deb("--fsys-tarfile", package)


def _dpkg_deb(what: str, package: Path) -> bytes:
    words = ["dpkg-deb", what, str(package)]
    return subprocess.run(words, check=True, capture_output=True).stdout
