"""``[network] mode = "auto"`` in two clusters that are connected: real sessions, kernels in memory."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import msgspec

from liqod.agent.fabric_networks import FabricNetworks
from liqod.config.schema import NetworkSettings, Settings
from liqod.fabric.service import Fabric
from liqod.kube.resources import NETWORKCONFIGS
from liqod.model.records.network import NetworkConfig
from liqod.peering.exchange import network as exchange
from tests.fabric.cases import fabric_host
from tests.fabric.fake_kernel import FakeKernel
from tests.kubelet.networks import HomeNetworks
from tests.peering.clusters import PairCase, PeerCluster, settings

PODS = {"alpha": "10.201.0.0/24", "beta": "10.202.0.0/24"}


def networked(mode: str, name: str) -> Settings:
    """Return the settings of a cluster."""
    chosen = NetworkSettings(
        mode=mode,  # type: ignore[arg-type]
        pod_cidrs=[PODS[name]],
        service_cidrs=["10.96.0.0/12"],
        listen_port=5871,
    )
    return msgspec.structs.replace(settings(), network=chosen)


class AutoCase(PairCase):
    """Two clusters with a session each with the fabric of its host."""

    async def connected(self, one: str = "auto", two: str = "auto") -> tuple[PeerCluster, PeerCluster]:
        """Return two clusters that trust each other."""
        alpha, beta = await self.pair(networked(one, "alpha"), networked(two, "beta"))
        self.kernels = {side.name: FakeKernel() for side in (alpha, beta)}
        await alpha.trust(beta)
        await beta.trust(alpha)
        alpha.sees(beta)

        async def open_on_both() -> bool:
            return bool(alpha.peering.sessions()) and bool(beta.peering.sessions())

        await self.becomes(open_on_both, "a session")
        return alpha, beta

    def run_fabric(self, side: PeerCluster, missing: Collection[str] = ()) -> Fabric:
        """Run the fabric of a cluster's host."""
        host = fabric_host(side.daemon, side.informers, side.settings, self.kernels[side.name], missing)
        fabric = Fabric(host)
        fabric.startService()
        self.addCleanup(fabric.stopService)
        return fabric

    async def decided(self, side: PeerCluster, other: PeerCluster, mode: str, reason: str) -> NetworkConfig:
        """Wait until a cluster's record has this decision."""

        async def check() -> NetworkConfig | None:
            record: NetworkConfig = await side.admin.get(NETWORKCONFIGS, other.id, view=NetworkConfig)
            found = record.spec.decision
            self.last = cast(Any, found)  # shown when it is not decided in time
            return record if (found.mode, found.reason) == (mode, reason) else None

        return await self.becomes(check, f"{mode} because of {reason} at {side.name}")

    def tunnels(self) -> dict[str, int]:
        """Return how many peers the tunnel's device of each host has."""
        links = {name: kernel.links.get("liqod") for name, kernel in self.kernels.items()}
        return {name: len(link.peers) if link is not None else 0 for name, link in links.items()}


class NewPeeringTests(AutoCase):
    """Peerings that are made while this mode is set."""

    async def test_both_can(self) -> None:
        """Where both hosts can, both decide for a tunnel, and both make it."""
        alpha, beta = await self.connected()
        for side in (alpha, beta):
            self.run_fabric(side)
        await self.decided(alpha, beta, "wireguard", "BothCan")
        await self.decided(beta, alpha, "wireguard", "BothCan")

        async def made() -> bool:
            return self.tunnels() == {"alpha": 1, "beta": 1}

        await self.becomes(made, "tunnels on both hosts")

    async def test_one_lacks_a_program(self) -> None:
        """Where one host lacks ``wg`` neither has a tunnel, both say why and what to do, and addresses stay theirs,
        unless they are this cluster's.
        """
        alpha, beta = await self.connected()
        networks = FabricNetworks(self.run_fabric(alpha), HomeNetworks("10.96.0.0/12"))
        self.run_fabric(beta, missing=["wg"])
        there = await self.decided(beta, alpha, "none", "HostLacks")
        here = await self.decided(alpha, beta, "none", "PeerHasNone")
        for record in (here, there):
            self.assertIn("wg is missing: install the package wireguard-tools", record.spec.decision.message)

        async def shown() -> bool:
            one: NetworkConfig = await alpha.admin.get(NETWORKCONFIGS, beta.id, view=NetworkConfig)
            two: NetworkConfig = await beta.admin.get(NETWORKCONFIGS, alpha.id, view=NetworkConfig)
            keys = one.spec.local.public_key, two.spec.local.public_key
            return (one.status.phase, two.status.phase, *keys) == ("None", "None", "", "")

        await self.becomes(shown, "the phase of both records, which announce no key")
        self.assertEqual(self.tunnels(), {"alpha": 0, "beta": 0})
        self.assertEqual(self.kernels["beta"].commands, [])
        network = networks.to(beta.id)
        self.assertEqual((network.is_managed, network.status.value.ready), (False, True))
        for address in ("10.96.0.1", "127.0.0.1", "169.254.169.254"):
            self.assertEqual((network.to_home(address), bool(network.refusal(address))), ("", True))
        self.assertEqual((network.to_home("10.202.0.9"), network.to_lender("10.201.0.9")), ("10.202.0.9", "10.201.0.9"))

    async def test_the_program_comes_later(self) -> None:
        """What was decided is kept: a host that can by now, and was started again, makes no tunnel to old peers."""
        alpha, beta = await self.connected()
        self.run_fabric(alpha)
        without = self.run_fabric(beta, missing=["nft"])
        before = await self.decided(beta, alpha, "none", "HostLacks")
        await self.decided(alpha, beta, "none", "PeerHasNone")
        await without.stopService()
        again = self.run_fabric(beta)
        await again.converge()
        after = await self.decided(beta, alpha, "none", "HostLacks")
        self.assertEqual(after.spec.decision, before.spec.decision)
        self.assertEqual(self.tunnels(), {"alpha": 0, "beta": 0})

    async def test_a_peer_that_leaves_the_network_to_others(self) -> None:
        """A peer with ``mode = "none"`` says so at once, and that is the reason."""
        alpha, beta = await self.connected(two="none")
        self.run_fabric(alpha)
        record = await self.decided(alpha, beta, "none", "PeerHasNone")
        self.assertIn('mode = "none"', record.spec.decision.message)

    async def test_a_peer_that_always_has_tunnels(self) -> None:
        """A peer with ``mode = "wireguard"`` gets its tunnel, and its record has no decision: its settings say it."""
        alpha, beta = await self.connected(two="wireguard")
        for side in (alpha, beta):
            self.run_fabric(side)
        await self.decided(alpha, beta, "wireguard", "BothCan")
        await self.decided(beta, alpha, "", "")

    async def test_a_peer_of_before(self) -> None:
        """A peer that tells nothing of its network, as releases before did without one, is one without a tunnel."""
        self.patch(exchange, "ANSWER_WITHIN", 0.5)
        self.patch(exchange, "ALWAYS_SAYS", 100)
        self.patch(exchange.NoTunnels, "reconcile", _tell_nothing)
        alpha, beta = await self.connected(two="none")
        self.run_fabric(alpha)
        await self.decided(alpha, beta, "none", "PeerSilent")


async def _tell_nothing(self: object, peer: object) -> None:
    """Do as releases before did."""


class OldPeeringTests(AutoCase):
    """Peerings that were made before this mode was set."""

    async def test_one_with_a_tunnel(self) -> None:
        """The tunnel stays, though the host could not make one today."""
        alpha, beta = await self.connected("wireguard", "wireguard")
        first = [self.run_fabric(side) for side in (alpha, beta)]

        async def made() -> bool:
            return self.tunnels() == {"alpha": 1, "beta": 1}

        await self.becomes(made, "tunnels on both hosts")
        before: NetworkConfig = await alpha.admin.get(NETWORKCONFIGS, beta.id, view=NetworkConfig)
        await first[0].stopService()
        alpha.settings = networked("auto", "alpha")
        again = self.run_fabric(alpha, missing=["conntrack"])
        await again.when_synced()
        await again.converge()
        after: NetworkConfig = await alpha.admin.get(NETWORKCONFIGS, beta.id, view=NetworkConfig)
        self.assertEqual(after.spec, before.spec)
        self.assertEqual(self.tunnels(), {"alpha": 1, "beta": 1})
        self.assertTrue(again.has_tunnel(beta.id))
