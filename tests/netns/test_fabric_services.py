"""A pod of home in another cluster calls home's Services by their own addresses; nobody else reaches them so.

All clusters have the same networks of pods and of Services, as those made by one installer have.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from tests.netns.hosts import eventually
from tests.netns.test_fabric import PORT, TALK, FabricTests, end_process

SECOND = "a2"
OWN, ONE, TWO, OTHER = 2, 11, 12, 13
"""Pods on the host a, by the ends of their addresses: its own, two of b, one of c."""
SERVICE, SERVICE_SIX = "10.96.7.7", "fd00:96::77"
"""A Service of b whose endpoint is its pod."""
AWAY = "10.96.7.8"
"""A Service of b whose endpoint is TWO, in the other cluster."""
API = "10.96.0.1"
"""A Service of b whose endpoint is its host."""
BOTH = "10.96.7.9"
"""A Service of b, and another one of a that b's pods use."""
NONE = "10.97.9.9"
"""No Service, and an address of a machine beside the hosts."""


class ServiceTests(FabricTests):
    """The lender a has two hosts, and pods of its own, of b and of c."""

    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    nodes: ClassVar[dict[str, str]] = {SECOND: "a"}
    dual: ClassVar[bool] = True
    options: ClassVar[dict[str, Any] | None] = {
        "policy": "closed",
        "service_cidrs": ["10.96.0.0/15", "fd00:96::/112"],
    }

    def setUp(self) -> None:
        super().setUp()
        for peer, numbers in (("b", (ONE, TWO)), ("c", (OTHER,))):
            namespace = self.hosts.grant("a", peer)
            for number in numbers:
                addresses = self._stack.enter_context(self.hosts.second_pod("a", number))
                self.serve(self.hosts.in_second_pod("a", number))
                self.hosts.add_pod("a", f"guest{number}", *addresses, namespace=namespace, shadow=True)
                self.hosts.add_pod(peer, f"away{number}", *(self.hosts.by(peer, "a", one) for one in addresses))
        far = ("10.201.1.2", "fd00:201:0:1::2")
        self.hosts.add_pod("a", "far", *far, namespace="of-b", shadow=True)
        self.hosts.add_pod("b", "away-far", *(self.hosts.by("b", "a", one) for one in far))
        self.serve(self.hosts.lan.inside("b"))
        # What kube-proxy does: it translates the destination, and the source of what comes from no pod of the cluster.
        elsewhere = self.hosts.by("b", "a", f"10.201.0.{TWO}")
        endpoints = {SERVICE: "10.201.0.2", AWAY: elsewhere, API: self.hosts.lan.addresses["b"], BOTH: "10.201.0.2"}
        rules = "".join(f"ip daddr {one} dnat to {real}; " for one, real in endpoints.items())
        self.hosts.nft(
            "b",
            "table ip proxy { "
            f"chain out {{ type nat hook prerouting priority dstnat; policy accept; {rules}}}; "
            "chain back { type nat hook postrouting priority srcnat; policy accept; "
            "ct status dnat ct original ip daddr 10.96.0.0/15 ip saddr != 10.201.0.0/16 masquerade; }; }",
        )
        self.hosts.nft(
            "b",
            "table ip6 proxy { chain out { type nat hook prerouting priority dstnat; policy accept; "
            f"ip6 daddr {SERVICE_SIX} dnat to fd00:201::2; }}; }}",
        )
        self.hosts.nft(
            "a",
            "table ip proxy { chain out { type nat hook prerouting priority dstnat; policy accept; "
            f"ip daddr {BOTH} dnat to 10.201.0.{TWO}; }}; }}",
        )

    def serve(self, inside: Sequence[str]) -> None:
        """Have something answer in a pod or on a host."""
        server = subprocess.Popen([*inside, sys.executable, TALK, "serve", PORT], stdout=subprocess.PIPE)
        self._stack.callback(end_process, server)
        assert server.stdout is not None
        server.stdout.readline()

    def call(self, caller: int | str, address: str) -> str:
        """Have a pod call an address; returns whom the server saw."""
        if isinstance(caller, str) or caller == OWN:
            inside = self.hosts.in_pod("a" if caller == OWN else str(caller))
        else:
            inside = self.hosts.in_second_pod("a", caller)
        answer = json.loads(self.hosts.output([*inside, sys.executable, TALK, "ask", address, PORT, "1000"]))
        self.assertTrue(answer["whole"])
        return str(answer["seen"])

    def served(self, caller: int | str, address: str) -> str:
        """Wait until a call is answered; returns whom the server saw."""
        seen: list[str] = []

        def answered() -> bool:
            seen.append(self.call(caller, address))
            return True

        eventually(f"an answer from {address}", answered)
        return seen[-1]

    def refused(self, caller: int | str, address: str) -> None:
        """Make sure that a pod gets no answer."""
        with self.assertRaises(AssertionError):
            self.call(caller, address)

    def test_services_of_home(self) -> None:
        """Pods on both hosts reach them, wherever the endpoint is: a pod of home, its host, a pod beside the caller.

        An address that both clusters have is the lender's while home's pods use that Service there, and else home's.
        Pods of home that are in no offloaded namespace call those in the other cluster, and these call them.
        """
        for caller in (ONE, TWO, SECOND):
            for address in (SERVICE, SERVICE_SIX, API, AWAY):
                self.served(caller, address)
        # Where the caller is known its own address is kept, as between any pods.
        self.assertEqual(self.served(ONE, SERVICE_SIX), self.hosts.by("b", "a", f"fd00:201::{ONE}"))
        self.assertNotEqual(self.served(ONE, BOTH), f"10.201.0.{ONE}")
        self.hosts.add_service("a", "shop", BOTH, namespace="of-b", origin="b")
        eventually("the lender's own Service", lambda: self.call(ONE, BOTH) == f"10.201.0.{ONE}")
        self.hosts.delete_service("a", "shop", namespace="of-b")
        eventually("home's Service", lambda: self.call(ONE, BOTH) != f"10.201.0.{ONE}")
        self.served("b", self.hosts.by("b", "a", f"10.201.0.{ONE}"))
        self.served(ONE, self.hosts.seen("a", "b"))

    def test_nobody_else(self) -> None:
        """Neither the lender's own pods nor those of another home reach them, by whatever address."""
        self.served(ONE, SERVICE)
        config = self.hosts.kubectl_get("a", "/apis/net.liqo.io/v1alpha1/networkconfigs/b")
        by_range = config["spec"]["remap"]["serviceCIDRs"][0].partition("/")[0].rpartition(".")[0].split(".")
        seen = ".".join([by_range[0], by_range[1], "7", "7"])
        for caller in (OWN, OTHER):
            for address in (SERVICE, SERVICE_SIX, API, seen, self.hosts.seen("a", "b")):
                self.refused(caller, address)
        # What no Service of home has goes nowhere, though home's host has a way to it.
        on_lan = ["ip", "-n", self.hosts.lan.namespace("lan")]
        self.hosts.output([*on_lan, "address", "add", f"{NONE}/32", "dev", "br0"])
        caller_here = self.hosts.by("b", "a", f"10.201.0.{ONE}")
        self.hosts.output([*on_lan, "route", "add", caller_here, "via", self.hosts.lan.addresses["b"]])
        self.serve(self.hosts.lan.inside("lan"))
        self.assertTrue(self.call("b", NONE))
        self.refused(ONE, NONE)
