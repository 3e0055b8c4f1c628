"""What there is in a cluster and on its hosts, one thing a line, to be compared and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from attrs import frozen

from tests.real.chart.images import KEPT
from tests.testbed.cluster import Cluster

TEMPLATE: Final = '{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}'
PASSING: Final = ("events", "events.events.k8s.io", "componentstatuses")
"""Kinds that the cluster itself makes and forgets."""
OF_PODS: Final = ("veth", "cni0", "table ip nat", "table ip6 nat", "table ip filter", "table ip6 filter")
"""What the first pods of a node bring, which the network plugin makes and leaves."""
TABLES: Final = ("18951", "18952")
"""The tables of routes that liqod's policy rules look up."""
SOCKETS: Final = "/run/wireguard"
"""Where wireguard-go has its sockets; the folder itself, which the kubelet makes for the pod, stays."""


@frozen
class Listing:
    """The lines: objects as ``KIND NAMESPACE/NAME``, rules, routes, devices and tables with the host before them."""

    lines: frozenset[str]

    @classmethod
    def of(cls, cluster: Cluster) -> Listing:
        """Return what there is now."""
        lines = set(objects(cluster))
        hosts = {cluster.node_name: cluster.host} | {one.node_name: one.host for one in cluster.workers}
        for name, host in hosts.items():
            shown = [host.run(["ip", f"-{version}", "rule"]) for version in "46"]
            shown += [host.run(["sh", "-c", f"ip route show table {table} 2>/dev/null || true"]) for table in TABLES]
            shown.append(re.sub(r"^(\S+?)(@\S+)? .*", r"device \1", host.run(["ip", "-brief", "link"]), flags=re.M))
            shown.append(host.run(["nft", "list", "tables"]))
            shown.append(host.run(["sh", "-c", f"find {SOCKETS}/* /run/liqod* 2>/dev/null || true"]))
            shown.append(host.run(["sh", "-c", "cd /proc/sys/net; grep . ipv4/ip_forward ipv4/conf/*/rp_filter"]))
            lines |= {f"{name}: {line}" for line in of_host("\n".join(shown).splitlines())}
        return cls(frozenset(lines))

    def difference(self, other: Listing) -> tuple[frozenset[str], frozenset[str]]:
        """Return what is only here, and what is only there. Pure."""
        return self.lines - other.lines, other.lines - self.lines

    def keep(self, title: str) -> None:
        """Write the lines to a file beside the figures."""
        KEPT.mkdir(parents=True, exist_ok=True)
        (KEPT / f"{title}.txt").write_text("".join(f"{line}\n" for line in sorted(self.lines)))


def objects(cluster: Cluster) -> list[str]:
    """Return every object of every kind that a cluster lists, but for those that pass by themselves."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    wanted = ",".join(kind for kind in kinds if kind not in PASSING)
    found = cluster.kubectl("get", wanted, "-A", "-o", f"jsonpath={TEMPLATE}").splitlines()
    # A node that has just joined gives its first sign of life a moment later.
    nodes = (cluster.node_name, *(worker.node_name for worker in cluster.workers))
    return [line for line in found if line not in {f"Lease kube-node-lease/{name}" for name in nodes}]


def of_host(lines: Iterable[str]) -> set[str]:
    """Return the lines about a host without what pods of any kind bring. Pure."""
    stripped = (line.strip() for line in lines)
    return {
        line
        for line in stripped
        if line and not line.removeprefix("device ").startswith(OF_PODS) and not re.search(r"conf/(veth|cni0)", line)
    }
