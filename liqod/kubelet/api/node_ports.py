"""The ports of virtual nodes: each node has one of its own, so that the port says which node is asked.

The pages of a kubelet (``/pods``, ``/stats/summary``, ``/metrics/resource``) do not name their node, and all virtual
nodes have the address of this host. The first node gets the configured port, each further one the lowest free port
above it that liqod itself does not use; the VirtualNode records them, so that a node keeps its port over restarts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from attrs import frozen
from twisted.application.service import MultiService
from twisted.internet.defer import maybeDeferred
from twisted.internet.interfaces import IProtocolFactory

from liqod.config.endpoints import port_of, with_port
from liqod.config.schema import Settings
from liqod.flow.clocks import Reactor
from liqod.flow.connections.port_listener import PortListener
from liqod.flow.observe import Latest
from liqod.model.ids import Key
from liqod.model.records.name_service import MAX_TENANTS, SLOTS

PORTS: Final = 256
"""Size of the range of ports for virtual nodes, which starts with the configured one."""
METRICS_OF_OTHERS: Final = (5877, 5878)
"""Where the network agent and the name server have their metrics on this host, by their units and the chart."""


def used_ports(settings: Settings) -> frozenset[int]:
    """Return the TCP ports of this host at which liqod's processes listen otherwise, also before one is started."""
    names = settings.names
    listens = (settings.peering.listen, settings.webhook.listen, settings.metrics.listen, settings.hosting.home_api)
    used = {*METRICS_OF_OTHERS, names.home_port, *(port_of(text) or 0 for text in listens)}
    if names.enabled:
        used |= {*range(names.first_port, names.first_port + MAX_TENANTS * len(SLOTS))}
    return frozenset(used - {0})


def own_ports(configured: int, recorded: int, taken: Collection[int]) -> list[int]:
    """Return the ports to try for a node that does not have the configured one, the best first.

    ``recorded`` is the node's port so far (0: none), ``taken`` are those of others, nodes or not; a node that has one
    of them gets another. With ``configured`` 0: any.
    """
    if not configured:
        return [0]
    ports = range(configured + 1, min(configured + PORTS, 65536))
    free = [port for port in ports if port not in taken and port != recorded]
    return [recorded, *free] if recorded in ports and recorded not in taken else free


@frozen
class _Owner:
    node: str
    listener: PortListener


class NodePorts(MultiService):
    """The port of ``listen`` and those of further virtual nodes, all served by one factory.

    Further nodes get none of ``used``. With ``stands_by`` the ports are those of the daemon that leads: a node has the
    recorded one and no other.
    """

    def __init__(
        self,
        reactor: Reactor,
        listen: str,
        factory: IProtocolFactory,
        *,
        used: Collection[int] = (),
        stands_by: bool = False,
    ) -> None:
        super().__init__()
        self._used = frozenset(used)
        self._stands_by = stands_by
        self._reactor = reactor
        self._listen = listen
        self._configured = port_of(listen)
        self._factory = factory
        self._owners: dict[Key, _Owner] = {}
        self._main = self._listener([listen])

    @property
    def bound(self) -> Latest[int]:
        """The configured port, when it is bound."""
        return self._main.bound

    def acquire(self, key: Key, node: str, *, recorded: int, taken: Collection[int]) -> Latest[int]:
        """Return the port of a node, 0 until it is bound; ``key`` identifies its record."""
        configured = self._configured
        if configured is None:
            return self._main.bound
        is_free = all(owner.listener is not self._main for owner in self._owners.values())
        ports = own_ports(configured, recorded, self._used.union(taken))
        keeps_own = configured and ports and ports[0] == recorded
        if is_free and not keeps_own and (not configured or configured not in taken):
            listener = self._main
        elif not ports or (self._stands_by and not keeps_own):
            return self._main.bound
        else:
            wanted = ports[:1] if self._stands_by else ports
            listener = self._listener([with_port(self._listen, port) for port in wanted])
        self._owners[key] = _Owner(node, listener)
        return listener.bound

    def _listener(self, descriptions: list[str]) -> PortListener:
        listener = PortListener(
            self._reactor,
            descriptions,
            self._factory,
            service="the API of virtual nodes",
            setting="kubelet.listen",
            stands_by=self._stands_by,
        )
        listener.setServiceParent(self)
        return listener

    async def release(self, key: Key) -> None:
        """Stop listening for a node; the configured port goes on to be served."""
        owner = self._owners.pop(key, None)
        if owner is not None and owner.listener is not self._main:
            await maybeDeferred(owner.listener.disownServiceParent)

    def node_at(self, port: int) -> str:
        """Return the node that a port belongs to; empty if it is no node's own."""
        return next((owner.node for owner in self._owners.values() if owner.listener.bound.value == port), "")
