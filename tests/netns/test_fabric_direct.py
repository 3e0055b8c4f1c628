"""Pods of one home at two lenders talk by the tunnel between these: past home's host, and nobody else's pods do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from tests.netns.hosts import eventually
from tests.netns.test_fabric import PORT, TALK, FabricTests, end_process

OWN, GUEST, OTHER = 2, 11, 13
"""Pods on each lender's host, by the ends of their addresses: its own, one of a's, one of another tenant's."""
LENDERS = (("b", "c"), ("c", "b"))


class DirectTests(FabricTests):
    """The home a, its lenders b and c, which are peers; a tenant d at both, of which there is nothing else."""

    names: ClassVar[tuple[str, ...]] = ("a", "b", "c")
    options: ClassVar[dict[str, Any] | None] = {"policy": "closed", "direct": "agree"}

    def setUp(self) -> None:
        super().setUp()
        for at in ("b", "c"):
            for tenant, number in (("a", GUEST), ("d", OTHER)):
                namespace = self.hosts.grant(at, tenant)
                addresses = self._stack.enter_context(self.hosts.second_pod(at, number))
                self.serve(self.hosts.in_second_pod(at, number))
                self.hosts.add_pod(at, f"guest{number}", *addresses, namespace=namespace, shadow=True)
        # All begin at once, so that each may have chosen what home chose for it.
        self.hosts.remap("b", "c", "10.140.0.0/16", "10.141.0.0/20")
        self.hosts.remap("c", "b", "10.142.0.0/16", "10.143.0.0/20")
        eventually("the new views", self.remapped)
        self.hosts.nft(
            "a",
            "table inet ear { chain in { type filter hook prerouting priority -300; "
            'iifname "liqod" meta l4proto tcp counter; }; '
            'chain out { type filter hook postrouting priority 300; oifname "liqod" meta l4proto tcp counter; }; }',
        )

    def remapped(self) -> bool:
        """Tell whether both tunnels are up by the networks that were chosen last."""
        for at, peer in LENDERS:
            config = self.hosts.kubectl_get(peer, f"/apis/net.liqo.io/v1alpha1/networkconfigs/{at}")
            if not config["status"]["ack"]["podCIDRs"][0].startswith("10.14"):
                return False
        return self.hosts.connected(*LENDERS)

    def serve(self, inside: Sequence[str]) -> None:
        """Have something answer in a pod."""
        server = subprocess.Popen([*inside, sys.executable, TALK, "serve", PORT], stdout=subprocess.PIPE)
        self._stack.callback(end_process, server)
        assert server.stdout is not None
        server.stdout.readline()

    def question(self, at: str, caller: int, peer: str, server: int) -> list[str]:
        """Return the command by which a pod at one lender calls a pod at the other."""
        address = self.hosts.by(at, peer, f"10.201.0.{server}")
        words = (sys.executable, TALK, "ask", address, PORT, "1000")
        return self.hosts.in_pod(at, *words) if caller == OWN else self.hosts.in_second_pod(at, caller, *words)

    def call(self, at: str, caller: int, peer: str, server: int) -> str:
        """Have a pod at one lender call a pod at the other; returns whom the server saw."""
        answer = json.loads(self.hosts.output(self.question(at, caller, peer, server)))
        self.assertTrue(answer["whole"])
        return str(answer["seen"])

    def answers(self, at: str, peer: str) -> bool:
        """Tell whether the pod of a at one lender reaches the one at the other."""
        return bool(self.call(at, GUEST, peer, GUEST))

    def is_silent(self, at: str, peer: str) -> bool:
        """Tell whether it does not."""
        try:
            self.answers(at, peer)
        except AssertionError:
            return True
        return False

    def refused(self, pairs: Sequence[tuple[int, int]] = ((GUEST, GUEST),)) -> None:
        """Make sure that no pod of such pairs gets an answer, in neither direction; all ask at once."""
        running = {
            (at, *pair): subprocess.Popen(self.question(at, pair[0], peer, pair[1]), stderr=subprocess.PIPE, text=True)
            for at, peer in LENDERS
            for pair in pairs
        }
        said = {case: process.communicate(timeout=60)[1] for case, process in running.items()}
        for case, words in said.items():
            self.assertRegex(words, "TimeoutError|timed out|ConnectionRefusedError|No route to host", str(case))

    def carried_out(self, at: str, peer: str, homes: list[str]) -> bool:
        """Tell whether a gateway says for which homes it lets pods through."""
        said: list[str] = self.hosts.tunnel(at, peer).get("direct", [])
        return said == homes

    def connect_both(self) -> None:
        """Have both lenders agree, and wait until their gateways carry it out."""
        for at, peer in LENDERS:
            self.hosts.connect_directly(at, peer, "a")
        for at, peer in LENDERS:
            eventually(f"rules at {at}", partial(self.carried_out, at, peer, ["a"]))

    def past_home(self) -> str:
        """Return what home's device has counted of TCP."""
        return self.hosts.output(self.hosts.inside("a", "nft", "list", "table", "inet", "ear"))

    def test_past_home(self) -> None:
        """Both ways, by the addresses of both lenders; not one segment passes home's device."""
        self.refused()
        self.connect_both()
        for at, peer in LENDERS:
            eventually(f"an answer to {at}", partial(self.answers, at, peer))
            self.assertEqual(self.call(at, GUEST, peer, GUEST), self.hosts.by(peer, at, f"10.201.0.{GUEST}"))
        self.assertEqual(self.past_home().count("counter packets 0 bytes 0"), 2, self.past_home())

    def test_nobody_else(self) -> None:
        """Neither pods of another tenant, nor the lender's own, in either role, at either end."""
        self.connect_both()
        for at, peer in LENDERS:
            eventually(f"an answer to {at}", partial(self.answers, at, peer))
        self.refused(((OTHER, GUEST), (GUEST, OTHER), (OTHER, OTHER), (OWN, GUEST), (GUEST, OWN)))

    def test_one_end_alone(self) -> None:
        """Nothing passes while one lender has not agreed, or does not know that the other one did."""
        self.hosts.connect_directly("b", "c", "a")
        eventually("rules at b", partial(self.carried_out, "b", "c", ["a"]))
        self.refused()
        self.hosts.connect_directly("c", "b", "a", confirmed=False)
        self.refused()
        self.assertTrue(self.carried_out("c", "b", []))

    def test_an_end(self) -> None:
        """When one lender ends it nothing new passes, while both tunnels stay up."""
        self.connect_both()
        eventually("an answer", partial(self.answers, "b", "c"))
        self.hosts.end_directly("c", "b")
        eventually("no rules at c", partial(self.carried_out, "c", "b", []))
        for at, peer in LENDERS:
            eventually(f"no answer to {at}", partial(self.is_silent, at, peer))
        self.assertTrue(self.hosts.connected(*LENDERS))
