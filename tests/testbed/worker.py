"""A further real node of a test cluster, on a host of its own in the test network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tests.testbed import cni, controlplane, node, process
from tests.testbed.certs import Authority
from tests.testbed.controlplane import wait
from tests.testbed.host import Host
from tests.testbed.process import Process

if TYPE_CHECKING:
    from tests.testbed.cluster import Cluster


class Worker:
    """One node: ``namespace`` is its network namespace, ``address`` its host on the test network."""

    def __init__(self, cluster: Cluster, number: int, *, leased: bool) -> None:
        self.cluster = cluster
        self.node_name = f"{cluster.node_name}-{number}"
        self.namespace = f"{cluster.namespace}w{number}"
        self.address = f"10.99.0.{100 + 10 * cluster.index + number}"
        self.directory = cluster.directory / f"worker{number}"
        self.host = Host(self.namespace, self.directory, leased=leased)
        # Inside of the cluster's own group, and removed with it.
        self._cgroup = f"{cluster.cgroup}/worker{number}"

    def join(self, authority: Authority, archive: Path) -> list[Process]:
        """Start the node's programs; the other nodes are led to its pods, and it to theirs."""
        cluster = self.cluster
        self.host.start()
        controlplane.issue_node(authority.at(self.directory), self.node_name, [self.address], cluster.server)
        addresses = attrs.evolve(cluster.addresses, host=self.address)
        daemons = node.start_runtime(self.host, addresses, archive, first=False)
        daemons += node.start_kubelet(self.host, addresses, self.node_name, self._cgroup, **cluster.node_options)
        if cluster.shape.plugin != cni.BRIDGE:
            return daemons + cluster.plug(self.host, self.node_name)
        wait(f"the pod network of {self.node_name}", lambda: bool(cluster.pod_cidr(self.node_name)), daemons, 60)
        mine, first = cluster.pod_cidr(self.node_name), cluster.pod_cidr(cluster.node_name)
        node.write_network(self.host, [mine])
        cluster.run(["ip", "route", "replace", mine, "via", self.address])
        self.run(["ip", "route", "replace", first, "via", cluster.address])
        return daemons

    def run(self, argv: Sequence[str], *, timeout: float = 60.0) -> str:
        """Run a program to its end in the node's network namespace and return its standard output."""
        return process.run_in(self.namespace, argv, timeout=timeout)
