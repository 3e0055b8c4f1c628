"""Virtual kubelets between two sandboxes."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import connectionDone
from twisted.protocols import portforward
from twisted.python.failure import Failure

from liqod.kube.resources import PODS, SHADOWPODS
from liqod.kubelet import pods
from tests import kubelet_cases, reflect_sandboxes


class KubeletsOnSandboxes(reflect_sandboxes.Sandboxes, kubelet_cases.KubeletCases):
    """The cases of virtual kubelets, each with two clusters of its own."""

    def way(self, server: str) -> str:
        """Lead the way to the lender through a relay that can be cut."""
        from twisted.internet import reactor

        self.relay = Relay(int(server.rsplit(":", 1)[1]))
        self.relay.listen(reactor)
        self.addCleanup(self.relay.cut)
        return f"https://127.0.0.1:{self.relay.port}"

    async def test_a_lender_that_goes_away(self) -> None:
        """An unreachable lender makes the node NotReady within seconds and deletes nothing; back again, all goes on."""
        from twisted.internet import reactor

        await self.pod("web")
        await self.runs("web")
        await self.relay.cut()
        await self.node_is("False", "PeerUnreachable")
        await self.home.delete(PODS, "web", self.space, grace=0)
        await self.pod("late")
        await self.pause(0.5)
        await self.lender.get(SHADOWPODS, "web", self.remote)
        self.relay.listen(reactor)
        await self.node_is("True")
        await self.gone(self.lender, SHADOWPODS, "web", self.remote)
        await self.runs("late")

    async def test_a_pod_deleted_while_the_lender_is_away(self) -> None:
        """A deleted pod waits for the lender a while, then goes; its ShadowPod goes when the lender is back."""
        from twisted.internet import reactor

        self.patch(pods, "PATIENCE", 1.0)
        await self.pod("web")
        await self.runs("web")
        await self.relay.cut()
        await self.node_is("False", "PeerUnreachable")
        await self.home.delete(PODS, "web", self.space)
        await self.gone(self.home, PODS, "web", self.space)
        self.relay.listen(reactor)
        await self.gone(self.lender, SHADOWPODS, "web", self.remote)


class Relay:
    """Passes connections on to a port of this host, until it is cut; then nothing gets through and all are broken."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self._target = target
        self._listening: Any = None
        self._open: set[Any] = set()

    def listen(self, reactor: Any) -> None:
        """Let connections through (again, on the same port)."""
        relay = self

        class Through(portforward.ProxyServer):
            def connectionMade(self) -> None:
                relay._open.add(self)
                super().connectionMade()

            def connectionLost(self, reason: Failure = connectionDone) -> None:
                relay._open.discard(self)
                super().connectionLost(reason)

        factory = portforward.ProxyFactory("127.0.0.1", self._target)
        factory.noisy = False
        factory.protocol = Through
        self._listening = reactor.listenTCP(self.port, factory, interface="127.0.0.1")
        self.port = self._listening.getHost().port

    async def cut(self) -> None:
        """Break every connection and accept no more."""
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.stopListening()
        for connection in list(self._open):
            connection.transport.abortConnection()


def running() -> dict[str, Any]:
    """Return what a kubelet says of a pod that runs."""
    since = "2026-01-01T00:00:00Z"
    ready = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("Ready", "ContainersReady")]
    container = {"name": "main", "image": "i", "imageID": "i", "ready": True, "restartCount": 0}
    return {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "podIPs": [{"ip": "10.1.2.3"}],
        "hostIP": "192.168.0.1",
        "hostIPs": [{"ip": "192.168.0.1"}],
        "conditions": ready,
        "containerStatuses": [{**container, "state": {"running": {"startedAt": since}}, "lastState": {}}],
    }
