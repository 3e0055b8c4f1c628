"""Under which type a virtual node shows its address. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from liqod.config.schema import Settings
from liqod.model.names import HOSTNAME_ADDRESS, INTERNAL_ADDRESS
from liqod.model.records.facts import DISTRIBUTION, PLUGIN, Fact, fact_of

_TUNNELLED: Final = frozenset(("k3s", "rke2"))
"""Distributions whose API server reaches kubelets by tunnels of their agents (``egress-selector-mode``): it keeps every
InternalIP as that of an agent, with the port of its kubelet, and answers 502 where no agent has a tunnel for it. An
address of the type Hostname is not in that table, and is dialled directly (k3s, pkg/daemons/control/tunnel.go)."""
_ROUTED: Final = frozenset(("kindnet",))
"""Network plugins that lead the pod network of every Node to its InternalIP, and take the virtual node for a real one:
routes are changed back and forth, or the plugin gives up because the address is no neighbour's."""


def node_address_type(facts: Sequence[Fact], settings: Settings) -> str:
    """Return the type, ``InternalIP`` or ``Hostname``: the setting, else what suits distribution and plugin."""
    wanted = settings.kubelet.node_address_type
    if wanted != "auto":
        return wanted
    tunnelled = _TUNNELLED.intersection(fact_of(facts, DISTRIBUTION).values)
    routed = _ROUTED.intersection(fact_of(facts, PLUGIN).values)
    return HOSTNAME_ADDRESS if tunnelled or routed else INTERNAL_ADDRESS
