"""A bare Debian in a directory that boots with systemd, in a container with this machine's network or another one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import stat
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.testbed import system, versions
from tests.testbed.process import NETNS
from tests.testbed.registry import PREFIX

PACKAGES: Final = {
    "debootstrap": "debootstrap",
    "systemd-container": "systemd-nspawn",
    "util-linux": "nsenter",
    "dpkg": "dpkg-deb",
}
"""What makes such a machine, boots it and enters it, and unpacks what is installed in it."""
SUITE: Final = "bookworm"
INCLUDE: Final = "systemd,systemd-sysv,dbus,python3,python3-venv,iproute2,procps"
CGROUPS: Final = Path("/sys/fs/cgroup")
CAPABILITIES: Final = "CAP_NET_ADMIN,CAP_NET_RAW"
BOOT_LIMIT: Final = 60.0
STOP_LIMIT: Final = 30.0
MIRROR: Final = (
    "etc/resolv.conf",
    "etc/ssl/certs",
    "etc/apt/apt.conf",
    "etc/apt/apt.conf.d",
    "etc/apt/keyrings",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d",
    "etc/apt/trusted.gpg.d",
    "usr/share/keyrings",
)
"""What says where packages come from, and who signs them."""
_CLEAN: Final = ("env", "--unset=TMPDIR")
"""To be put before a program that runs in the machine: the directory of a test for what is temporary is not there."""


class Machine:
    """One such machine; ``root`` is its root directory while it is there.

    ``netns``: the network namespace that it boots in, by its name; empty: this machine's own network.
    """

    def __init__(self, root: Path, netns: str = "") -> None:
        self.root = root
        self.netns = netns
        self._cgroup = f"{PREFIX}{os.getpid():x}{secrets.token_hex(2)}-machine"
        self._container: subprocess.Popen[bytes] | None = None
        self._init = 0

    @classmethod
    def create(cls, root: Path, *, netns: str = "", name: str = "") -> Machine:
        """Copy the bare system to a directory; it is downloaded once, which takes a minute or two."""
        # cp and not shutil.copytree, which reads from the device nodes below /dev, and some never end.
        _output("cp", "--archive", str(bare()), str(root))
        # systemd takes a machine without an ID for one that boots for the first time, and enables all units.
        (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
        if name:
            (root / "etc/hostname").write_text(f"{name}\n")
            (root / "etc/hosts").write_text(f"127.0.0.1 localhost {name}\n")
        return cls(root, netns)

    def chroot(self, *words: str) -> str:
        """Run a program before the machine is started; returns its output. Raises AssertionError when it fails."""
        return _output("chroot", str(self.root), *_CLEAN, *words)

    def use_mirror(self) -> None:
        """Have apt in the machine fetch from where this machine's does, if both have the same release of Debian."""
        if f"VERSION_CODENAME={SUITE}\n" not in Path("/etc/os-release").read_text():
            return
        for name in MIRROR:
            source, target = Path("/", name), self.root / name
            if source.is_dir():
                shutil.copytree(
                    source, target, copy_function=_replace, dirs_exist_ok=True, ignore_dangling_symlinks=True
                )
            elif source.exists():
                target.unlink(missing_ok=True)
                target.write_bytes(source.read_bytes())

    def boot(self) -> None:
        """Boot systemd and wait until it has started everything. Raises AssertionError after a while."""
        words = [*self._in_own_cgroup(), "systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe"]
        words += [f"--capability={CAPABILITIES}", f"--directory={self.root}", "--boot"]
        if self.netns:
            words += [f"--network-namespace-path={NETNS / self.netns}", f"--bind={self._tun()}:/dev/net/tun"]
        self._container = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + BOOT_LIMIT
        while self._state() not in ("running", "degraded"):
            assert time.monotonic() < deadline, "systemd did not boot"
            assert self._container.poll() is None, "the container ended"
            time.sleep(0.2)

    def _in_own_cgroup(self) -> list[str]:
        """Return the words to put before a program so that it runs in a control group that no other machine has.

        In a group that two share, systemd of the one finds processes of the other: it cannot stop its own, nor guess
        which one is a unit's main process.
        """
        enter = 'mkdir -p "$group"; echo $$ >"$group/cgroup.procs"'
        script = f'for group in {" ".join(map(str, self._cgroups()))}; do {enter}; done; exec "$@"'
        return ["sh", "-c", script, "machine"]

    def _cgroups(self) -> list[Path]:
        """Return the group where systemd has its units: one, or one in each of two hierarchies (cgroups(7))."""
        if (CGROUPS / "cgroup.controllers").exists():
            return [CGROUPS / self._cgroup]
        places = (CGROUPS / "systemd", CGROUPS / "unified")
        return [place / self._cgroup for place in places if place.is_dir()]

    def _remove_cgroups(self) -> None:
        for group in self._cgroups():
            deadline = time.monotonic() + 3.0
            # The last processes of the container may be there for a moment longer than its first one.
            while group.exists() and time.monotonic() < deadline:
                for folder, _, _ in os.walk(group, topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
                time.sleep(0.05)

    def _tun(self) -> Path:
        """Return a device for tunnels that everybody may open, as udev has it (50-udev-default.rules)."""
        node = self.root.with_name(f"{self.root.name}.tun")
        if not node.exists():
            os.mknod(node, stat.S_IFCHR, os.makedev(10, 200))
            node.chmod(0o666)
        return node

    def reboot(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Shut the machine down and boot it again; ``meanwhile`` is called in between."""
        assert self._container is not None
        self.run("systemctl", "reboot", ok=False)
        self._container.wait(BOOT_LIMIT)
        self._init = 0
        meanwhile()
        self.boot()

    def entry(self) -> list[str]:
        """Return the words to put before a command line so that it runs in the machine."""
        network = ["--net"] if self.netns else []
        return ["nsenter", f"--target={self._init}", "--mount", "--uts", "--ipc", "--pid", *network, "--", *_CLEAN]

    def run(self, *words: str, ok: bool = True) -> str:
        """Run a program in the machine; returns its output. Raises AssertionError when it fails, unless not ``ok``."""
        return _output(*self.entry(), *words, ok=ok)

    def stop(self) -> None:
        """Shut the machine down and remove its directory."""
        if self._container is not None and self._container.poll() is None:
            if self._init:
                self.run("systemctl", "poweroff", ok=False)
            try:
                self._container.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                # A second one ends the container without asking its systemd.
                for number in (signal.SIGTERM, signal.SIGKILL):
                    self._container.send_signal(number)
                self._container.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def _state(self) -> str:
        assert self._container is not None
        if not self._init:
            # The only child of systemd-nspawn is the container's first process.
            me = self._container.pid
            children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
            if not children or Path(f"/proc/{children[0]}/comm").read_text() != "systemd\n":
                return ""
            self._init = int(children[0])
        return self.run("systemctl", "is-system-running", ok=False).strip()


def _replace(source: str, target: str) -> None:
    # A certificate there may be a link to a path that is this machine's as well as the other one's.
    Path(target).unlink(missing_ok=True)
    shutil.copy2(source, target)


def missing() -> str:
    """Return why this machine cannot carry such a machine, or ""; packages are installed where that is possible."""
    try:
        system.install(PACKAGES)
    except system.Missing as error:
        return str(error)
    return ""


def bare() -> Path:
    """Return the directory of the bare system, which is never changed."""
    place = versions.cache() / f"debian-{SUITE}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with (versions.cache() / "debian.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            scratch = place.with_suffix(".new")
            shutil.rmtree(scratch, ignore_errors=True)
            _output("debootstrap", "--variant=minbase", f"--include={INCLUDE}", SUITE, str(scratch))
            scratch.rename(place)
    return place


def _output(*words: str, ok: bool = True) -> str:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout
