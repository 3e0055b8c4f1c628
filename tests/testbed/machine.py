"""A bare Debian in a directory that boots with systemd, in a container that shares this machine's network."""

from __future__ import annotations

import fcntl
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Final

from tests.testbed import versions

SUITE: Final = "bookworm"
INCLUDE: Final = "systemd,systemd-sysv,dbus,python3,python3-venv,iproute2,procps"
CAPABILITIES: Final = "CAP_NET_ADMIN,CAP_NET_RAW"
BOOT_LIMIT: Final = 60.0
STOP_LIMIT: Final = 30.0


class Machine:
    """One such machine, to be started once; ``root`` is its root directory while it is there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._container: subprocess.Popen[bytes] | None = None
        self._init = 0

    @classmethod
    def create(cls, root: Path) -> Machine:
        """Copy the bare system to a directory; it is downloaded once, which takes a minute or two."""
        # cp and not shutil.copytree, which reads from the device nodes below /dev, and some never end.
        _output("cp", "--archive", str(bare()), str(root))
        # systemd takes a machine without an ID for one that boots for the first time, and enables all units.
        (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
        return cls(root)

    def chroot(self, *words: str) -> str:
        """Run a program before the machine is started; returns its output. Raises AssertionError when it fails."""
        return _output("chroot", str(self.root), *words)

    def boot(self) -> None:
        """Boot systemd and wait until it has started everything. Raises AssertionError after a while."""
        words = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--console=pipe"]
        words += [f"--capability={CAPABILITIES}", f"--directory={self.root}", "--boot"]
        self._container = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + BOOT_LIMIT
        while self._state() not in ("running", "degraded"):
            assert time.monotonic() < deadline, "systemd did not boot"
            assert self._container.poll() is None, "the container ended"
            time.sleep(0.2)

    def run(self, *words: str, ok: bool = True) -> str:
        """Run a program in the machine; returns its output. Raises AssertionError when it fails, unless not ``ok``."""
        return _output("nsenter", f"--target={self._init}", "--mount", "--uts", "--ipc", "--pid", *words, ok=ok)

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


def missing() -> str:
    """Return why this machine cannot carry such a machine, or ""."""
    lacking = [name for name in ("debootstrap", "systemd-nspawn", "nsenter") if shutil.which(name) is None]
    if not lacking:
        return ""
    return f"{', '.join(lacking)} not installed: Debian has them in debootstrap, systemd-container and util-linux"


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
