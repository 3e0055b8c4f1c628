"""One test cluster: a control plane and, where asked for, a real node or made-up ones."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from attrs import frozen

from tests.testbed import cni, controlplane, dns, egress, kwok, node, process, versions
from tests.testbed.asking import Asker
from tests.testbed.controlplane import Addresses, wait
from tests.testbed.host import Host, remove_cgroups
from tests.testbed.lan import address, six
from tests.testbed.process import Process
from tests.testbed.worker import Worker


@frozen
class Shape:
    """What each cluster of a testbed is made of.

    ``nodes``: a real node with containers. ``kwok``: the number of made-up nodes; beside a real one they are tainted.
    ``qps``: requests per second that controller-manager and scheduler may make, 0 for their own defaults.
    ``same_pod_cidr``: all clusters use the same addresses for their pods. ``workers``: further real nodes of the first
    cluster, each on a host of its own. ``dns``: CoreDNS answers the pods. ``proxies``: the modes of kube-proxy,
    for one cluster after the other and again. ``audit``: the API server notes what it is asked for (``audited``);
    ``audit_pods``: the pods that anybody makes as well, with their content.
    ``families``: the IP versions of nodes, pods and services, in the same way: "4", "6", or both, the first one first
    ("46", "64"); clusters with further nodes have "4". ``nodeless``: the numbers of clusters that have no real node all
    the same; kube-proxy runs on their host. ``snapshotter``: how containerd lays out images. ``kubernetes``: the
    releases of one cluster after the other and again. ``plugin``: what joins pods and nodes. ``aggregated``: other API
    servers may stand behind the cluster's. ``tunnelled``: the numbers of clusters whose API server reaches nodes and
    Services as that of k3s does, by a proxy. ``authorization``: the modes of the API server, of one cluster after the
    other and again.
    """

    nodes: bool = True
    kwok: int = 0
    qps: int = 0
    same_pod_cidr: bool = False
    workers: int = 0
    dns: bool = False
    proxies: Sequence[str] = ("nftables",)
    audit: bool = False
    audit_pods: bool = False
    families: Sequence[str] = ("4",)
    nodeless: Sequence[int] = ()
    snapshotter: str = "native"
    kubernetes: Sequence[str] = (versions.KUBERNETES,)
    plugin: str = cni.BRIDGE
    aggregated: bool = False
    tunnelled: Sequence[int] = ()
    authorization: Sequence[str] = (controlplane.AUTHORIZED,)


class Cluster:
    """One cluster; made by ``Testbed``, which has also made its network namespace.

    ``name`` is ``c1``, ``c2``...; ``namespace`` its network namespace, ``address`` its host on the test network,
    ``kubeconfig`` the path of the administrator's, whose server only answers from inside of the test network.
    """

    def __init__(self, testbed: str, index: int, shape: Shape, directory: Path, *, leased: bool) -> None:
        self.index = index
        self.name = f"c{index}"
        self.node_name = f"node{index}"
        self.shape = shape
        self.directory = directory
        self.namespace = f"{testbed}-{self.name}"
        self.cgroup = self.namespace
        self.has_node = shape.nodes and index not in shape.nodeless
        self.address = address(index)
        self.addresses = _addresses(index, shape)
        self.kubeconfig = directory / "admin.conf"
        self.host = Host(self.namespace, directory, leased=leased)
        count = shape.workers if index == 1 else 0
        self.workers = [Worker(self, number, leased=leased) for number in range(1, count + 1)]
        self.seconds = 0.0
        self._daemons: list[Process] = []
        self._tunnels: Process | None = None
        self._asker = Asker(self.address, self.namespace, directory)

    @property
    def server(self) -> str:
        """The URL of the API server, to be used from inside of the test network."""
        return self.addresses.server

    @property
    def node_options(self) -> dict[str, Any]:
        """What all nodes of the cluster have in common."""
        return {"proxy": self.proxy, "dns": self.shape.dns, "version": self.version}

    @property
    def api_options(self) -> dict[str, Any]:
        """What the API server is, and what it notes."""
        return {
            "audit": self.shape.audit,
            "audit_pods": self.shape.audit_pods,
            "aggregated": self.shape.aggregated,
            "tunnelled": self.index in self.shape.tunnelled,
            "authorization": self.shape.authorization[(self.index - 1) % len(self.shape.authorization)],
            "version": self.version,
        }

    @property
    def version(self) -> str:
        """The release of Kubernetes, such as 1.36.1."""
        named = self.shape.kubernetes
        return versions.release(named[(self.index - 1) % len(named)])

    @property
    def proxy(self) -> str:
        """The mode of kube-proxy; nftables is beside a feature gate before 1.31."""
        mode = self.shape.proxies[(self.index - 1) % len(self.shape.proxies)]
        return "iptables" if mode == "nftables" and versions.minor(self.version) < (1, 31) else mode

    def start(self, archive: Path) -> None:
        """Start everything and wait until pods can be made and the node is Ready."""
        begin = time.monotonic()
        self.host.start()
        authority = controlplane.issue(self.host, self.namespace, self.node_name, self.addresses, self.address)
        with ThreadPoolExecutor(1) as beside:
            runtime = (
                beside.submit(
                    node.start_runtime,
                    self.host,
                    self.addresses,
                    archive,
                    first=self.shape.plugin == cni.BRIDGE,
                    snapshotter=self.shape.snapshotter,
                )
                if self.has_node
                else None
            )
            if self.index in self.shape.tunnelled:
                self.start_tunnels()
            self._daemons += controlplane.start_api(self.host, self.addresses, **self.api_options)
            self._wait("the API server", lambda: self.kubectl("get", "--raw=/readyz") == "ok")
            self._daemons += controlplane.start_controllers(
                self.host, self.addresses, qps=self.shape.qps, node_cidrs=self.has_node, version=self.version
            )
            if runtime is not None:
                self._daemons += runtime.result()
                self._daemons += node.start_kubelet(
                    self.host, self.addresses, self.node_name, self.cgroup, **self.node_options
                )
                if self.shape.plugin != cni.BRIDGE:
                    self._daemons += self.plug(self.host, self.node_name)
        if self.shape.nodes and not self.has_node:
            self._daemons.append(
                node.start_proxy(self.host, self.addresses, self.node_name, self.proxy, version=self.version)
            )
        if self.shape.kwok:
            self._start_kwok()
        if self.shape.dns:
            self._daemons.append(dns.start(self))
        self._wait("the default service account", lambda: bool(self.kubectl("get", "sa", "default", "-o=name")))
        if self.has_node:
            self._wait("the node", lambda: self._node_ready(self.node_name))
        for worker in self.workers:
            self._daemons += worker.join(authority, archive)
            self._wait(f"the node {worker.node_name}", lambda name=worker.node_name: self._node_ready(name))
        self.seconds = time.monotonic() - begin

    def start_tunnels(self) -> None:
        """Start the proxy by which a tunnelled API server reaches the cluster, or start it again with an empty table.

        The cluster's own node has a tunnel, as the agent on a server of k3s.
        """
        if self._tunnels is not None:
            self._tunnels.stop()
        self._tunnels = egress.start(self.host, self.address, [self.node_name])

    def pod_cidr(self, name: str) -> str:
        """Return the network of the pods of a node, or nothing while it has none."""
        return str(self.get("node", name).get("spec", {}).get("podCIDR", ""))

    def plug(self, host: Host, name: str) -> list[Process]:
        """Start the network plugin on a node of that name, as soon as its pods have a network."""
        self._wait(f"the pod network of {name}", lambda: bool(self.pod_cidr(name)))
        return cni.start(
            self.shape.plugin,
            host,
            self.addresses,
            name=name,
            kubeconfig=self.kubeconfig,
            pod_cidr=self.pod_cidr(name),
        )

    def stop(self) -> None:
        """End everything at once, containers included; nothing of it has to answer any more."""
        for host in (self.host, *(worker.host for worker in self.workers)):
            host.stop()
        remove_cgroups(self.cgroup)
        self._daemons.clear()

    def lose_control_plane(self) -> None:
        """End etcd, the API server and the controllers at once; node and containers stay."""
        for daemon in self._daemons:
            if daemon.name in controlplane.PROGRAMS:
                daemon.stop(0.0)

    def restore_control_plane(self, *, kubelet: bool = False) -> None:
        """Start what was ended so, with what etcd had stored, and wait until the node is Ready again.

        A kubelet that was without its API server for long looks for it up to a minute apart; ``kubelet``: it and
        kube-proxy are started again as well, which containers do not notice.
        """
        self._daemons = [daemon for daemon in self._daemons if daemon.name not in controlplane.PROGRAMS]
        self._daemons += controlplane.start_api(self.host, self.addresses, **self.api_options)
        self._wait("the API server", lambda: self.kubectl("get", "--raw=/readyz") == "ok")
        self._daemons += controlplane.start_controllers(
            self.host, self.addresses, qps=self.shape.qps, node_cidrs=self.has_node, version=self.version
        )
        if self.has_node and kubelet:
            for daemon in self._daemons:
                if daemon.name in node.PROGRAMS:
                    daemon.stop()
            self._daemons = [daemon for daemon in self._daemons if daemon.name not in node.PROGRAMS]
            before = self._heartbeat()
            self._daemons += node.start_kubelet(
                self.host, self.addresses, self.node_name, self.cgroup, **self.node_options
            )
            # What the node said before it was away would do as well otherwise.
            self._wait("the kubelet", lambda: self._heartbeat() != before)
        if self.has_node:
            self._wait("the node", lambda: self._node_ready(self.node_name))

    def copy_etcd(self) -> Path:
        """Return a copy of what etcd stores, as a backup has it; the control plane is away for that moment."""
        copy = Path(tempfile.mkdtemp(prefix="etcd-", dir=self.directory)) / "data"
        self.lose_control_plane()
        shutil.copytree(self.directory / "etcd", copy)
        self.restore_control_plane()
        return copy

    def restore_etcd(self, copy: Path) -> None:
        """Start the control plane with what a copy holds: all that was stored since is forgotten."""
        self.lose_control_plane()
        shutil.rmtree(self.directory / "etcd")
        shutil.copytree(copy, self.directory / "etcd")
        self.restore_control_plane()

    def _heartbeat(self) -> str:
        """Return when the kubelet last said that it lives."""
        return str(self.get("lease", self.node_name, "-n", "kube-node-lease")["spec"]["renewTime"])

    def kubectl(self, *args: str, input: str | None = None, timeout: float = 120.0) -> str:
        """Run kubectl as administrator and return what it prints; CommandFailed holds what it complains about."""
        command = [
            str(versions.program("kubectl")),
            f"--kubeconfig={self.kubeconfig}",
            f"--cache-dir={self.directory}/kubectl",
            *args,
        ]
        return self.run(command, input=input, timeout=timeout)

    def get(self, *args: str) -> Any:
        """Return the decoded JSON of ``kubectl get ARGS``; CommandFailed holds what kubectl complains about."""
        answer = self._asker.get(args)
        return json.loads(self.kubectl("get", *args, "-o=json")) if answer is None else answer

    def audited(self, begin: int = 0) -> list[dict[str, Any]]:
        """Return what the API server noted about the requests that it has answered, in their order.

        The form is ``Event`` of ``audit.k8s.io/v1`` at the level Metadata; LookupError where it notes nothing.
        ``begin`` is an ``audit_end`` of before; what was noted in the moment between is left out.
        """
        with self._audit_log.open("rb") as log:
            # A log that is shorter now was begun again.
            log.seek(begin if begin <= self.audit_end else 0)
            text = log.read()
        # The first and the last line may be parts: the last one is in the middle of being written.
        lines = [line for line in text.splitlines(keepends=True) if line.startswith(b"{") and line.endswith(b"\n")]
        return [json.loads(line) for line in lines]

    @property
    def audit_end(self) -> int:
        """How many bytes the API server has noted so far; the last line may not be whole."""
        return self._audit_log.stat().st_size

    @property
    def _audit_log(self) -> Path:
        log = self.directory / controlplane.AUDIT_LOG
        if not log.exists():
            raise LookupError(f"the API server of {self.name} keeps no audit log")
        return log

    def apply(self, *manifests: object) -> str:
        """Apply objects given as plain dicts."""
        body = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        return self.kubectl("apply", "-f", "-", input=json.dumps(body))

    def run(self, argv: Sequence[str], *, input: str | None = None, timeout: float = 120.0) -> str:
        """Run a program to its end in the cluster's network namespace and return its standard output."""
        return process.run_in(self.namespace, argv, input=input, timeout=timeout)

    def spawn(self, name: str, argv: Sequence[str]) -> Process:
        """Start a program in the cluster's network namespace; its log is ``NAME.log`` in the cluster's directory."""
        return process.spawn_in(self.namespace, argv, log=self.directory / f"{name}.log")

    def add_kwok_node(self, name: str) -> None:
        """Make one more made-up node."""
        self.kubectl("create", "-f", "-", input=kwok.node_manifest(name, tainted=self.shape.nodes))

    def logs(self, lines: int = 25) -> str:
        """Return the last lines of every daemon's log, for the report of a failed test."""
        files = sorted(self.directory.glob("*.log"))
        return "\n".join(f"--- {self.name} {file.name}\n{process.tail(file, lines)}" for file in files)

    def _start_kwok(self) -> None:
        self._daemons.append(kwok.start_kwok(self.host, self.addresses))
        names = [f"kwok{self.index}-{number}" for number in range(1, self.shape.kwok + 1)]
        for name in names:
            self.add_kwok_node(name)
        for name in names:
            self._wait(f"the node {name}", lambda name=name: self._node_ready(name))

    def _node_ready(self, name: str) -> bool:
        body = self.get("node", name)
        conditions = {one["type"]: one["status"] for one in body["status"].get("conditions", [])}
        taints = {one["key"] for one in body["spec"].get("taints", [])}
        return conditions.get("Ready") == "True" and not any(key.startswith("node.kubernetes.io/") for key in taints)

    def _wait(self, what: str, done: Any) -> None:
        wait(f"{what} of {self.name}", done, self._daemons, 120)


def families(index: int, shape: Shape) -> str:
    """Return the IP versions of the cluster with a number from 1."""
    return shape.families[(index - 1) % len(shape.families)]


def _addresses(index: int, shape: Shape) -> Addresses:
    """Return the addresses of the cluster with a number from 1."""
    pods = 201 if shape.same_pod_cidr else 200 + index
    host = address(index)
    by_version = {
        "4": (host, f"10.{100 + index}.0.0/16", f"10.{100 + index}.0.1", f"10.{pods}.0.0/16"),
        "6": (six(host), f"fd00:{100 + index}::/112", f"fd00:{100 + index}::1", f"fd00:{pods}::/48"),
    }
    hosts, services, firsts, networks = zip(*(by_version[one] for one in families(index, shape)), strict=True)
    return Addresses(
        host=hosts[0],
        service_cidr=",".join(services),
        first_service=firsts[0],
        pod_cidr=",".join(networks),
        second=hosts[1] if len(hosts) > 1 else "",
    )
