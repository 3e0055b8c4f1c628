"""The test network: one network namespace with a bridge, and one namespace per host with an address on it.

A test network lives wholly inside namespaces, so that two of them use the same addresses at once. It has no way out.
The namespace of the bridge is the place of the test process itself: it has an address there and reaches every host.
"""

from __future__ import annotations

import contextlib

from tests.testbed.process import NETNS, CommandFailed, run, run_in

TEST_ADDRESS = "10.99.0.1"
TEST_SIX = "fd99::1"
_PREFIX = 24


def address(index: int) -> str:
    """Return the address of the cluster with a number from 1."""
    return f"10.99.0.{10 + index}"


def six(host: str) -> str:
    """Return the IPv6 address of a host with an IPv4 address on the test network."""
    return f"fd99::{host.rpartition('.')[2]}"


def make_lan(netns: str, *, both: bool = False) -> None:
    """Make the namespace with the bridge. Multicast is flooded, as on a plain switch, so that mDNS works.

    ``both``: the bridge has an IPv6 address as well.
    """
    run(["ip", "netns", "add", netns])
    _batch(
        netns,
        "link set lo up",
        "link add br0 type bridge mcast_snooping 0",
        "link set br0 up",
        f"addr add {TEST_ADDRESS}/{_PREFIX} dev br0",
        *((f"addr add {TEST_SIX}/64 dev br0 nodad",) if both else ()),
    )


def add_host(lan: str, netns: str, host: str, *, both: bool = False) -> None:
    """Make a namespace with one address on the bridge; its default route leads to the bridge, and there it ends.

    It forwards IPv4, as every node of Kubernetes has to before it is one: the plugin of pod networks would see to that
    only with the first pod. ``both``: it has the IPv6 address that goes with it as well, and such a default route.
    """
    run(["ip", "netns", "add", netns])
    port = f"p{host.rpartition('.')[2]}"
    _batch(lan, f"link add {port} type veth peer name eth0 netns {netns}", f"link set {port} master br0 up")
    _batch(
        netns,
        "link set lo up",
        f"addr add {host}/{_PREFIX} dev eth0",
        "link set eth0 up",
        f"route add default via {TEST_ADDRESS}",
        *((f"addr add {six(host)}/64 dev eth0 nodad", f"route add default via {TEST_SIX}") if both else ()),
    )
    run_in(netns, ["sysctl", "-qw", "net.ipv4.ip_forward=1"])


def remove(netns: str) -> None:
    """Remove a namespace by its name, if there is one; the kernel drops it with its last process."""
    if (NETNS / netns).exists():
        with contextlib.suppress(CommandFailed):
            run(["ip", "netns", "del", netns])


def _batch(netns: str, *commands: str) -> None:
    run(["ip", "-n", netns, "-batch", "-"], input="\n".join(commands) + "\n")
