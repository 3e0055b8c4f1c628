"""Control and the network agent as two processes would be: what one in-process fabric does, they do by records."""

from __future__ import annotations

import base64
from ipaddress import ip_network
from typing import Any

import attrs
from kubesandbox.cluster import SandboxCluster
from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger, formatEvent
from twisted.trial.unittest import TestCase

from liqod.agent.wiring import network_failures
from liqod.config.schema import DaemonSettings, NetworkSettings, Settings
from liqod.demo.access import client_config
from liqod.fabric.agent.gateway import GatewayAgent
from liqod.fabric.agent.key import generate, load_or_create
from liqod.fabric.agent.recorded import RecordedFabric
from liqod.fabric.control import agent_lease, recorded_agent
from liqod.fabric.control.recorded_agent import NoReport
from liqod.fabric.service import Fabric
from liqod.fabric.state.network import overlaps
from liqod.fabric.state.report import HostReport
from liqod.flow.errors import ExpectedError
from liqod.kube import manifests
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.client import Client
from liqod.kube.resources import (
    FOREIGNCLUSTERS,
    LEASES,
    NAMESPACES,
    NETWORKCONFIGS,
    NETWORKGATEWAYS,
    NODES,
    PODS,
    SECRETS,
    TUNNELENDPOINTS,
)
from liqod.model.ids import ClusterID
from liqod.model.names import MANAGED_BY_LABEL, MANAGED_BY_SHADOWPOD, OVERLAY_ANNOTATION, REMOTE_CLUSTER_LABEL
from liqod.model.records.network import (
    MAX_HOST_NETWORKS,
    Decision,
    NetworkConfig,
    NetworkGateway,
    TunnelEndpoint,
)
from tests.fabric.cases import fabric_host
from tests.fabric.fake_kernel import FakeKernel, public_key
from tests.facts.stated import state_networks

REACTOR: Any = reactor
ADDRESS = "192.0.2.1"
MILAN = ClusterID("milan")
KEY = base64.b64encode(bytes([0xCF, 0x3C, 0xF3] * 11)[:32]).decode()
"""The greatest of keys ("zzz..."): whatever key the cluster makes, it chooses networks from the beginning."""


class ClusterCase(TestCase):
    """One cluster with one peer, whose network is agreed."""

    timeout = 60

    async def cluster(self) -> Client:
        """Return a client of a cluster with one node and one peer that announced its network and sees ours."""
        cluster = SandboxCluster(REACTOR, "rome")
        cluster.listen(REACTOR)
        cluster.startService()
        self.addCleanup(lambda: Deferred.fromCoroutine(cluster.stop()))
        client = Client(client_config(cluster), REACTOR)
        self.addCleanup(lambda: Deferred.fromCoroutine(client.close()))
        await manifests.ensure(client)
        await client.create(NAMESPACES, {"metadata": {"name": "liqo-system"}})
        addresses = [{"type": "InternalIP", "address": ADDRESS}]
        spec = {"podCIDR": "10.201.0.0/24", "podCIDRs": ["10.201.0.0/24"]}
        await client.create(NODES, {"metadata": {"name": "one"}, "spec": spec})
        await client.patch(NODES, "one", {"status": {"addresses": addresses}}, subresource="status")
        await self.peer(client, MILAN, publicKey=KEY)
        await self.guest(client)
        return client

    async def peer(self, client: Client, name: str, **said: str) -> None:
        """Have a peer that announced its network, with what else it said, and sees ours."""
        await client.create(FOREIGNCLUSTERS, {"metadata": {"name": name}, "spec": {"clusterID": name}})
        lending = {"type": "Lending", "status": "True", "reason": "Lending"}
        await client.patch(FOREIGNCLUSTERS, name, {"status": {"conditions": [lending]}}, subresource="status")
        await client.create(NETWORKCONFIGS, {"metadata": {"name": name}, "spec": {"clusterID": name}})
        remote = {"podCIDRs": ["10.201.0.0/16"], "externalCIDR": "10.70.0.0/20", "mtu": 1420, **said}
        remote |= {"endpoints": ["192.0.2.7:5871"]}
        ack = {"podCIDRs": ["10.80.0.0/16"], "externalCIDR": "10.81.0.0/20"}
        await client.patch(NETWORKCONFIGS, name, {"status": {"remote": remote, "ack": ack}}, subresource="status")

    async def guest(self, client: Client) -> None:
        """Have a pod of the peer's run in the cluster, at 10.201.0.9."""
        labels = {REMOTE_CLUSTER_LABEL: MILAN}
        await client.create(NAMESPACES, {"metadata": {"name": "shop-milan", "labels": labels}})
        metadata = {"name": "guest", "labels": {MANAGED_BY_LABEL: MANAGED_BY_SHADOWPOD}}
        spec = {"nodeName": "one", "containers": [{"name": "main", "image": "none"}]}
        await client.create(PODS, {"metadata": metadata, "spec": spec}, "shop-milan")
        status = {"phase": "Running", "podIP": "10.201.0.9", "podIPs": [{"ip": "10.201.0.9"}]}
        await client.patch(PODS, "guest", {"status": status}, "shop-milan", subresource="status")

    def settings(self, role: str, mode: Any = "wireguard") -> Settings:
        """Return the settings of a process with a role."""
        network = NetworkSettings(mode=mode, service_cidrs=["10.96.0.0/12"], pod_cidrs=["10.201.0.0/16"])
        return Settings(daemon=DaemonSettings(role=role), network=network)  # type: ignore[arg-type]

    def run_one(self, kind: Any, client: Client, role: str, kernel: FakeKernel | None, **other: Any) -> Any:
        """Start a fabric with watches of its own, as a process has them; return it."""
        informers = Informers(client, REACTOR)
        settings = other.pop("settings", None) or self.settings(role, other.pop("mode", "wireguard"))
        fabric = kind(fabric_host(client, informers, settings, kernel, **other))
        for service in (informers, fabric):
            service.startService()
            self.addCleanup(service.stopService)
        return fabric

    async def until_peer(self, kernel: FakeKernel) -> None:
        """Wait until a kernel has a tunnel to the peer, with its routes and rules."""
        while "liqod" not in kernel.links or not kernel.links["liqod"].peers or not kernel.routes["4"]:
            await deferLater(REACTOR, 0.02)
        await deferLater(REACTOR, 0.3)


class SplitTests(ClusterCase):
    """Two processes, or one, for one peer."""

    async def test_two_processes_do_what_one_does(self) -> None:
        """The kernel is the same but for the key; only the agent touched it, and the secret has one key."""
        one, two = FakeKernel(), FakeKernel()
        self.run_one(Fabric, await self.cluster(), "all", one)
        client = await self.cluster()
        control = self.run_one(Fabric, client, "control", None)
        agent = self.run_one(RecordedFabric, client, "network", two)
        await self.until_peer(one)
        await self.until_peer(two)
        self.assertEqual(one.routes, two.routes)
        self.assertEqual(one.rules, two.rules)
        self.assertEqual(one.tables, two.tables)
        maps = {name[:5]: elements for name, elements in one.tables["inet liqod"]["sets"].items()}
        self.assertEqual(maps["home_"], ["10.80.0.9 : 10.201.0.9"])
        key = (await load_or_create(client, "liqo-system")).current
        own = key.public
        self.assertEqual(two.links["liqod"].public_key, public_key(key.private))
        config = await client.get(NETWORKCONFIGS, MILAN, view=NetworkConfig)
        self.assertEqual(config.spec.local.public_key, own)
        gateway = await client.get(NETWORKGATEWAYS, "gateway", view=NetworkGateway)
        self.assertEqual((gateway.status.public_key, gateway.status.ready), (own, True))
        self.assertTrue(agent.converged)
        tunnel = await client.get(TUNNELENDPOINTS, MILAN, view=TunnelEndpoint)
        self.assertEqual(tunnel.status.phase, "Connecting")
        self.assertIsNone(control.status(MILAN)[0])
        # What the agent observes is what control says.
        connected = {"phase": "Connected", "message": "packets cross in both directions"}
        await client.patch(TUNNELENDPOINTS, MILAN, {"status": connected}, subresource="status")
        while control.status(MILAN)[0] is not True:
            await deferLater(REACTOR, 0.02)

    async def test_a_peer_that_comes_and_goes(self) -> None:
        """A host that was found clear is left alone; a peer has its tunnel at once, and nothing stays of it."""
        for split in (False, True):
            client, kernel = await self.cluster(), FakeKernel()
            before = kernel.state()
            for kind in (FOREIGNCLUSTERS, NETWORKCONFIGS):
                await client.delete(kind, MILAN)
            agent = self.run_one(RecordedFabric, client, "network", kernel) if split else None
            fabric = self.run_one(Fabric, client, "control" if split else "all", None if split else kernel)
            while not any(command[0] == "nft" for command in kernel.commands):
                await deferLater(REACTOR, 0.02)
            await deferLater(REACTOR, 0.3)
            await (agent or fabric).converge()
            kernel.commands.clear()
            await (agent or fabric).converge()
            self.assertNotIn("nft", {command[0] for command in kernel.commands})
            await self.peer(client, MILAN, publicKey=KEY)
            await self.until_peer(kernel)
            await client.delete(FOREIGNCLUSTERS, MILAN)
            while kernel.state() != before:
                await deferLater(REACTOR, 0.02)

    async def test_a_host_of_the_other_ip_version(self) -> None:
        """A node that says its address on the overlay is of IPv6 is left out where the gateway's is of IPv4."""
        for split in (False, True):
            client, kernel = await self.cluster(), FakeKernel()
            for name, address in (("two", "192.0.2.2"), ("three", "fd00:3::3")):
                metadata = {"name": name, "annotations": {OVERLAY_ANNOTATION: address}}
                await client.create(NODES, {"metadata": metadata, "spec": {}})
            if split:
                self.run_one(RecordedFabric, client, "network", kernel)
            self.run_one(Fabric, client, "control" if split else "all", None if split else kernel)
            await self.until_peer(kernel)
            self.assertEqual(list(kernel.links["liqodx"].hosts.values()), ["192.0.2.2"])

    async def test_a_host_without_ipv6(self) -> None:
        """A peer's network of IPv6 is left out where this host has none of it, and the others are reached."""
        for split in (False, True):
            client, kernel = await self.cluster(), FakeKernel()
            kernel.has_six = False
            networks = {"podCIDRs": ["10.201.0.0/16", "fd00:9::/48"]}
            await client.patch(NETWORKCONFIGS, MILAN, {"status": {"remote": networks}}, subresource="status")
            if split:
                self.run_one(RecordedFabric, client, "network", kernel)
            fabric = self.run_one(Fabric, client, "control" if split else "all", None if split else kernel)
            await self.until_peer(kernel)
            self.assertEqual((len(kernel.routes["4"]), kernel.routes["6"]), (2, {}))
            self.assertEqual(len(kernel.links["liqod"].peers[KEY]["allowed"]), 2)
            self.assertIn("inet liqod", kernel.tables)
            await fabric.converge()
            tunnel = await client.get(TUNNELENDPOINTS, MILAN, view=TunnelEndpoint)
            self.assertEqual((len(tunnel.spec.allowed_ips), tunnel.status.phase), (3, "Connecting"))

    async def test_a_host_that_forwards_nothing(self) -> None:
        """It is a problem of the process that has the host's network, as long as it is so."""
        for split in (False, True):
            client, kernel = await self.cluster(), FakeKernel()
            kernel.is_forwarding = False
            agent = self.run_one(RecordedFabric, client, "network", kernel) if split else None
            fabric = self.run_one(Fabric, client, "control" if split else "all", None if split else kernel)
            await self.until_peer(kernel)
            for kernel.is_forwarding, wanted in ((False, ["ForwardingOff"]), (True, [])):
                await (agent or fabric).converge()
                self.assertEqual([one.code for one in network_failures(agent or fabric)], wanted)

    async def test_a_report_of_an_agent_that_is_gone(self) -> None:
        """Without renewals of its lease nobody knows whether packets cross; with a node that is lost none do.

        A renewal brings back what is on record, and nothing is deleted meanwhile.
        """
        self.patch(agent_lease, "MARGIN", 0.2)
        client = await self.cluster()
        lease = {"metadata": {"name": "liqod-network"}, "spec": {"holderIdentity": "one", "leaseDurationSeconds": 1}}
        await client.create(LEASES, lease, "liqo-system")
        control = self.run_one(Fabric, client, "control", None)
        kernel = FakeKernel()
        agent = self.run_one(RecordedFabric, client, "network", kernel)
        await self.until_peer(kernel)
        await agent.stopService()
        connected = {"status": {"phase": "Connected", "message": "packets cross in both directions"}}
        await client.patch(TUNNELENDPOINTS, MILAN, connected, subresource="status")

        async def until(expected: bool | None, said: str) -> None:
            while control.status(MILAN)[0] is not expected:
                await deferLater(REACTOR, 0.02)
            self.assertIn(said, control.status(MILAN)[1])

        async def renewed() -> None:
            spec = {"renewTime": f"2001-01-01T00:00:0{len(dates)}.000000Z"}
            dates.append(spec["renewTime"])
            await client.patch(LEASES, "liqod-network", {"spec": spec}, "liqo-system")

        dates: list[str] = []
        await renewed()
        await until(True, "packets cross")
        await until(None, "does not renew its lease liqod-network")
        await renewed()
        await until(True, "packets cross")
        ready = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        await client.patch(NODES, "one", ready, subresource="status")
        await until(False, f"the gateway's host {ADDRESS} is down")
        await control.converge()
        await renewed()
        await until(True, "packets cross")
        self.assertEqual(len((await client.list(TUNNELENDPOINTS)).items), 1)
        self.assertEqual(len((await client.list(NETWORKCONFIGS)).items), 1)

    async def test_no_usable_address(self) -> None:
        """An agent whose record has no address of this host leaves the kernel as it is, and says that it is not ready.

        Records that it refuses have their reasons meanwhile.
        """
        client, kernel = await self.cluster(), FakeKernel()
        control = self.run_one(Fabric, client, "control", None)
        agent = self.run_one(RecordedFabric, client, "network", kernel)
        await self.until_peer(kernel)
        await control.stopService()
        before = kernel.state()
        good = await client.get(TUNNELENDPOINTS, MILAN)
        spec = good["spec"] | {"clusterID": "other"}
        await client.create(TUNNELENDPOINTS, {"metadata": {"name": "thief"}, "spec": spec})
        await client.patch(NETWORKGATEWAYS, "gateway", {"spec": {"addresses": None}})
        while True:
            gateway = await client.get(NETWORKGATEWAYS, "gateway", view=NetworkGateway)
            thief = await client.get(TUNNELENDPOINTS, "thief", view=TunnelEndpoint)
            if not gateway.status.ready and thief.status.reason:
                break
            await deferLater(REACTOR, 0.02)
        self.assertIn("addresses that this host's settings know", gateway.status.message)
        self.assertEqual(thief.status.reason, "BadRecord")
        self.assertEqual(kernel.state(), before)
        await self.assertFailure(Deferred.fromCoroutine(agent.preview()), ExpectedError)

    async def test_own_networks_by_the_facts(self) -> None:
        """While a network of ours is unknown no peer is given any, and the record says why; before the facts, nothing.

        Then the networks are those of the facts, and not what the nodes were assigned.
        """
        client = await self.cluster()
        fabric = self.run_one(
            Fabric, client, "all", FakeKernel(), settings=Settings(network=NetworkSettings(mode="wireguard"))
        )
        await fabric.when_synced()
        await self.assertFailure(Deferred.fromCoroutine(fabric.converge()), ExpectedError)
        config = await client.get(NETWORKCONFIGS, MILAN, view=NetworkConfig)
        self.assertEqual((config.status.phase, config.spec.local.pod_cidrs), ("", []))
        await state_networks(client, services=())
        while config.status.phase != "Pending":
            await deferLater(REACTOR, 0.02)
            config = await client.get(NETWORKCONFIGS, MILAN, view=NetworkConfig)
        self.assertEqual((config.status.reason, config.spec.local.pod_cidrs), ("OwnNetworksUnknown", []))
        self.assertIn("set service-cidrs under [network]", config.status.message)
        await state_networks(client, services=("10.112.0.0/12",))
        while config.status.phase != "Agreed":
            await deferLater(REACTOR, 0.02)
            config = await client.get(NETWORKCONFIGS, MILAN, view=NetworkConfig)
        local = config.spec.local
        self.assertEqual((local.pod_cidrs, local.service_cidrs), (["10.48.0.0/16"], ["10.112.0.0/12"]))

    async def test_a_host_with_thousands_of_routes(self) -> None:
        """The record has networks that hold all of them, and the log says that they are wider."""
        many = [ip_network(f"10.{number >> 8}.{(number & 127) * 2}.1/32") for number in range(4000)]
        last = [ip_network(text) for text in ("172.31.255.1/32", "192.168.255.1/32", "fd00:ffff::1/128")]
        inspect_host = GatewayAgent.inspect_host

        async def crowded(agent: GatewayAgent) -> HostReport:
            return attrs.evolve(await inspect_host(agent), networks=(*many, *last))

        self.patch(GatewayAgent, "inspect_host", crowded)
        client = await self.cluster()
        said: list[str] = []

        observer: Any = lambda event: said.append(formatEvent(event))  # noqa: E731
        self.patch(RecordedFabric, "_log", Logger(observer=observer))
        self.run_one(RecordedFabric, client, "network", FakeKernel())
        networks: list[str] = []
        while not networks:
            await deferLater(REACTOR, 0.02)
            for one in (await client.list(NETWORKGATEWAYS, view=NetworkGateway)).items:
                networks = one.status.networks
        self.assertLessEqual(len(networks), MAX_HOST_NETWORKS)
        written = [ip_network(text) for text in networks]
        for network in (*many, *last):
            self.assertTrue(overlaps(network, written), network)
        self.assertEqual(len([line for line in said if "(TooManyNetworks)" in line]), 1, said)

    async def test_control_alone_waits_for_the_agent(self) -> None:
        """Without a network agent nothing is announced, and no key is made: control has none."""
        client = await self.cluster()
        control = self.run_one(Fabric, client, "control", None)
        await control.when_synced()
        for _ in range(3):
            await self.assertFailure(Deferred.fromCoroutine(control.converge()), NoReport)
        self.assertEqual((await client.list(SECRETS, "liqo-system")).items, [])
        config = await client.get(NETWORKCONFIGS, MILAN, view=NetworkConfig)
        self.assertEqual(config.spec.local.public_key, "")

    async def decision(self, client: Client, wanted: str) -> Decision:
        """Have it decided about the peer, and wait for that."""
        patch = {"spec": {"decision": {"mode": "auto"}}}
        await client.patch(NETWORKCONFIGS, MILAN, patch)
        while True:
            config: NetworkConfig = await client.get(NETWORKCONFIGS, MILAN, view=NetworkConfig)
            if config.spec.decision.mode == wanted:
                return config.spec.decision
            await deferLater(REACTOR, 0.02)

    async def test_the_agents_host_lacks_a_program(self) -> None:
        """With ``mode = "auto"`` control decides by what the agent lacks, which stands in the gateway's record."""
        client = await self.cluster()
        kernel = FakeKernel()
        before = kernel.state()
        self.run_one(RecordedFabric, client, "network", kernel, mode="auto", missing=["nft"])
        self.run_one(Fabric, client, "control", None, mode="auto")
        decision = await self.decision(client, "none")
        self.assertEqual(decision.reason, "HostLacks")
        gateway: NetworkGateway = await client.get(NETWORKGATEWAYS, "gateway", view=NetworkGateway)
        for message in (decision.message, gateway.status.lacking):
            self.assertIn("the program nft is missing: install the package nftables", message)
        self.assertEqual((await client.list(TUNNELENDPOINTS)).items, [])
        self.assertEqual(kernel.state(), before)

    async def test_the_agents_host_can(self) -> None:
        """With ``mode = "auto"`` an agent that lacks nothing makes the tunnel that control decided for."""
        client = await self.cluster()
        kernel = FakeKernel()
        self.run_one(RecordedFabric, client, "network", kernel, mode="auto")
        self.run_one(Fabric, client, "control", None, mode="auto")
        self.assertEqual((await self.decision(client, "wireguard")).reason, "BothCan")
        await self.until_peer(kernel)

    async def test_no_agent_at_all(self) -> None:
        """With ``mode = "auto"`` control waits for an agent's first report, and then does without a tunnel."""
        self.patch(recorded_agent, "REPORT_WITHIN", 0.2)
        client = await self.cluster()
        self.run_one(Fabric, client, "control", None, mode="auto")
        decision = await self.decision(client, "none")
        self.assertIn('is a daemon with role = "network" running?', decision.message)

    async def test_a_record_that_control_did_not_check(self) -> None:
        """Who may write records writes what is not the peer's: the agent refuses it, says so, and keeps the rest."""
        client = await self.cluster()
        kernel = FakeKernel()
        self.run_one(Fabric, client, "control", None)
        self.run_one(RecordedFabric, client, "network", kernel)
        await self.until_peer(kernel)
        before = kernel.state()
        good = await client.get(TUNNELENDPOINTS, MILAN)
        spec = good["spec"] | {"clusterID": "thief", "publicKey": generate().public}
        spec["remoteSeen"] = {"podCIDRs": ["192.0.2.0/24"]}
        await client.create(TUNNELENDPOINTS, {"metadata": {"name": "thief"}, "spec": spec})
        while True:
            found = (await client.list(TUNNELENDPOINTS, view=TunnelEndpoint)).items
            stolen = [one for one in found if one.metadata.name == "thief"]
            if not stolen or stolen[0].status.reason:
                break
            await deferLater(REACTOR, 0.02)
        self.assertEqual([one.status.reason for one in stolen], ["CIDRForbidden"] * len(stolen))
        self.assertEqual(kernel.state(), before)
