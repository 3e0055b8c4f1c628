"""Plans the commands that turn the observed into the desired state, in their order. Pure.

What carries traffic is added before what carried it is removed; a route is added after all that its packets need, and
removed before it. An empty plan means that nothing has to be done.
"""

from __future__ import annotations

from collections.abc import Sequence

from liqod.fabric.agent.kernel import routes, vxlan, wireguard
from liqod.fabric.agent.kernel.model import (
    INWARD,
    TABLE,
    DesiredKernel,
    DesiredNodeKernel,
    HostCommand,
    ObservedKernel,
    ObservedNodeKernel,
)
from liqod.fabric.agent.kernel.rules import conntrack, nftables
from liqod.fabric.agent.kernel.rules.gateway_rules import gateway_sets


def plan(desired: DesiredKernel, observed: ObservedKernel, now: float) -> tuple[HostCommand, ...]:
    """Return the steps that make a host as desired; ``now`` is in seconds of the agent's clock."""
    steps: list[HostCommand] = []
    if observed.device is None:
        steps.append(HostCommand(desired.create))
    steps += wireguard.interface_steps(desired, observed.tunnel)
    steps += wireguard.rebind_steps(desired, observed.device, observed.tunnel)
    steps += routes.device_steps(desired, observed.device)
    steps += routes.stale_route_steps(desired, observed)
    steps += wireguard.peer_steps(desired, observed.tunnel, now)
    if desired.overlay is not None:
        steps += vxlan.overlay_steps(desired.overlay, observed.overlay)
    steps += nftables.table_steps(desired, observed.rules)
    if desired.overlay is not None:
        left = vxlan.remaining_table(desired.overlay, observed.overlay, observed.inward)
        steps += vxlan.table_steps(desired.overlay, left)
    else:
        steps += vxlan.removal_steps(vxlan.device_name(desired.device), INWARD, observed.overlay, observed.inward)
    steps += routes.missing_route_steps(desired, observed)
    flushed = observed.rules.flushed if observed.rules is not None else frozenset()
    steps += conntrack.flush_steps(nftables.NAME, desired.links, flushed)
    known = observed.rules.sets if observed.rules is not None else {}
    steps += conntrack.export_flush_steps(gateway_sets(desired), known)
    steps += wireguard.removal_steps(desired, observed.tunnel)
    return tuple(steps)


def removal(device: str, observed: ObservedKernel) -> tuple[HostCommand, ...]:
    """Return the steps that remove all that we ever made on a gateway."""
    steps: list[HostCommand] = []
    lines: dict[int, str] = {}
    for version, priority in sorted(observed.policies):
        lines[version] = lines.get(version, "") + f"{routes.delete_rule(priority, TABLE)}\n"
    for network in sorted(observed.routes, key=str):
        version = network.version
        lines[version] = f"route del {network} table {TABLE}\n" + lines.get(version, "")
    steps += [HostCommand(("ip", f"-{version}", "-batch", "-"), text) for version, text in sorted(lines.items())]
    steps += vxlan.removal_steps(vxlan.device_name(device), INWARD, observed.overlay, observed.inward)
    steps += nftables.removal_steps(observed.rules)
    if observed.device is not None:
        steps.append(HostCommand(("ip", "link", "del", "dev", device)))
    return tuple(steps)


def node_plan(desired: DesiredNodeKernel, observed: ObservedNodeKernel) -> tuple[HostCommand, ...]:
    """Return the steps that make a host that is no gateway as desired."""
    steps = [*vxlan.overlay_steps(desired.overlay, observed.overlay)]
    steps += nftables.table_steps(desired, observed.rules)
    steps += vxlan.table_steps(
        desired.overlay, vxlan.remaining_table(desired.overlay, observed.overlay, observed.outward)
    )
    return tuple(steps)


def node_removal(device: str, observed: ObservedNodeKernel) -> tuple[HostCommand, ...]:
    """Return the steps that remove all that we ever made on such a host; ``device`` is the overlay's."""
    steps = [*vxlan.removal_steps(device, TABLE, observed.overlay, observed.outward)]
    return (*steps, *nftables.removal_steps(observed.rules))


def show(steps: Sequence[HostCommand]) -> str:
    """Return a plan as text for people: the commands, each followed by its input."""
    return "\n".join(map(str, steps)) if steps else "nothing to do\n"


def outline(steps: Sequence[HostCommand], limit: int = 300) -> str:
    """Return what a plan does in one line: of each command its words, or the first line of its input."""
    found = [" ".join(step.argv) if step.secret or not step.stdin else _first_line(step) for step in steps]
    text = "; ".join(found)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _first_line(step: HostCommand) -> str:
    line, _, more = step.stdin.strip().partition("\n")
    return f"{step.argv[0]}: {line}{' ...' if more else ''}"
