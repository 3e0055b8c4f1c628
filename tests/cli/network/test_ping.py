"""What ping shows of what it measured, and that it measures a peer's address, its API server and the own one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
from twisted.internet import reactor
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.test.test_endpoints import deterministicResolvingReactor
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from liqod.cli.network.ping import _dialled
from liqod.cli.network.ping_rows import (
    ADDRESSES,
    PathTimes,
    addresses_of,
    as_row,
    recorded_tunnel,
    shown,
    unanswered,
    without_tunnel,
)
from liqod.kube.resources import FOREIGNCLUSTERS, NATTINGTABLES, PODS, VIRTUALNODES
from liqod.model.records.network import NetworkConfig, TunnelEndpoint
from liqod.model.records.views import ForeignCluster
from tests.cli.test_every_command import EveryCase

REACTOR: Any = reactor


def tunnel(**status: str) -> TunnelEndpoint:
    return msgspec.convert({"spec": {"gateway": {"address": "192.0.2.7"}}, "status": status}, TunnelEndpoint)


class RowsTests(SynchronousTestCase):
    """From attempts to rows."""

    def test_times(self) -> None:
        """Least, median and most in milliseconds, and the share without an answer."""
        row = as_row(PathTimes("session", "192.0.2.1:5872", 4, [0.003, 0.001, 0.0024]))
        self.assertEqual((row["minMs"], row["medianMs"], row["maxMs"], row["lostPercent"]), (1.0, 2.4, 3.0, 25))
        self.assertEqual((shown(row)["time"], shown(row)["loss"]), ("1.0 / 2.4 / 3.0", "25 %"))

    def test_not_measured(self) -> None:
        """What was not measured has no figures, rather than zeros."""
        row = as_row(PathTimes("peer API", note="no pod runs at the peer"))
        self.assertEqual(
            (row["minMs"], row["lostPercent"], shown(row)["time"], shown(row)["loss"]), (None, None, "", "")
        )
        lost = shown(as_row(PathTimes("tunnel", "10.80.0.1", 5)))
        self.assertEqual((lost["time"], lost["loss"]), ("", "100 %"))

    def test_failure(self) -> None:
        """A path without any answer is a failure, but for an address: the peer may have opened the session."""
        answered, silent = PathTimes("own API", "", 1, [0.001]), PathTimes("session", "192.0.2.1:5872", 5)
        self.assertFalse(unanswered([answered, silent, PathTimes("peer API", note="not measured")]))
        for path in ("own API", "peer API", "tunnel"):
            self.assertTrue(unanswered([answered, PathTimes(path, "", 5)]), path)
        self.assertTrue(unanswered([PathTimes("tunnel", broken=True)]))

    def test_recorded_tunnel(self) -> None:
        """Away from the gateway there are the daemon's own figures; a tunnel that is down is named with its reason."""
        up = recorded_tunnel(tunnel(phase="Connected", rtt="under 5 ms", loss="0 %"))
        self.assertIn("under 5 ms, 0 % lost", up.note)
        self.assertIn("192.0.2.7", up.note)
        self.assertFalse(up.broken)
        down = recorded_tunnel(tunnel(phase="Error", reason="NoHandshake", message="nothing comes back"))
        self.assertEqual((down.note, down.broken), ("NoHandshake: nothing comes back", True))
        self.assertFalse(recorded_tunnel(tunnel(phase="Connecting", reason="Probing")).broken)

    def test_without_tunnel(self) -> None:
        """Where there is no tunnel it says whether one was decided against, is awaited, or is not configured."""
        decided = {"spec": {"decision": {"mode": "none", "reason": "NoTunnel", "message": "no wg"}}}
        self.assertEqual(without_tunnel(msgspec.convert(decided, NetworkConfig)).note, "none: NoTunnel: no wg")
        waiting = {"status": {"reason": "Waiting", "message": "for the peer"}}
        self.assertIn("Waiting", without_tunnel(msgspec.convert(waiting, NetworkConfig)).note)
        self.assertFalse(without_tunnel(None).broken)

    def test_addresses(self) -> None:
        """Addresses written by hand come first, each once, and not more than a few."""
        announced = [{"address": f"192.0.2.{number}:5872", "source": "mDNS"} for number in range(20)]
        body = {"spec": {"endpoints": [{"address": "192.0.2.3:5872"}]}, "status": {"endpoints": announced}}
        found = addresses_of(msgspec.convert(body, ForeignCluster))
        self.assertEqual((found[0], len(found), len(set(found))), ("192.0.2.3:5872", ADDRESSES, ADDRESSES))


class AddressTests(SynchronousTestCase):
    """A peer whose name has two addresses, of which none answers."""

    def setUp(self) -> None:
        self.clock = MemoryReactorClock()
        session: Any = SimpleNamespace(reactor=deterministicResolvingReactor(self.clock, ["192.0.2.1", "192.0.2.2"]))
        self.pending: Deferred[PathTimes] = Deferred.fromCoroutine(_dialled(session, "milan.example:5872", 2))

    def test_silence(self) -> None:
        """Each attempt is lost when its time is over, with the second address still being tried."""
        self.clock.pump([0.5] * 30)
        found = self.successResultOf(self.pending)
        self.assertEqual((found.sent, found.times, found.note), (2, [], "no answer within 5 s"))

    def test_interrupted(self) -> None:
        """What is interrupted is no attempt that was lost, and nothing else is tried."""
        self.clock.pump([0.5] * 2)
        self.pending.cancel()
        self.failureResultOf(self.pending, CancelledError)


class CommandTests(EveryCase):
    """The command, against a simulated cluster and an address that answers."""

    async def test_paths(self) -> None:
        """The address is connected to, the one nobody listens at is lost; the diagnosis stands beside, and decides."""
        listening = REACTOR.listenTCP(0, Factory.forProtocol(Protocol), interface="127.0.0.1")
        self.addCleanup(listening.stopListening)
        here = f"127.0.0.1:{listening.getHost().port}"
        endpoints = [{"address": here}, {"address": "127.0.0.1:1"}, {"address": "nowhere"}]
        await self.client.patch(FOREIGNCLUSTERS, "c2", {"spec": {"endpoints": endpoints}})
        out, err, status = await self.outcome("ping", "milan", "--count=2", "-o", "json")
        self.assertEqual(status, 1, err)
        found = json.loads(out)
        rows = {row["target"] if row["path"] == "session" else row["path"]: row for row in found["paths"]}
        self.assertEqual((rows["own API"]["answered"], rows[here]["answered"], rows[here]["lostPercent"]), (2, 2, 0))
        self.assertEqual((rows["127.0.0.1:1"]["answered"], rows["127.0.0.1:1"]["lostPercent"]), (0, 100))
        self.assertIn("host:port", rows["nowhere"]["note"])
        self.assertIn("no pod runs", rows["peer API"]["note"])
        self.assertIn("NoDaemon", [problem["code"] for problem in found["problems"]])
        self.assertIn("LQ", err)

    async def test_peer_api(self) -> None:
        """A pod that runs at the peer is asked for its log; a refusal says nothing of the path, and is no loss."""
        await self.client.patch(PODS, "web", {"status": {"phase": "Running"}}, "default", subresource="status")
        out, _, status = await self.outcome("ping", "milan", "--count=1", "-o", "json")
        row = next(row for row in json.loads(out)["paths"] if row["path"] == "peer API")
        self.assertEqual((status, row["sent"], row["lostPercent"]), (1, 0, None))
        self.assertIn("ContainerCreating", row["note"])

    async def test_peer_api_by_a_further_node(self) -> None:
        """Where nothing runs on the peer's own node, a pod on a further one of it is asked."""
        record = {"metadata": {"name": "gpu"}, "spec": {"clusterID": "c2", "nodeName": "gpu-milan"}}
        await self.client.create(VIRTUALNODES, record, "liqo-tenant-c2")
        spec = {"nodeName": "gpu-milan", "containers": [{"name": "main", "image": "x"}]}
        await self.client.create(PODS, {"metadata": {"name": "train"}, "spec": spec}, "default")
        await self.client.patch(PODS, "train", {"status": {"phase": "Running"}}, "default", subresource="status")
        out, _, _ = await self.outcome("ping", "milan", "--count=1", "-o", "json")
        row = next(row for row in json.loads(out)["paths"] if row["path"] == "peer API")
        self.assertNotIn("no pod runs", row["note"])

    async def test_copies_of_all_nodes(self) -> None:
        """``who-has`` names the pods on all virtual nodes of a cluster."""
        record = {"metadata": {"name": "a-gpu"}, "spec": {"clusterID": "c2", "nodeName": "gpu-milan"}}
        await self.client.create(VIRTUALNODES, record, "liqo-tenant-c2")
        spec = {"nodeName": "gpu-milan", "containers": [{"name": "main", "image": "x"}]}
        await self.client.create(PODS, {"metadata": {"name": "train"}, "spec": spec}, "default")
        table = {"clusterID": "c2", "nattingTable": {"default": "default-rome"}}
        await self.client.create(NATTINGTABLES, {"metadata": {"name": "c2"}, "spec": table})
        out, err, _ = await self.outcome("who-has", "secret/key", "-o", "json")
        (row,) = json.loads(out)["copies"]
        self.assertEqual(row["pods"], ["train", "web"], err)
