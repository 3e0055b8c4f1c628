"""The network agent of the gateway: makes this host's kernel as desired, probes the peers, and reports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.application.service import MultiService
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.logger import Logger

from liqod.fabric.agent.converge import HOST, Clearness, FabricHost
from liqod.fabric.agent.kernel import device as devices
from liqod.fabric.agent.kernel.address_watch import AddressWatch
from liqod.fabric.agent.kernel.host import (
    HostKernel,
    Kernel,
    KernelError,
    apply,
    checked,
    has_six,
    is_forwarding,
    observe,
)
from liqod.fabric.agent.kernel.host_facts import host_addresses, name_servers, tunnel_mtu, uplink_mtu
from liqod.fabric.agent.kernel.model import INWARD, DesiredKernel, HostCommand, ObservedKernel, Overlay, TunnelPeer
from liqod.fabric.agent.kernel.plan import outline, plan, removal, show
from liqod.fabric.agent.kernel.preflight import Lacks, find_lacks
from liqod.fabric.agent.kernel.routes import host_networks, next_hops
from liqod.fabric.agent.kernel.vxlan import device_name, overlay_mtu, reached
from liqod.fabric.agent.key import TunnelKey
from liqod.fabric.agent.keyring import KeyRing
from liqod.fabric.agent.probing.ping import Pinger
from liqod.fabric.agent.probing.probe import Prober
from liqod.fabric.agent.undone import Losses, absent
from liqod.fabric.state.network import VNI, DesiredNetwork, parse_networks, without_six
from liqod.fabric.state.report import HostReport, NetworkReport, TunnelReport
from liqod.flow.clocks import LearnedDates
from liqod.flow.controller import Source
from liqod.flow.controller import observe as observe_value
from liqod.flow.observe import Latest
from liqod.model.timestamps import from_epoch, rfc3339

RESOLVERS: Final = (Path("/etc/resolv.conf"), Path("/run/systemd/resolve/resolv.conf"))
"""Where a host's name servers are: with systemd-resolved(8) the first has its stub, the second what stands behind."""
LACKS_HOLD: Final = 60.0
"""Seconds for which it holds what the host lacks."""
STARTING: Final = 20.0
"""Seconds for which what may come by itself is waited for: in a cluster wireguard-go is a pod beside the agent's."""


class GatewayAgent(MultiService):
    """Carries pod traffic with all peers on one host. It alone reads the tunnel's private keys."""

    _log = Logger()

    def __init__(self, host: FabricHost) -> None:
        super().__init__()
        self._reactor = reactor = host.reactor
        self._kernel: Kernel = host.kernel if host.kernel is not None else HostKernel(reactor)
        self._settings = host.settings.network
        self._address = host.address
        self._keys = KeyRing(host.client, reactor, host.informers, host.settings.kubernetes.namespace, host.address)
        self._under_systemd = devices.is_under_systemd(dict(host.environ))
        self._means = host.means
        self._began = reactor.seconds()
        self._lacking: tuple[float, Lacks] | None = None
        self._handshakes: LearnedDates[str] = LearnedDates(reactor, host.wall)
        self._prober = Prober(reactor)
        self._pinger = Pinger(reactor)
        self._address_watch = AddressWatch(reactor)
        if host.kernel is None:
            self._address_watch.setServiceParent(self)
        self._unconfirmed: Latest[int] = Latest(0)
        self._create: tuple[str, ...] = ()
        self._uplink = 0
        self._has_six = True
        self._addresses: frozenset[str] = frozenset()
        self._converged_at: frozenset[str] = frozenset()
        self._observed = ObservedKernel()
        self._clearness = Clearness(reactor)
        self.last_plan: tuple[HostCommand, ...] = ()
        self.losses = Losses()
        """What something else on this host removes."""
        self.is_forwarding = True
        """Whether the host forwards what comes out of the tunnel, by the last pass."""

    def sources(self) -> Iterable[Source[str]]:
        """Yield what enqueues a pass of the converge loop."""
        yield from self._keys.sources(HOST)
        yield observe_value(self._prober.paths, lambda _: (HOST,))
        yield observe_value(self._pinger.silent, lambda _: (HOST,))
        yield observe_value(self._address_watch.removals, lambda _: (HOST,))
        yield observe_value(self._unconfirmed, lambda _: (HOST,))

    def when_synced(self) -> Deferred[Any]:
        """Return a Deferred that fires when all that is watched was listed once."""
        return self._keys.when_synced()

    def close(self) -> None:
        """Close the probes' sockets; another daemon that leads here needs the same ports."""
        self._clearness.forget()
        self._prober.close()
        self._pinger.close()

    async def lacking(self) -> str:
        """Return what this host lacks for tunnels, and what to do; empty where it lacks nothing.

        It is found out again after LACKS_HOLD at the earliest: devices are tried for it. Raises KernelError while it
        may come by itself: what is said once to a peer decides about the peering for good.
        """
        now = self._reactor.seconds()
        known = self._lacking[1] if self._lacking is not None and now - self._lacking[0] < LACKS_HOLD else None
        is_starting = now - self._began < STARTING
        if known is None or (known.may_come and is_starting):
            known = await find_lacks(self._kernel, self._settings, self._means, under_systemd=self._under_systemd)
            self._lacking = now, known
        if known.may_come and is_starting:
            raise KernelError(f"not yet: {known.sentence}")
        return known.sentence

    def is_equipped(self) -> bool:
        """Return whether this process has the programs and the right to look at the host's network."""
        return not self._means.missing()

    async def inspect_host(self) -> HostReport:
        """Return the host's own network: MTU, addresses, routes; raises KernelError."""
        network = self._settings
        if not self._create:
            self._create = await devices.creation(self._kernel, network.device, under_systemd=self._under_systemd)
        shown = (await checked(self._kernel, ("ip", "-j", "addr", "show"))).out
        self._addresses = host_addresses(shown, (network.device, device_name(network.device)))
        # While the host lacks its address, the MTU of its interface cannot be determined: the last known one is used.
        self._uplink = uplink_mtu(shown, self._address) or self._uplink
        routes = [
            await checked(self._kernel, ("ip", f"-{version}", "-j", "route", "show", "table", "all"))
            for version in (4, 6)
        ]
        networks = [one for output in routes for one in host_networks(output.out, network.device)]
        needed = [one for output in routes for one in next_hops(output.out)]
        needed += [one for path in RESOLVERS for one in name_servers(_text_of(path))]
        own = parse_networks(self._addresses)
        self._has_six = await has_six(self._kernel)
        keys = await self._keys.keys()
        return HostReport(
            mtu=tunnel_mtu(network.mtu, self._uplink),
            networks=tuple(dict.fromkeys([*networks, *needed])),
            needed=tuple(dict.fromkeys([*needed, *own])),
            address=self._address,
            public_key=keys.current.public,
            next_key=keys.next.public if keys.next is not None else "",
        )

    async def observe(self) -> NetworkReport:
        """Observe the kernel and report, without changing anything; raises KernelError."""
        await self._observe()
        return self.report()

    async def _observe(self) -> None:
        found = await observe(self._kernel, self._settings.device)
        if found.tunnel is not None:
            self._handshakes.retain(found.tunnel.peers)
            peers = {
                key: attrs.evolve(one, handshake_at=self._when(key, one)) for key, one in found.tunnel.peers.items()
            }
            found = attrs.evolve(found, tunnel=attrs.evolve(found.tunnel, peers=peers))
        self._observed = found

    def _when(self, key: str, peer: TunnelPeer) -> float | None:
        """Return when a peer's last handshake was: a step of the wall clock since does not change it."""
        date = rfc3339(from_epoch(peer.handshake)) if peer.handshake else None
        return self._handshakes.at(key, date, past=True)

    async def preview(self, desired: DesiredNetwork) -> tuple[HostCommand, ...]:
        """Return what ``converge`` would do now; nothing is changed."""
        await self.observe()
        wanted = self._kernel_state(self._feasible(desired), (await self._keys.keys()).current)
        return plan(wanted, self._observed, self._reactor.seconds())

    async def converge(self, desired: DesiredNetwork) -> NetworkReport:
        """Apply the desired network to the host and return the report after that; raises KernelError."""
        self._clearness.forget()
        desired = self._feasible(desired)
        wanted = self._kernel_state(desired, (await self._keys.rotated()).current)
        await self._observe()
        self.losses.note(wanted, absent(wanted, self._observed))
        await self._apply(plan(wanted, self._observed, self._reactor.seconds()), "changing the network")
        self.losses.made(wanted)
        if self.last_plan:
            await self._observe()
            if any(link.next_key for link in wanted.links):
                # The next key is accepted by the device now, and control confirms that to the peer in its next pass.
                self._unconfirmed.set(self._unconfirmed.value + 1)
        self._converged_at = self._addresses
        self._prober.is_forwarding = self.is_forwarding = await is_forwarding(self._kernel, self._settings.device)
        self._probe(desired)
        return self.report()

    async def clear(self) -> None:
        """Remove everything of ours from the host because there is no peer, including what an earlier daemon left.

        The key is this cluster's own, not a peering's: it exists before the first one, and stays after the last.
        """
        self._prober.set_targets({}, 0)
        self._pinger.set_targets({}, {})
        self.losses = Losses()
        self.is_forwarding = True
        self.close()
        begun = self._reactor.seconds()
        await self._apply(await self.preview_removal(), "there is no peer: removing the network")
        if not self.last_plan:
            # What was removed only now is looked for once more, in the next pass.
            self._clearness.note(begun)
        await self._keys.keys()

    async def keep_clear(self, *, prompted: bool) -> None:
        """Do as ``clear``, in a pass of the converge loop: a host that was found clear is not observed each time."""
        if self._clearness.is_observation_due(prompted=prompted):
            await self.clear()
        else:
            await self._keys.keys()

    async def preview_removal(self) -> tuple[HostCommand, ...]:
        """Return what ``clear`` would do now; nothing is changed."""
        await self.observe()
        return removal(self._settings.device, self._observed)

    def report(self) -> NetworkReport:
        """Return what was observed last, with the newest results of probes."""
        observed = self._observed
        tunnels = observed.tunnel.peers if observed.tunnel is not None else {}
        return NetworkReport(
            implementation=devices.implementation(observed.device.kind) if observed.device is not None else "",
            routes=frozenset(observed.routes),
            tunnels={
                key: TunnelReport(one.endpoint, one.handshake, one.received, one.handshake_at, sent=one.sent)
                for key, one in tunnels.items()
            },
            probes={name: target.health.result for name, target in self._prober.targets.items()},
            pods=dict(self._pinger.paths),
            has_six=self._has_six,
        )

    def _feasible(self, desired: DesiredNetwork) -> DesiredNetwork:
        if self._has_six:
            return desired
        found = without_six(desired)
        if not found.addresses:
            raise KernelError("IPv6 is disabled on this host, and network.external-cidr is of IPv6")
        return found

    def _kernel_state(self, desired: DesiredNetwork, key: TunnelKey) -> DesiredKernel:
        network = self._settings
        return DesiredKernel(
            device=network.device,
            create=self._create,
            listen_port=network.listen_port,
            probe_port=network.probe_port,
            public_key=key.public,
            private_key=key.private,
            mtu=desired.mtu,
            addresses=desired.addresses,
            links=desired.links,
            overlay=self._overlay(desired),
            moved=not self._converged_at <= self._addresses,
            priority=network.rule_priority,
        )

    def _overlay(self, desired: DesiredNetwork) -> Overlay | None:
        vteps = reached(desired.vteps, self._address)
        if not vteps:
            return None
        network = self._settings
        return Overlay(
            device=device_name(network.device),
            vni=VNI,
            port=network.overlay_port,
            local=self._address,
            mtu=overlay_mtu(self._uplink, self._address),
            vteps=vteps,
            table=INWARD,
            source=network.device,
            priority=network.rule_priority - 1,
        )

    async def _apply(self, steps: tuple[HostCommand, ...], what: str) -> None:
        self.last_plan = steps
        if steps:
            self._log.info("{task}: {steps}", task=what, steps=outline(steps))
            self._log.debug("the network's plan:\n{plan}", plan=show(steps))
            await apply(self._kernel, steps)

    def _probe(self, desired: DesiredNetwork) -> None:
        own = [str(address.network_address) for address in desired.addresses]
        try:
            self._prober.bind(self._reactor, own[0], self._settings.probe_port)
        except CannotListenError as error:
            self._log.warn("peers are not probed: {error}", error=str(error))
        self._prober.set_targets(desired.probes.gateways, desired.mtu)
        self._pinger.open(own)
        known = {name: target.health.result.mtu for name, target in self._prober.targets.items()}
        self._pinger.set_targets(desired.probes.pods, {name: size for name, size in known.items() if size})


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
