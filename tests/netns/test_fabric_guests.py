"""Two pods of a home cluster at one lender call each other by the addresses that home shows; nobody else is led so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from tests.netns.hosts import eventually
from tests.netns.test_fabric import PORT, TALK, FabricTests, end_process

SECOND = "a2"
OWN, ONE, TWO, OTHER, ELSE = 2, 11, 200, 13, 14
"""Pods on the host a, by the ends of their addresses: its own, two guests of b, two of c."""
SERVICE = "10.96.0.200"
"""An address of a's services, whose end is that of a guest of b."""
SERVED_BY = "10.201.0.2"
MACHINE = "10.98.0.200"
"""A machine beside the hosts, the end of its address the same again."""
SHARED = "10.120.0.0/16"


class GuestTests(FabricTests):
    """The lender a has two hosts, and pods of its own, of b and of c; all clusters have the same pod network."""

    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    nodes: ClassVar[dict[str, str]] = {SECOND: "a"}
    dual: ClassVar[bool] = True
    options: ClassVar[dict[str, Any] | None] = {"policy": "closed", "service_cidrs": ["10.96.0.0/16"]}

    def setUp(self) -> None:
        super().setUp()
        for peer, numbers in (("b", (ONE, TWO)), ("c", (OTHER, ELSE))):
            namespace = self.hosts.grant("a", peer)
            for number in numbers:
                addresses = self._stack.enter_context(self.hosts.second_pod("a", number))
                self.serve(self.hosts.in_second_pod("a", number))
                self.hosts.add_pod("a", f"guest{number}", *addresses, namespace=namespace, shadow=True)
        self.hosts.add_pod("a", "far", "10.201.1.2", "fd00:201:0:1::2", namespace="of-b", shadow=True)
        # What a lender runs itself in such a namespace is no guest.
        self.hosts.add_pod("a", "own", SERVED_BY, namespace="of-b")

    def serve(self, inside: Sequence[str]) -> None:
        """Have something answer in a pod."""
        server = subprocess.Popen([*inside, sys.executable, TALK, "serve", PORT], stdout=subprocess.PIPE)
        self._stack.callback(end_process, server)
        assert server.stdout is not None
        server.stdout.readline()

    def inside(self, caller: int | str) -> list[str]:
        """Return what to put before a command line to have it run in a pod: by the end of its address, or its host."""
        if isinstance(caller, str) or caller == OWN:
            return self.hosts.in_pod("a" if caller == OWN else str(caller))
        return self.hosts.in_second_pod("a", caller)

    def call(self, caller: int | str, address: str) -> str:
        """Have a pod call an address; returns whom the server saw."""
        words = [*self.inside(caller), sys.executable, TALK, "ask", address, PORT, "1000"]
        answer = json.loads(self.hosts.output(words))
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

    def refused(self, caller: int, address: str) -> None:
        """Make sure that a pod gets no answer."""
        with self.assertRaises(AssertionError):
            self.call(caller, address)

    def test_guests_of_one_home(self) -> None:
        """Each calls the other, itself, and one on the second host, by IPv4 and IPv6; the caller's address is kept."""
        for ending in ("10.201.0.{}", "fd00:201::{}"):
            two = self.hosts.by("b", "a", ending.format(TWO))
            self.assertNotEqual(two, ending.format(TWO))
            self.assertEqual(self.served(ONE, two), ending.format(ONE))
            self.served(TWO, two)
        far = self.hosts.by("b", "a", "10.201.1.2")
        self.served(ONE, far)
        self.served(SECOND, self.hosts.by("b", "a", f"10.201.0.{ONE}"))
        # By the tunnel nothing is different: home calls the same addresses.
        self.hosts.offload("b", "a")
        self.served("b", self.hosts.by("b", "a", f"10.201.0.{TWO}"))

    def test_nobody_else(self) -> None:
        """Neither the lender's own pods nor those of another home are led to a guest, though the ranges are equal.

        Where a peer says that it sees our pods as our services, or hosts, or as another peer, that means what it meant.
        """
        two, other = (self.hosts.by("b", "a", f"10.201.0.{TWO}"), self.hosts.by("c", "a", f"10.201.0.{OTHER}"))
        self.served(ONE, two)
        self.served(ELSE, other)
        for caller in (OWN, OTHER):
            self.refused(caller, two)
        self.hosts.nft(
            "a",
            "table ip services { chain out { type nat hook prerouting priority dstnat; policy accept; "
            f"ip daddr {SERVICE} dnat to {SERVED_BY}; }}; }}",
        )
        for peer in ("b", "c"):
            # Their own networks of Services have that address too: it is the lender's for those that use it there.
            self.hosts.add_service("a", "used", SERVICE, namespace=f"of-{peer}", origin=peer)
        lan = self.hosts.lan.namespace("lan")
        self.hosts.output(["ip", "-n", lan, "address", "add", f"{MACHINE}/24", "dev", "br0"])
        self.serve(self.hosts.lan.inside("lan"))
        config = self.hosts.kubectl_get("a", "/apis/net.liqo.io/v1alpha1/networkconfigs/b")
        six = config["status"]["ack"]["podCIDRs"][1]
        seen_here = config["spec"]["remap"]["podCIDRs"][0]
        with self.hosts.silent():
            for taken in ("10.96.0.0/16", "10.98.0.0/16", seen_here):
                self.hosts.claim_view("a", "b", [taken, six])
                eventually("the new view", partial(self.follows, taken))
                eventually("no rule that leads to a pod by it", self.leads_to_none)
                for caller in (ONE, OTHER, OWN):
                    if caller != OWN:
                        eventually("the lender's Service", partial(self.is_served, caller))
                    self.assertEqual(self.call(caller, MACHINE), self.hosts.lan.addresses["a"])
            # One range, seen so by two homes, is two things: each home's pods are led to its own.
            for peer in ("b", "c"):
                self.hosts.claim_view("a", peer, [SHARED, six])
            for caller, server in ((ONE, TWO), (ELSE, OTHER)):
                answer = self.served(caller, f"10.120.0.{server}")
                self.assertEqual(answer, f"10.201.0.{caller}")
            for caller, server in ((OTHER, TWO), (OWN, TWO), (ONE, OTHER), (OWN, OTHER)):
                self.refused(caller, f"10.120.0.{server}")

    def follows(self, network: str) -> bool:
        """Tell whether the lender's host follows what b says that it sees: the record is written after the kernel."""
        tunnel = self.hosts.kubectl_get("a", "/apis/net.liqo.io/v1alpha1/tunnelendpoints/b")
        return bool(tunnel["spec"]["localSeen"]["podCIDRs"][0] == network)

    def is_served(self, caller: int) -> bool:
        """Tell whether the Service's endpoint answers a pod, once the host follows that it is one of those it uses."""
        return self.service_of(caller) == SERVED_BY

    def leads_to_none(self) -> bool:
        """Tell whether no rule on the lender's host leads to the pod."""
        return f" : 10.201.0.{TWO}" not in self.rules()

    def rules(self) -> str:
        """Return the rules on the lender's host."""
        return self.hosts.output(self.hosts.inside("a", "nft", "list", "table", "inet", "liqod"))

    def service_of(self, caller: int) -> str:
        """Return who answers a pod at the service's address: whose server says so is the lender's own pod."""
        flow = [*self.inside(caller), sys.executable, TALK, "ask", SERVICE, PORT, "1000"]
        self.hosts.output(flow)
        listed = self.hosts.output(
            self.hosts.inside("a", "conntrack", "-L", "--orig-dst", SERVICE, "--orig-src", f"10.201.0.{caller}")
        )
        replies = {line.split("src=")[2].split()[0] for line in listed.splitlines() if "src=" in line}
        self.assertEqual(len(replies), 1, listed)
        return replies.pop()
