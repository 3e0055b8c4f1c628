"""``plan`` and ``rotate-tunnel-key``: previews changes of this host's network; rotates the WireGuard key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
from twisted.internet.defer import maybeDeferred

from liqod.agent.host.address import own_address
from liqod.cli.console import errors
from liqod.cli.console.errors import CliError
from liqod.cli.console.findings import Finding, bad, good, warning
from liqod.cli.console.options import Options, cluster_options
from liqod.cli.console.session import Output, Session, in_cluster
from liqod.cli.console.terminal import echo_document
from liqod.cli.network.pools import (
    API_SERVER,
    TIME_FILES,
    TIME_SERVER,
    Need,
    Unknown,
    api_servers,
    judge_pools,
    time_servers,
)
from liqod.cli.status.own_facts import own_facts
from liqod.fabric.agent.converge import FabricHost
from liqod.fabric.agent.kernel import preflight
from liqod.fabric.agent.kernel.device import is_under_systemd
from liqod.fabric.agent.kernel.host import HostKernel, Kernel, KernelError, apply, checked, observe, observe_node
from liqod.fabric.agent.kernel.plan import node_removal, removal, show
from liqod.fabric.agent.kernel.routes import host_networks
from liqod.fabric.agent.kernel.vxlan import device_name
from liqod.fabric.agent.key import plan_next
from liqod.fabric.agent.node import NodeFabric
from liqod.fabric.agent.recorded import RecordedFabric
from liqod.fabric.control.cluster_facts import api_server_addresses, node_addresses
from liqod.fabric.service import Fabric
from liqod.flow.controller import NO_METRICS
from liqod.flow.errors import ExpectedError
from liqod.kube.cache.shared_informers import Informers
from liqod.kube.errors import KubeError, NotFound
from liqod.kube.resources import NODES
from liqod.model.objects.node import Node
from liqod.model.records.facts import API_SERVER_ADDRESSES, values_of
from liqod.model.records.network import TUNNEL, UNDECIDED

FIRST_LISTS = 30.0
"""Timeout of the initial lists of the records, in seconds."""


@click.command()
@cluster_options
def plan(options: Options) -> None:
    """Print the changes that the daemon would make to this host's network, as ip, wg, bridge and nft commands.

    Nothing is changed. Run it as root on the gateway's host, or on a node with `role = "node"`.

    \b
    Example:
      liqodctl plan
    """

    async def work(session: Session) -> str:
        if session.settings.daemon.role == "control":
            return '# nothing: with role = "control" under [daemon] the network is that of the network agent\'s host\n'
        if session.settings.network.mode == "none":
            return '# nothing: mode = "none" under [network] disables the network fabric\n'
        return await _preview(session)

    script = in_cluster(options, work)
    if not options.is_document:
        echo_document(script)
    Output(options).publish({"script": script})


async def _preview(session: Session) -> str:
    informers = Informers(session.client, session.reactor)
    server = session.client.config.server
    address = own_address(session.settings.kubelet.node_address, server)
    fabric: NodeFabric | RecordedFabric | Fabric
    settings = session.settings
    host = FabricHost(
        reactor=session.reactor,
        client=session.client,
        informers=informers,
        settings=settings,
        address=address,
        metrics=NO_METRICS,
    )
    if settings.network.role == "node":
        fabric = NodeFabric(host)
    elif settings.daemon.role == "network":
        fabric = RecordedFabric(host)
    else:
        fabric = Fabric(host)
    informers.startService()
    try:
        await session.within(FIRST_LISTS, fabric.when_synced(), "the records of the network")
        return show(await fabric.preview())
    except ExpectedError as error:
        raise CliError(errors.HOST, str(error), "run it as root on the host of the daemon") from error
    finally:
        await maybeDeferred(informers.stopService)


@click.command("rotate-tunnel-key")
@cluster_options
def rotate_tunnel_key(options: Options) -> None:
    """Rotate the WireGuard key without interruption: the daemon waits until every peer has the new one.

    \b
    Example:
      liqodctl rotate-tunnel-key
    """

    async def work(session: Session) -> None:
        try:
            key = await plan_next(session.client, session.settings.kubernetes.namespace)
        except NotFound:
            raise CliError(
                errors.NO_IDENTITY, "the tunnel has no key yet", "the daemon creates it with the first peer"
            ) from None
        session.say(f"the next key is {key.public}; the daemon uses it when every peer has it")
        session.publish({"nextKey": key.public})

    in_cluster(options, work)


async def leave_host(session: Session) -> list[str]:
    """Remove the fabric's network configuration from this host; returns a line for each command that was run."""
    network = session.settings.network
    if network.mode == "none" or session.settings.daemon.role == "control":
        return []
    kernel = HostKernel(session.reactor)
    if network.mode == UNDECIDED and preflight.Means().missing() and not _has_device(network.device):
        return []
    try:
        if network.role == "node":
            over = device_name(network.device)
            steps = node_removal(over, await observe_node(kernel, over))
        else:
            steps = removal(network.device, await observe(kernel, network.device))
        await apply(kernel, steps)
    except KernelError as error:
        raise CliError(
            errors.HOST, f"the network of this host was not removed: {error}", "run it again as root on that host"
        ) from error
    return [f"from this host's network: {' '.join(step.argv)}" for step in steps]


def _has_device(name: str) -> bool:
    return Path("/sys/class/net", name).exists()


async def host_findings(session: Session, *, pre: bool) -> list[Finding]:
    """Check the prerequisites of the network fabric on this host; ``pre``: before there is a daemon."""
    network = session.settings.network
    if network.mode == "none":
        return [good("Network", "is not managed by liqod (mode = none)")]
    if session.settings.daemon.role == "control":
        return [good("Network", "is changed by the network agent, another process; check it on its host")]
    kernel: Any = HostKernel(session.reactor)
    capable = preflight.is_capable()
    under_systemd = is_under_systemd(dict(os.environ))
    found = await preflight.check_host(kernel, network, preflight.Means(), under_systemd=under_systemd)
    # With "auto" what is missing is a choice: peerings that are made now get no tunnel.
    judged = bad if capable and network.mode == TUNNEL else warning
    shown = [judged("Network", one.text, one.hint) if one.hint else good("Network", one.text) for one in found]
    return shown if network.role == "node" else [*shown, *await pool_findings(session, kernel, pre=pre)]


async def pool_findings(session: Session, kernel: Kernel, *, pre: bool) -> list[Finding]:
    """Check that no peer can be given the network of a server that this host needs; what is not known is said.

    ``pre``: before there is a daemon nobody has found out where the API servers are, and nothing is said of them.
    """
    needs, unknown = _time_servers()
    if not pre:
        servers = values_of(await own_facts(session), API_SERVER_ADDRESSES)
        needs += api_servers(servers)
        if not servers:
            hint = "the daemon that leads finds them out; `liqodctl facts` shows whether, and why not"
            unknown.append(Unknown("where the API servers are", hint))
    known = api_server_addresses(session.client.config.server)
    network = session.settings.network
    try:
        for version in (4, 6):
            shown = await checked(kernel, ("ip", f"-{version}", "-j", "route", "show", "table", "all"))
            known += host_networks(shown.out, network.device)
    except KernelError as error:
        unknown.append(Unknown(f"the routes of this host: {error}", "run it on the gateway's host, as root"))
    try:
        known += node_addresses((await session.client.list(NODES, view=Node)).items)
    except KubeError as error:
        hint = "run it as a user who may list nodes, as the daemon's account may"
        unknown.append(Unknown(f"the addresses of the nodes: {error}", hint))
    return judge_pools(network, needs, known, unknown, (TIME_SERVER,) if pre else (TIME_SERVER, API_SERVER))


def _time_servers() -> tuple[list[Need], list[Unknown]]:
    """Return the time servers that this host's files name, and the files that could not be read."""
    texts: list[str] = []
    unknown: list[Unknown] = []
    for path in TIME_FILES:
        try:
            texts.append(Path(path).read_text(errors="replace"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            unknown.append(Unknown(f"the time servers in {path}: {error.strerror or error}", "run it as root"))
    return time_servers("\n".join(texts)), unknown
