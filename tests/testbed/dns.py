"""The DNS server of a test cluster: CoreDNS on the cluster's host, behind the service that pods are given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.testbed import versions
from tests.testbed.process import Process

if TYPE_CHECKING:
    from tests.testbed.cluster import Cluster

_COREFILE = """\
.:53 {{
    bind {address}
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig} testbed
    }}
    cache 1
}}
"""


def start(cluster: Cluster) -> Process:
    """Start the server and make its service; the API server has to be ready."""
    corefile, address = cluster.directory / "Corefile", cluster.addresses.host
    corefile.write_text(_COREFILE.format(address=address, kubeconfig=cluster.kubeconfig))
    ports = [{"name": name, "port": 53, "protocol": name.upper()} for name in ("udp", "tcp")]
    meta: dict[str, object] = {"name": "kube-dns", "namespace": "kube-system"}
    labelled = dict(meta, labels={"kubernetes.io/service-name": "kube-dns"})
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": meta,
            "spec": {"clusterIP": cluster.addresses.dns, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": labelled,
            "addressType": "IPv6" if ":" in address else "IPv4",
            "endpoints": [{"addresses": [address]}],
            "ports": ports,
        },
    )
    return cluster.host.spawn("coredns", [str(versions.program("coredns")), "-conf", str(corefile)])
