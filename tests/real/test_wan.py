"""Peers that no multicast reaches: found by DNS-SD at a real name server, or named by hand."""

from __future__ import annotations

import atexit
import time
from functools import partial
from typing import Any, Final

from tests.discovery import nsd
from tests.real.daemons import Daemon
from tests.real.pair import PairTests
from tests.real.path import deployment, enabled_namespace, eventually, node_ready, offloaded
from tests.testbed import process
from tests.testbed.lan import TEST_ADDRESS

DOMAIN: Final = "clusters.example.com"
ZONE: Final = """\
{domain}. 300 IN SOA ns.{domain}. admin.{domain}. 1 3600 600 86400 60
{domain}. 300 IN NS ns.{domain}.
ns.{domain}. 300 IN A {address}
"""
APP: Final = "web"
SECONDS: Final = 6.0
"""Longer than neighbours take to see each other by mDNS, where it is on."""


class WanDaemon(Daemon):
    """A daemon that announces itself to nobody, and asks the name server of the test network about domains."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        text, line = self.config.read_text(), 'interfaces = ["eth0"]\n'
        self.config.write_text(text.replace(line, f'{line}mdns = false\ndns-servers = ["{TEST_ADDRESS}"]\n'))


class FarTests(PairTests):
    """Two clusters that do not see each other by themselves; without steps of its own."""

    daemon_class = WanDaemon

    def nobody_is_seen(self) -> None:
        """Have no peer show up for a while, at neither side, while both daemons would see one."""
        for daemon in (self.rome, self.milan):
            eventually(f"the daemon of {daemon.name} is ready", partial(self.is_up, daemon))
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            for daemon in (self.rome, self.milan):
                self.assertEqual(daemon.cluster.get("fc")["items"], [])
            time.sleep(0.5)

    def is_up(self, daemon: Daemon) -> bool:
        """Tell whether a daemon listens to peers, and has begun to look for them."""
        return "liqod is ready" in daemon.log.read_text()

    def peer(self, daemon: Daemon) -> dict[str, Any]:
        """Return the record of the only peer of a cluster; LookupError while there is none."""
        found = daemon.cluster.get("fc")["items"]
        if not found:
            raise LookupError(f"{daemon.name} knows no peer")
        (one,) = found
        return dict(one)

    def stranger(self, daemon: Daemon) -> dict[str, Any]:
        """Wait until a cluster knows its peer and does not trust it, and return the record."""

        def known() -> dict[str, Any] | None:
            record = self.peer(daemon)
            return record if record.get("status", {}).get("phase") == "TrustPending" else None

        return dict(eventually(f"{daemon.name} knows a stranger", known))

    def trust(self, daemon: Daemon, how: str = "--yes") -> None:
        """Have a cluster's administrator trust its peer."""
        daemon.liqodctl("trust", self.stranger(daemon)["metadata"]["name"], how)

    def offload(self) -> None:
        """Have a pod of rome run at milan."""
        eventually("the virtual node is Ready", partial(node_ready, self.rome.cluster))
        self.rome.cluster.apply(enabled_namespace(), deployment(APP, 1))
        eventually("the pod runs at milan", lambda: offloaded(self.rome.cluster, self.milan.cluster, APP, 1))


class DnsTests(FarTests):
    """Rome looks in a domain that a name server serves; milan's records are in it."""

    def test_01_nobody_is_seen(self) -> None:
        """Without multicast and without a domain neither finds the other."""
        nsd.program()
        self.nobody_is_seen()

    def test_02_found_in_a_domain(self) -> None:
        """A SearchDomain is all that rome needs: it finds milan by the records there, and believes nothing yet."""
        testbed = self._testbed
        assert testbed is not None
        address = f"--address={self.milan.cluster.address}"
        zone = ZONE.format(domain=DOMAIN, address=TEST_ADDRESS)
        zone += self.milan.liqodctl("dns-records", DOMAIN, address, "--ttl=60")
        directory = testbed.directory / "nsd"
        command = nsd.furnish(directory, TEST_ADDRESS, 53, DOMAIN, zone)
        atexit.register(process.spawn_in(testbed.lan, command, log=directory / "nsd.log").stop)
        domain = {
            "apiVersion": "discovery.liqo.io/v1alpha1",
            "kind": "SearchDomain",
            "metadata": {"name": "wan"},
            "spec": {"domain": DOMAIN},
        }
        self.rome.cluster.apply(domain)
        found = eventually(
            "milan is found in the domain",
            lambda: self.rome.cluster.get("searchdomain", "wan").get("status", {}).get("found"),
        )
        record = self.stranger(self.rome)
        self.assertEqual([one["clusterID"] for one in found], [record["metadata"]["name"]])
        self.assertEqual({one["source"] for one in record["status"]["endpoints"]}, {"DNS-SD"})
        self.assertFalse(record["spec"].get("fingerprint"))

    def test_03_trusted_and_used(self) -> None:
        """Trusted by both administrators, as any other: a pod of rome runs at milan."""
        self.trust(self.rome)
        self.trust(self.milan)
        self.offload()


class ManualTests(FarTests):
    """Rome's administrator names milan's address."""

    def test_by_hand(self) -> None:
        """The command shows the words of the key at the address, which both administrators compare; then a pod runs."""
        self.nobody_is_seen()
        said = self.rome.liqodctl("peer", self.milan.cluster.address)
        record = self.stranger(self.rome)
        self.assertIn(f"at {self.milan.cluster.address}:5872 is {record['metadata']['name']}", said)
        self.assertEqual([one["source"] for one in record["spec"]["endpoints"]], ["Manual"])
        shown = {line.split()[0]: line for line in said.splitlines() if line.strip()}
        words = shown["words"].split(maxsplit=1)[1]
        self.trust(self.rome, f"--words={words}")
        self.trust(self.milan, f"--words={self.stranger(self.milan)['status']['words']}")
        self.offload()
