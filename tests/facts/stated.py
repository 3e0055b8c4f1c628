"""The facts of a cluster, as the daemon would have written them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from liqod.kube.client import Client
from liqod.kube.errors import AlreadyExists
from liqod.kube.resources import CLUSTERFACTS
from liqod.model.records.facts import API_SERVER_ADDRESSES, FACTS_NAME, PLUGIN, POD_NETWORKS, SERVICE_NETWORKS

PODS: Final = ("10.48.0.0/16",)
SERVICES: Final = ("10.96.0.0/12",)
"""Networks of a plugin with a pool of its own, and of Services that are wider than usual."""


async def state_networks(
    client: Client,
    pods: Sequence[str] = PODS,
    services: Sequence[str] = SERVICES,
    servers: Sequence[str] = (),
    plugin: str = "",
) -> None:
    """Write the networks of a cluster, the addresses of its API servers and its network plugin; without a text they are
    unknown.
    """
    with contextlib.suppress(AlreadyExists):
        await client.create(CLUSTERFACTS, {"metadata": {"name": FACTS_NAME}})
    facts = [
        {"name": name, "state": "Known" if texts else "Unknown", "values": list(texts)}
        for name, texts in ((POD_NETWORKS, pods), (SERVICE_NETWORKS, services), (API_SERVER_ADDRESSES, servers))
    ]
    if plugin:
        facts.append({"name": PLUGIN, "state": "Known", "values": [plugin]})
    await client.patch(CLUSTERFACTS, FACTS_NAME, {"status": {"facts": facts}}, subresource="status")
