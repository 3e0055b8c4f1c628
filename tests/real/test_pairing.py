"""Pairing by token, distrust and new keys, on two real clusters: each administrator acts on their own cluster only."""

from __future__ import annotations

import base64
import re
from functools import partial

from tests.real.daemons import Daemon
from tests.real.pair import PairTests
from tests.real.path import eventually, in_phase, node_ready, peer_of
from tests.testbed.process import CommandFailed


def sessions_of(daemon: Daemon) -> str:
    """Return the peers that a daemon says it has a session with."""
    items = daemon.cluster.get("foreignclusters")["items"]
    return " ".join(item["metadata"]["name"] for item in items if item["status"].get("phase") == "Ready")


class PairingTests(PairTests):
    """One token, one command, two virtual nodes."""

    def test_01_a_token_is_all_it_takes(self) -> None:
        """Rome's token makes milan its peer in both directions."""
        eventually("rome has a key", lambda: "liqo1." in self.rome.liqodctl("token", "create", "--ttl=10m"))
        text = self.rome.liqodctl("token", "create").split()[0]
        self.assertIn("trust each other", self.milan.liqodctl("peer", text, "--timeout=100", timeout=120))
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))
        seen = partial(peer_of, self.rome.cluster, "milan")
        eventually("the peer is shown as Ready", partial(in_phase, seen, "Ready"))
        self.assertIn("used", self.rome.liqodctl("token", "list"))
        with self.assertRaises(CommandFailed):
            self.rome.cluster.kubectl("get", "secret", "-n", "liqo-system", "liqod-invitation-milan")

    def test_02_distrust(self) -> None:
        """Distrust ends the guest's access at once: its token is worth nothing, its namespaces are gone."""
        milan = peer_of(self.rome.cluster, "milan")["metadata"]["name"]
        rome = peer_of(self.milan.cluster, "rome")["metadata"]["name"]
        url, token = self.credential(rome)
        asked = f"{url}/api/v1/namespaces/liqo-tenant-{milan}/serviceaccounts/borrower"
        eventually("the token is good", lambda: self.answer(asked, token) == "200")
        self.assertIn("has ended", self.rome.liqodctl("distrust", "milan", "--yes"))
        # The API server may believe a token for seconds after its account is gone: without rights, for nothing.
        eventually("the token is good for nothing", lambda: self.answer(asked, token) in ("401", "403"), 5)
        eventually("the token is dead", lambda: self.answer(asked, token) == "401")
        eventually("no session is shown", lambda: milan not in sessions_of(self.rome))
        with self.assertRaises(CommandFailed):
            self.rome.cluster.kubectl("get", "serviceaccount", "-n", f"liqo-tenant-{milan}", "borrower")

    def test_03_trust_again(self) -> None:
        """Trusted again by its key, it is a peer as before."""
        self.rome.liqodctl("trust", "milan", "--yes")
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))

    def test_04_a_new_key(self) -> None:
        """Rome gets another key: milan believes it on the word of the old one, and the virtual nodes stay the same."""
        ready = {daemon.name: partial(node_ready, daemon.cluster) for daemon in (self.rome, self.milan)}
        before = {name: eventually(f"the virtual node of {name} is Ready", ready[name]) for name in ready}
        said = self.rome.liqodctl("rotate-key", "--timeout=100", timeout=120)
        key = key_in(said)
        self.assertIn("done", said)
        eventually(
            "milan pins the new key",
            lambda: peer_of(self.milan.cluster, "rome")["spec"]["fingerprint"] == key and self.connected(),
        )
        for daemon in (self.rome, self.milan):
            now = eventually("the virtual node is Ready", ready[daemon.name])
            self.assertEqual(now["metadata"]["uid"], before[daemon.name]["metadata"]["uid"])

    def test_05_a_new_key_while_away(self) -> None:
        """Milan is away while rome's key changes: it refuses the new one until its administrator names it."""
        self.milan.stop()
        said = self.rome.liqodctl("rotate-key", "--now", "--timeout=60", timeout=120)
        self.assertIn("milan did not learn of it and must trust this cluster again", said)
        key = key_in(said)
        self.milan.start()
        eventually(
            "milan refuses the key",
            lambda: peer_of(self.milan.cluster, "rome")["status"]["reason"] == "ClusterIDRepetition",
        )
        self.milan.liqodctl("trust", "rome", "--fingerprint", key)
        eventually("they are connected again", self.connected)
        for daemon in (self.rome, self.milan):
            eventually("the virtual node is Ready", partial(node_ready, daemon.cluster))

    def connected(self) -> bool:
        """Tell whether both sides say that the peering is ready."""
        sides = ((self.rome, "milan"), (self.milan, "rome"))
        return all(peer_of(daemon.cluster, name)["status"]["phase"] == "Ready" for daemon, name in sides)

    def credential(self, rome: str) -> tuple[str, str]:
        """Return what milan holds for rome: URL and token."""
        secret = self.milan.cluster.get("secret", "-n", f"liqo-tenant-{rome}", "liqo-credential")
        data = {name: base64.b64decode(text).decode() for name, text in secret["data"].items()}
        return data["api-url"], data["token"]

    def answer(self, url: str, token: str) -> str:
        """Return the status with which rome's API server answers to the bearer of a token."""
        who = f"Authorization: Bearer {token}"
        return self.milan.cluster.run(["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", who, url])

    def test_06_end(self) -> None:
        """The peering ends from the guest's side as well."""
        self.assertIn("rome has ended it, too", self.milan.liqodctl("unpeer", "rome", "--yes", timeout=200))


def key_in(said: str) -> str:
    """Return the fingerprint in what ``rotate-key`` says at its end; progress before it speaks of keys as well."""
    found = re.search(r"^key +(sha256:[0-9a-f]{64})$", said, re.MULTILINE)
    assert found is not None, said
    return found[1]
