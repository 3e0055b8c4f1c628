"""The ports of virtual nodes: each node has one of its own, so that the port says which node is asked.

The pages of a kubelet (``/pods``, ``/stats/summary``, ``/metrics/resource``) do not name their node, and all virtual
nodes have the address of this host. The first node gets the configured port, each further one the lowest free port
above it; the VirtualNode records them, so that a node keeps its port over restarts.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from attrs import frozen
from twisted.application.service import MultiService, Service
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IListeningPort, IProtocolFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from liqod.flow.clocks import Reactor
from liqod.flow.connections.listening import server_endpoint
from liqod.flow.observe import Latest
from liqod.model.ids import Key

RETRY: Final = 10.0
PORTS: Final = 256
"""Size of the range of ports for virtual nodes, which starts with the configured one."""


def own_ports(configured: int, recorded: int, taken: Collection[int]) -> list[int]:
    """Return the ports to try for a node that does not have the configured one, the best first.

    ``recorded`` is the node's port so far (0: none), ``taken`` are those of others. With ``configured`` 0: any.
    """
    if not configured:
        return [0]
    ports = range(configured + 1, min(configured + PORTS, 65536))
    free = [port for port in ports if port not in taken and port != recorded]
    return [recorded, *free] if recorded in ports and recorded not in taken else free


def port_of(listen: str) -> int | None:
    """Return the port of an endpoint description; None if it is not TCP."""
    kind, _, rest = listen.partition(":")
    number = rest.partition(":")[0].removeprefix("port=")
    return int(number) if kind in ("tcp", "tcp6") and number.isdigit() else None


def with_port(listen: str, port: int) -> str:
    """Return a TCP endpoint description with another port."""
    kind, _, rest = listen.partition(":")
    _, colon, others = rest.partition(":")
    return f"{kind}:{port}{colon}{others}"


class PortListener(Service):
    """Listens on the first of several descriptions that can be bound; tries again after ``RETRY`` seconds."""

    _log = Logger()

    def __init__(self, reactor: Reactor, descriptions: list[str], factory: IProtocolFactory) -> None:
        self.bound: Latest[int] = Latest(0)
        """The bound port; 0 before."""
        self._reactor = reactor
        self._descriptions = descriptions
        self._factory = factory
        self._listening: IListeningPort | None = None
        self._attempt: Deferred[Any] | None = None
        self._timer: IDelayedCall | None = None
        self._logged = ""

    def startService(self) -> None:
        super().startService()
        self._bind(0)

    def stopService(self) -> Deferred[Any]:
        super().stopService()
        self.bound.set(0)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._attempt is not None:
            self._attempt.cancel()
        listening, self._listening = self._listening, None
        if listening is None:
            return succeed(None)
        stopping: Deferred[Any] = maybeDeferred(listening.stopListening)
        return stopping

    def _bind(self, number: int) -> None:
        self._timer = None
        endpoint = server_endpoint(self._reactor, self._descriptions[number])
        attempt: Deferred[Any] = maybeDeferred(endpoint.listen, self._factory)
        self._attempt = attempt
        attempt.addCallbacks(self._bound, self._not_bound, errbackArgs=(number,))

    def _bound(self, listening: IListeningPort) -> None:
        self._attempt = None
        self._listening = listening
        self._log.info("the API of virtual nodes is served on {address}", address=listening.getHost())
        self.bound.set(int(getattr(listening.getHost(), "port", 0)))

    def _not_bound(self, failure: Failure, number: int) -> None:
        self._attempt = None
        if not self.running or failure.check(CancelledError):
            return
        # EADDRINUSE: another program has the port.
        if number + 1 < len(self._descriptions):
            self._bind(number + 1)
            return
        message = failure.getErrorMessage()
        if message != self._logged:
            self._logged = message
            listen = self._descriptions[number]
            self._log.warn("kubelet.listen = {listen}: {error}; tried again", listen=listen, error=message)
        self._timer = self._reactor.callLater(RETRY, self._bind, 0)


@frozen
class _Owner:
    node: str
    listener: PortListener


class NodePorts(MultiService):
    """The port of ``listen`` and those of further virtual nodes, all served by one factory."""

    def __init__(self, reactor: Reactor, listen: str, factory: IProtocolFactory) -> None:
        super().__init__()
        self._reactor = reactor
        self._listen = listen
        self._configured = port_of(listen)
        self._factory = factory
        self._owners: dict[Key, _Owner] = {}
        self._main = PortListener(reactor, [listen], factory)
        self._main.setServiceParent(self)

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
        ports = own_ports(configured, recorded, taken)
        keeps_own = configured and ports and ports[0] == recorded
        if is_free and not keeps_own and (not configured or configured not in taken):
            listener = self._main
        elif not ports:
            return self._main.bound
        else:
            listener = PortListener(self._reactor, [with_port(self._listen, port) for port in ports], self._factory)
            listener.setServiceParent(self)
        self._owners[key] = _Owner(node, listener)
        return listener.bound

    async def release(self, key: Key) -> None:
        """Stop listening for a node; the configured port goes on to be served."""
        owner = self._owners.pop(key, None)
        if owner is not None and owner.listener is not self._main:
            await maybeDeferred(owner.listener.disownServiceParent)

    def node_at(self, port: int) -> str:
        """Return the node that a port belongs to; empty if it is no node's own."""
        return next((owner.node for owner in self._owners.values() if owner.listener.bound.value == port), "")
