"""Nodes without containers: kwok plays the kubelet of made-up nodes, for tests of many pods."""

from __future__ import annotations

import json
from ipaddress import ip_network
from pathlib import Path
from typing import Final

from tests.testbed import versions
from tests.testbed.controlplane import Addresses
from tests.testbed.host import Host
from tests.testbed.process import Process

NODE_ANNOTATION: Final = "kwok.x-k8s.io/node"
TAINT: Final = "kwok.x-k8s.io/node"
_STAGES: Final = Path(__file__).with_name("kwok-stages.yaml")
_CAPACITY: Final = {"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "100000"}


def start_kwok(host: Host, addresses: Addresses) -> Process:
    """Start kwok; it takes care of the nodes with the annotation and of nothing else."""
    # Its pods never run anywhere; their addresses are of the cluster's pod network, or a peer would have none for them.
    flags = [
        f"--kubeconfig={host.directory}/admin.conf",
        f"--config={_STAGES}",
        "--manage-all-nodes=false",
        f"--manage-nodes-with-annotation-selector={NODE_ANNOTATION}=fake",
        f"--cidr={pod_network(addresses.pod_cidr)}",
        f"--node-ip={addresses.host}",
        "--node-port=0",
        "--node-lease-duration-seconds=40",
    ]
    return host.spawn("kwok", [str(versions.program("kwok")), *flags])


def pod_network(pod_cidr: str) -> str:
    """Return the half of the pod network that no real node takes its part from, as its first address and length."""
    _, upper = ip_network(pod_cidr.split(",")[0]).subnets()
    return f"{upper[1]}/{upper.prefixlen}"


def node_manifest(name: str, *, tainted: bool) -> str:
    """Return the JSON of one made-up node; tainted, only pods that tolerate it go there."""
    spec = {"taints": [{"key": TAINT, "value": "fake", "effect": "NoSchedule"}]} if tainted else {}
    labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "type": "kwok"}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "annotations": {NODE_ANNOTATION: "fake"}, "labels": labels},
            "spec": spec,
            "status": {"capacity": _CAPACITY, "allocatable": _CAPACITY},
        }
    )
