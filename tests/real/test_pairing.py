"""Pairing by token, and DNS-SD records, on two real clusters: each administrator acts on their own cluster only."""

from __future__ import annotations

from functools import partial

from tests.real.pair import PairTests
from tests.real.path import eventually, node_ready, peer_of
from tests.testbed.process import CommandFailed


class PairingTests(PairTests):
    """One token, one command, two virtual nodes."""

    def test_01_a_token_is_all_it_takes(self) -> None:
        """Rome's token makes milan its peer in both directions."""
        eventually("rome has a key", lambda: "liqo1." in self.rome.liqodctl("token", "create", "--ttl=10m"), 60)
        text = self.rome.liqodctl("token", "create").split()[0]
        self.assertIn("trust each other", self.milan.liqodctl("peer", text, "--timeout=30"))
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))
        self.assertEqual(peer_of(self.rome.cluster, "milan")["status"]["phase"], "Ready")
        self.assertIn("used", self.rome.liqodctl("token", "list"))
        with self.assertRaises(CommandFailed):
            self.rome.cluster.kubectl("get", "secret", "-n", "liqo-system", "liqod-invitation-milan")

    def test_02_distrust(self) -> None:
        """Distrust ends the guest's access at once: its token is worth nothing, its namespaces are gone."""
        milan = peer_of(self.rome.cluster, "milan")["metadata"]["name"]
        self.assertIn("has ended", self.rome.liqodctl("distrust", "milan", "--yes"))
        with self.assertRaises(CommandFailed):
            self.rome.cluster.kubectl("get", "serviceaccount", "-n", f"liqo-tenant-{milan}", "borrower")

    def test_03_trust_again(self) -> None:
        """Trusted again by its key, it is a peer as before."""
        self.rome.liqodctl("trust", "milan", "--yes")
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))

    def test_04_end(self) -> None:
        """The peering ends from the guest's side as well."""
        self.assertIn("rome knows", self.milan.liqodctl("unpeer", "rome", "--yes", timeout=200))
