"""A LAN of network namespaces: a bridge in one, and a cable to each of the others. Needs root, leaves nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType


def missing() -> str:
    """Return why no LAN can be made here, or an empty text."""
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    for tool in ("ip", "nsenter", "unshare"):
        if shutil.which(tool) is None:
            return f"the program {tool} is not installed"
    # Root in a container often may not: CAP_SYS_ADMIN and CAP_NET_ADMIN decide, not the user's number.
    words = ("unshare", "--net", "ip", "link", "set", "lo", "up")
    tried = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"no network namespace may be made here: {tried.stderr.strip()}" if tried.returncode else ""


class Lan:
    """Namespaces by short name; addresses 10.98.0.1, .2, ... in the order given. Use it in a ``with`` statement.

    ``mtu`` is the largest packet that the LAN carries.
    """

    def __init__(self, *names: str, mtu: int = 1500) -> None:
        self.mtu = mtu
        self._prefix = f"liqod{os.getpid()}"
        self._made: list[str] = []
        self.addresses = {name: f"10.98.0.{number}" for number, name in enumerate(names, 1)}

    def __enter__(self) -> Lan:
        try:
            bridge = self._add("lan")
            run("ip", "-n", bridge, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
            run("ip", "-n", bridge, "link", "set", "br0", "mtu", str(self.mtu))
            run("ip", "-n", bridge, "link", "set", "br0", "up")
            for name in self.addresses:
                self._add(name)
                self._plug(name)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for namespace in reversed(self._made):
            subprocess.run(("ip", "netns", "delete", namespace), check=False)
        self._made.clear()

    def renew(self, name: str) -> None:
        """Have a fresh namespace in the place of one, with the same address; nothing of what was there is left."""
        run("ip", "netns", "delete", self.namespace(name))
        # Its end of the cable goes with it, a moment later.
        subprocess.run(("ip", "-n", self.namespace("lan"), "link", "delete", f"port-{name}"), check=False)
        run("ip", "netns", "add", self.namespace(name))
        self._plug(name)

    def _plug(self, name: str) -> None:
        """Lay a cable from the bridge to a namespace and give it its address."""
        bridge, there, port = self.namespace("lan"), self.namespace(name), f"port-{name}"
        run("ip", "-n", bridge, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", there)
        run("ip", "-n", bridge, "link", "set", port, "master", "br0", "mtu", str(self.mtu), "up")
        run("ip", "-n", there, "link", "set", "lo", "up")
        run("ip", "-n", there, "address", "add", f"{self.addresses[name]}/24", "dev", "eth0")
        run("ip", "-n", there, "link", "set", "eth0", "mtu", str(self.mtu), "up")

    def namespace(self, name: str) -> str:
        """Return the kernel's name of a namespace."""
        return f"{self._prefix}-{name}"

    def inside(self, name: str, *command: str) -> tuple[str, ...]:
        """Return a command line that runs in a namespace."""
        return ("nsenter", f"--net=/var/run/netns/{self.namespace(name)}", *command)

    def ip(self, name: str, *arguments: str) -> None:
        """Run ``ip`` on a namespace."""
        run("ip", "-n", self.namespace(name), *arguments)

    def _add(self, name: str) -> str:
        namespace = self.namespace(name)
        run("ip", "netns", "add", namespace)
        self._made.append(namespace)
        return namespace


def run(*command: str) -> None:
    """Run a command; raises with its output when it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr.strip()}")
