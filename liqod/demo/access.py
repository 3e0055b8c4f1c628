"""Client configuration for a simulated cluster."""

from __future__ import annotations

from kubesandbox.cluster import SandboxCluster

from liqod.kube.connection.config import ClientConfig


def client_config(cluster: SandboxCluster) -> ClientConfig:
    """Return the configuration of the cluster's administrator: URL, CA, client certificate."""
    admin = cluster.admin
    return ClientConfig(
        server=cluster.url,
        ca_pem=cluster.authority.pem,
        client_cert_pem=admin.certificate_pem,
        client_key_pem=admin.key_pem,
    )
