"""Checks the names in the certificate of the API server: offloaded pods call it by those that every pod uses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import attrs

from liqod.cli.console.findings import Finding, good, warning
from liqod.cli.console.session import Session
from liqod.flow.clocks import Reactor
from liqod.kube.client import Client
from liqod.kube.connection.config import ClientConfig
from liqod.kube.errors import Unreachable
from liqod.kubelet.tokens.projection import api_server_names


async def in_cluster_names(session: Session) -> AsyncIterator[Finding]:
    """Yield whether the certificate of the API server, which has answered, holds the names that pods call it by."""
    settings, config = session.settings, session.client.config
    if not (settings.kubelet.enable_apiserver_support and settings.reflection.serviceaccount.workers):
        return
    if config.insecure or config.dial is not None:
        return
    names = api_server_names(settings.cluster.domain)
    missing = [name for name in names if not await _is_named(config, name, session.reactor)]
    yield judge_names(config.server, missing)


def judge_names(server: str, missing: Sequence[str]) -> Finding:
    """Return the finding about the names that the certificate lacks."""
    if not missing:
        return good("API server", "its certificate holds the names by which pods call it")
    return warning(
        "API server",
        f"the certificate of {server} does not hold {', '.join(missing)}: programs in offloaded pods that call it so "
        "refuse it",
        "add the names to the API server's certificate (kubeadm: apiServer.certSANs; k3s: --tls-san)",
    )


async def _is_named(config: ClientConfig, name: str, reactor: Reactor) -> bool:
    client = Client(attrs.evolve(config, tls_server_name=name), reactor, user_agent="liqodctl", timeout=10.0)
    try:
        await client.raw("GET", "/version")
    except Unreachable:
        return False
    finally:
        await client.close()
    return True
