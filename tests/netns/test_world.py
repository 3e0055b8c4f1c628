"""Three clusters on two LANs: each pair finds and trusts each other in a way of its own, and all lend to all."""

from __future__ import annotations

import contextlib
import datetime
from itertools import permutations
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.discovery import nsd
from tests.environment import require
from tests.identity.tls_pair import DAY, Authority
from tests.netns.world import FOREIGN, World, missing
from tests.testbed import process

DOMAIN = "clusters.example.com"
QUIET_DNS = """\
{domain}. 300 IN SOA ns.{domain}. admin.{domain}. 1 3600 600 86400 60
{domain}. 300 IN NS ns.{domain}.
ns.{domain}. 300 IN A {address}
"""


class WorldTests(SynchronousTestCase):
    """Turin and Asti on one LAN, Genoa on another, a name server beside it, a router between them."""

    def setUp(self) -> None:
        require(missing("nsd"))
        self._stack = contextlib.ExitStack()
        self.addCleanup(self._stack.close)
        self.world = self._stack.enter_context(World({"turin": 1, "asti": 1, "genoa": 2}, {"names": 2}))

    def test_three_ways_to_find_three_ways_to_trust_six_directions(self) -> None:
        """mDNS with a common CA, DNS-SD with a pairing token, by hand with compared words; then all lend to all."""
        world = self.world
        self._configure()
        try:
            world.start(*world.clusters)
            self._by_mdns_and_authority()
            self._by_dns_and_token()
            self._by_hand_and_words()
            world.peered(*permutations(world.clusters, 2))
            for name, peer in permutations(world.clusters, 2):
                self.assertEqual(world.condition(name, peer, "Accepted")["reason"], "Accepted", (name, peer))
                self.assertEqual(world.condition(name, peer, "Lending")["status"], "True", (name, peer))
            self._each_at_home()
        except BaseException:
            world.tell()
            raise

    def _configure(self) -> None:
        """Turin and Asti hold certificates of one CA; Genoa, and the third way of both, know nothing of it."""
        now = datetime.datetime.now(datetime.UTC)
        authority = Authority("the region's CA", now=now)
        (self.world.directory / "ca.pem").write_bytes(authority.pem)
        for name in ("turin", "asti"):
            pair = authority.issue(self.world.id(name), start=now - DAY, end=now + DAY)
            files = {kind: self.world.directory / f"{name}.{kind}" for kind in ("crt", "key")}
            files["crt"].write_bytes(pair.certificate_pem)
            _write_private(files["key"], pair.key_pem)
            identity = f'[identity]\ncertificate = "{files["crt"]}"\nkey = "{files["key"]}"\n'
            identity += f'ca = "{self.world.directory / "ca.pem"}"\n'
            servers = f'dns-servers = ["{self.world.address("names")}"]'
            self.world.configure(name, identity, servers if name == "turin" else "")
        self.world.configure("genoa")

    def _by_mdns_and_authority(self) -> None:
        """Neighbours see each other by multicast, and trust what their CA signed; nobody says anything."""
        world = self.world
        world.peered(("turin", "asti"), ("asti", "turin"))
        for name, peer in (("turin", "asti"), ("asti", "turin")):
            self.assertEqual({one["source"] for one in world.status(name, peer)["endpoints"]}, {"mDNS"})
            self.assertEqual(world.callers(name), set(), "no administrator had to do anything")
            self.assertEqual([one["metadata"]["name"] for one in world.get(name, FOREIGN)["items"]], [world.id(peer)])

    def _by_dns_and_token(self) -> None:
        """Turin finds Genoa in a domain that a real name server serves, and enters with a token of Genoa's."""
        world = self.world
        lines = world.ctl("genoa", "dns-records", DOMAIN, f"--address={world.address('genoa')}", "--ttl=60")
        zone = QUIET_DNS.format(domain=DOMAIN, address=world.address("names")) + lines
        command = nsd.furnish(world.directory / "nsd", world.address("names"), 53, DOMAIN, zone)
        server = process.spawn_in(world.namespace("names"), command, log=world.directory / "nsd.log")
        self._stack.callback(server.stop)
        domain = {
            "apiVersion": "discovery.liqo.io/v1alpha1",
            "kind": "SearchDomain",
            "metadata": {"name": "wan"},
            "spec": {"domain": DOMAIN},
        }
        path = "/apis/discovery.liqo.io/v1alpha1/searchdomains"
        world.ask("turin", "POST", path, domain)
        world.eventually(
            "turin finds genoa in the domain",
            lambda: [one["clusterID"] for one in world.get("turin", f"{path}/wan")["status"].get("found", [])],
        )
        self.assertEqual(world.get("turin", f"{path}/wan")["status"]["found"][0]["clusterID"], world.id("genoa"))
        world.phase("turin", "genoa", "TrustPending")
        self.assertEqual({one["source"] for one in world.status("turin", "genoa")["endpoints"]}, {"DNS-SD"})
        self.assertFalse(world.record("turin", "genoa")["spec"].get("fingerprint"), "nothing is believed for that")
        token = world.ctl("genoa", "token", "create").split()[0]
        self.assertIn("both clusters trust each other", world.ctl("turin", "peer", token))

    def _by_hand_and_words(self) -> None:
        """Asti's administrator names Genoa's address; both compare words and trust."""
        world = self.world
        said = world.ctl("asti", "peer", world.address("genoa"))
        self.assertIn(f"at {world.address('genoa')}:5872 is {world.id('genoa')}", said)
        self.assertEqual(world.record("asti", "genoa")["spec"]["endpoints"][0]["source"], "Manual")
        shown = {line.split()[0]: line for line in said.splitlines() if line.strip()}
        words = shown["words"].split(maxsplit=1)[1]
        world.phase("asti", "genoa", "TrustPending")
        world.ctl("asti", "trust", world.id("genoa"), f"--words={words}")
        world.phase("genoa", "asti", "TrustPending")
        self.assertRaises(LookupError, world.node, "asti", "genoa")
        other = world.status("genoa", "asti")["words"]
        world.ctl("genoa", "trust", "asti", f"--words={other}")

    def _each_at_home(self) -> None:
        """Each API server was spoken to by its own administrator alone, and nobody holds another's kubeconfig."""
        world = self.world
        for name in world.clusters:
            self.assertEqual(world.callers(name), {world.address(name)})
            others = {world.address(other) for other in world.clusters if other != name}
            kubeconfig = (world.directory / f"{name}.kubeconfig").read_text()
            self.assertFalse([address for address in others if address in kubeconfig])


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
