"""Takes the samples of a soak: processes from /proc, routes, rules and links of the hosts, objects of the clusters."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path
from typing import Final

from tests.real.borrowing import Borrowing, pid_of
from tests.real.daemons import Daemon
from tests.real.soak.verdict import Reading
from tests.testbed import process
from tests.testbed.cluster import Cluster

HOST: Final = {
    "routes": ("ip", "-o", "route", "show", "table", "all"),
    "routes of IPv6": ("ip", "-6", "-o", "route", "show", "table", "all"),
    "policy rules": ("ip", "rule"),
    "links": ("ip", "-o", "link"),
    "nftables": ("nft", "list", "table", "inet", "liqod"),
}
"""Commands on a host whose lines are counted."""
FLEETING: Final = ("events", "leases", "componentstatuses", "certificatesigningrequests")
"""Kinds that come, and go by the clock."""


def reading(daemon: Daemon) -> Reading:
    """Return what a daemon's process has now; LookupError or OSError where it has ended."""
    pid = pid_of(daemon)
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    if found is None:
        raise LookupError(f"the process {pid} has ended")
    descriptors = len(os.listdir(f"/proc/{pid}/fd"))
    return Reading(pid=pid, birth=process.birth(pid), resident=int(found[1]), descriptors=descriptors)


def daemons(sides: Borrowing) -> dict[str, Reading]:
    """Return the readings of all daemons, by the names that they have in leases."""
    found = {}
    for daemon in (*sides.daemons.values(), *sides.standbys.values()):
        found[f"{daemon.cluster.name}-{daemon.identity}"] = reading(daemon)
    return found


class Counts:
    """Counts what there is on the hosts and in the clusters; which kinds of objects there are is asked once."""

    def __init__(self, sides: Borrowing) -> None:
        self._clusters = [daemon.cluster for daemon in sides.daemons.values()]
        self._kinds = {cluster.name: kinds(cluster) for cluster in self._clusters}

    def take(self) -> dict[str, int]:
        """Return how many there are now of everything, by the cluster and the name."""
        found: dict[str, int] = {}
        for cluster in self._clusters:
            for name, command in HOST.items():
                found[f"{cluster.name} {name}"] = len(cluster.run(command).splitlines())
            for kind, count in self._objects(cluster).items():
                found[f"{cluster.name} {kind}"] = count
        return found

    def _objects(self, cluster: Cluster) -> Counter[str]:
        listed = cluster.kubectl("get", self._kinds[cluster.name], "-A", "-o", "name", "--ignore-not-found")
        return Counter(line.partition("/")[0] for line in listed.splitlines() if line)


def kinds(cluster: Cluster) -> str:
    """Return the kinds that a cluster keeps objects of, as kubectl takes them."""
    known = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    return ",".join(kind for kind in known if not kind.startswith(FLEETING))
