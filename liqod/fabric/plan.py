"""From what is wanted and what is seen to the commands in between, in their order. Pure.

What carries traffic is added before what carried it is removed; a route comes after all that its packets need, and goes
before it. An empty plan means that nothing has to be done.
"""

from __future__ import annotations

from collections.abc import Sequence

from liqod.fabric import nftables, routes, wireguard
from liqod.fabric.model import TABLE, Desired, Observed, Step


def plan(desired: Desired, observed: Observed, now: float) -> tuple[Step, ...]:
    """Return the steps that make a host as desired; ``now`` is in seconds since 1970."""
    steps: list[Step] = []
    if observed.device is None:
        steps.append(Step(desired.create))
    steps += wireguard.interface_steps(desired, observed.tunnel)
    steps += routes.device_steps(desired, observed.device)
    steps += routes.departure_steps(desired, observed)
    steps += wireguard.peer_steps(desired, observed.tunnel, now)
    steps += nftables.table_steps(desired, observed.rules)
    steps += routes.arrival_steps(desired, observed)
    steps += wireguard.removal_steps(desired, observed.tunnel)
    return tuple(steps)


def removal(device: str, observed: Observed) -> tuple[Step, ...]:
    """Return the steps that leave nothing of the fabric behind."""
    steps: list[Step] = []
    lines = dict.fromkeys(observed.policies, f"rule del pref {TABLE} lookup {TABLE}\n")
    for network in sorted(observed.routes, key=str):
        version = network.version
        lines[version] = f"route del {network} table {TABLE}\n" + lines.get(version, "")
    steps += [Step(("ip", f"-{version}", "-batch", "-"), text) for version, text in sorted(lines.items())]
    steps += nftables.removal_steps(observed.rules)
    if observed.device is not None:
        steps.append(Step(("ip", "link", "del", "dev", device)))
    return tuple(steps)


def show(steps: Sequence[Step]) -> str:
    """Return a plan as text for people: the commands, each followed by its input."""
    return "\n".join(map(str, steps)) if steps else "nothing to do\n"
