"""Network plugins of a cluster's nodes beside the plain bridge: flannel and kube-router, as their projects build them.

Both leave the pods of one node to the bridge plugin, as everywhere: flannel's own plugin only writes such a
configuration from what the daemon says. They join the nodes and rewrite the addresses of what leaves them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.testbed import node, versions
from tests.testbed.controlplane import Addresses, wait
from tests.testbed.host import Host
from tests.testbed.process import Process

BRIDGE: Final = "bridge"
FLANNEL: Final = "flannel"
KUBE_ROUTER: Final = "kube-router"
PACKAGES: Final[Mapping[str, str]] = MappingProxyType({"iptables": "iptables", "ipset": "ipset"})
"""Debian packages with the programs that these daemons start."""
PROGRAMS: Final[Mapping[str, str]] = MappingProxyType({FLANNEL: "flanneld", KUBE_ROUTER: "kube-router"})

_SUBNET_FILE: Final = "/run/flannel/subnet.env"
_TRIALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        FLANNEL: "ip link set lo up && ip link add f type vxlan id 1 dev lo dstport 8472"
        " && iptables -t nat -A POSTROUTING -m comment --comment x -j MASQUERADE",
        KUBE_ROUTER: "ipset create x hash:net && iptables -A FORWARD -m set --match-set x src -j ACCEPT",
    }
)
# kube-router gives its routing table a name there. What it writes must not be the machine's.
_TABLES: Final = ("/etc/iproute2", "/usr/share/iproute2")


def lacking(kind: str) -> str:
    """Return why this machine cannot carry nodes with a plugin, or nothing; programs that are built are not asked."""
    done = subprocess.run(["unshare", "--net", "sh", "-c", _TRIALS[kind]], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"the kernel does not offer what {kind} needs: {done.stderr.strip()}"


def start(kind: str, host: Host, addresses: Addresses, *, name: str, kubeconfig: Path, pod_cidr: str) -> list[Process]:
    """Start the plugin on a node of that name, whose pods have the network ``pod_cidr``; the node is Ready then."""
    begin = {FLANNEL: _flannel, KUBE_ROUTER: _kube_router}[kind]
    return begin(host, addresses, name, kubeconfig, pod_cidr)


def _flannel(host: Host, addresses: Addresses, name: str, kubeconfig: Path, pod_cidr: str) -> list[Process]:
    configuration = host.directory / "net-conf.json"
    configuration.write_text(json.dumps({"Network": addresses.pod_cidr, "Backend": {"Type": "vxlan"}}))
    argv = [
        "env",
        f"NODE_NAME={name}",
        str(versions.program(PROGRAMS[FLANNEL])),
        "--kube-subnet-mgr",
        f"--kubeconfig-file={kubeconfig}",
        f"--net-config-path={configuration}",
        f"--subnet-file={_SUBNET_FILE}",
        "--iface=eth0",
        "--ip-masq",
    ]
    daemon = host.spawn(FLANNEL, argv)
    wait(f"the subnet of {name}", lambda: "FLANNEL_SUBNET" in host.run(["cat", _SUBNET_FILE]), [daemon], 60)
    said = dict(line.partition("=")[::2] for line in host.run(["cat", _SUBNET_FILE]).splitlines())
    # flannel rewrites addresses itself, so that the bridge must not.
    node.write_network(host, [pod_cidr], masquerade=False, mtu=int(said["FLANNEL_MTU"]))
    return [daemon]


def _kube_router(host: Host, addresses: Addresses, name: str, kubeconfig: Path, pod_cidr: str) -> list[Process]:
    for number, place in enumerate(filter(Path.exists, map(Path, _TABLES))):
        own = host.directory / f"iproute2-{number}"
        shutil.copytree(place, own)
        host.run(["mount", "--bind", str(own), str(place)])
    argv = [
        str(versions.program(PROGRAMS[KUBE_ROUTER])),
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={name}",
        "--run-router=true",
        "--run-firewall=true",
        "--run-service-proxy=false",
        "--enable-cni=false",
        "--enable-pod-egress=true",
        f"--service-cluster-ip-range={addresses.service_cidr}",
    ]
    node.write_network(host, [pod_cidr], bridge="kube-bridge", masquerade=False)
    return [host.spawn(KUBE_ROUTER, argv)]
