"""What the test clusters need of the machine: root, kernel features, Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

# Package -> the program, or one of the files, that shows that it is installed.
PACKAGES: Final[dict[str, str | tuple[str, ...]]] = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": ("/usr/lib/cni/bridge", "/opt/cni/bin/bridge", "/usr/libexec/cni/bridge"),
    "busybox-static": "busybox",
    "iproute2": "ip",
    "nftables": "nft",
    "conntrack": "conntrack",
    "util-linux": "nsenter",
    "mount": "mount",
    "wireguard-go": "wireguard-go",
    "wireguard-tools": "wg",
    "iperf3": "iperf3",
    "nsd": "nsd",
    "systemd": "systemd-analyze",
}


# A node's kubelet, containerd and CNI take a dozen inotify instances, and Linux gives each user 128.
_INSTANCES: Final = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH: Final = 1024


class Missing(Exception):
    """The machine cannot carry test clusters; the text is the list of reasons."""


Packages = Mapping[str, str | tuple[str, ...]]


def missing(more: Packages = MappingProxyType({})) -> list[str]:
    """Return, in one sentence each, what this machine lacks; programs that are built are not part of it.

    ``more``: packages that are needed beside those of all test clusters, in the form of ``PACKAGES``.
    """
    if not sys.platform.startswith("linux"):
        return ["test clusters need Linux"]
    lacking = [] if os.geteuid() == 0 else ["test clusters need root: they make namespaces, bridges and mounts"]
    lacking += [f"the system package {package} is not installed" for package in missing_packages(more)]
    return lacking + (_missing_features() if not lacking else [])


def missing_packages(more: Packages = MappingProxyType({})) -> list[str]:
    """Return the Debian packages that are not installed."""
    lacking = [package for package, proof in {**PACKAGES, **more}.items() if not _present(proof)]
    busybox = _find("busybox")
    if busybox and not _static(Path(busybox)):
        lacking.append("busybox-static")
    return lacking


def require(more: Packages = MappingProxyType({})) -> None:
    """Raise Missing unless this machine can carry test clusters; packages are installed where that is possible."""
    install(more)
    if lacking := missing(more):
        raise Missing("; ".join(lacking))
    _make_room()


def install(more: Packages = MappingProxyType({})) -> None:
    """Install missing packages when this is root on Debian or a relative; else raise Missing with the command."""
    packages = missing_packages(more)
    if not packages:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Missing(f"missing system packages; as root on Debian: {' '.join(command)}")
    print(f"installing system packages: {' '.join(packages)}", flush=True)
    begin = time.monotonic()
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    quiet = ["-o", "Dpkg::Use-Pty=0", "-o", "DPkg::Lock::Timeout=300", "-qq"]
    for words in (["apt-get", *quiet, "update"], [command[0], *quiet, *command[1:]]):
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Missing(f"{' '.join(words)} failed: {(done.stderr + done.stdout)[-2000:]}")
    print(f"installed in {time.monotonic() - begin:.0f} s", flush=True)


def _make_room() -> None:
    """Raise the limit of inotify instances where it is too low for several clusters, and say so."""
    try:
        now = int(_INSTANCES.read_text())
        if now < _ENOUGH:
            _INSTANCES.write_text(str(_ENOUGH))
            print(f"fs.inotify.max_user_instances: {now} -> {_ENOUGH}, for the nodes of test clusters", flush=True)
    except (OSError, ValueError):
        return


def _present(proof: str | tuple[str, ...]) -> bool:
    return bool(_find(proof)) if isinstance(proof, str) else any(Path(place).exists() for place in proof)


def _find(program: str) -> str:
    search = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    return shutil.which(program, path=search) or ""


def _static(program: Path) -> bool:
    """Say whether a program needs no dynamic linker, so that it runs in an otherwise empty image."""
    with program.open("rb") as file:
        beginning = file.read(8192)
    return not any(linker in beginning for linker in (b"/ld-linux", b"/ld-musl"))


def _missing_features() -> list[str]:
    """Try, in namespaces that vanish with the trial, what the clusters do."""
    trials = {
        "bridges with veth pairs": "ip link add br0 type bridge mcast_snooping 0"
        " && ip link add ve0 type veth peer name ve1 && ip link set ve0 master br0",
        "nftables NAT": "nft add table ip t && nft 'add chain ip t c { type nat hook prerouting priority 0; }'",
        "process and mount namespaces": "unshare --fork --pid --mount --mount-proc mount -t tmpfs x /run",
    }
    lacking = []
    for what, script in trials.items():
        done = subprocess.run(["unshare", "--net", "sh", "-c", script], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lacking.append(f"the kernel does not offer {what}: {done.stderr.strip()}")
    if not any(Path("/sys/fs/cgroup").glob("**/cgroup.procs")):
        lacking.append("no control groups are mounted at /sys/fs/cgroup")
    return lacking
