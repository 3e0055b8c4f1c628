"""Candidates, TXT records, configured peers and the choice of interfaces: the pure part of discovery."""

from __future__ import annotations

import ipaddress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.config.schema import PeerSettings
from liqod.discovery import manual
from liqod.discovery.candidate import (
    MAX_ADDRESSES,
    Announcement,
    BadRecord,
    Candidate,
    TxtRecord,
    candidates_of,
    from_txt,
    instance_label,
    to_txt,
)
from liqod.discovery.interfaces import IFF_LOOPBACK, IFF_MULTICAST, IFF_POINTOPOINT, IFF_UP, Interface, choose

FINGERPRINT = "sha256:" + "ab" * 32
ME = Announcement("0a1b2c3d-0000-4000-8000-000000000001", "turin", FINGERPRINT, 5872)


def encoded(record: dict[str, str]) -> dict[bytes, bytes | None]:
    """Return a record as the network library hands it over."""
    return {key.encode(): value.encode() for key, value in record.items()}


class RecordTests(SynchronousTestCase):
    """TXT records."""

    def test_round_trip(self) -> None:
        """What one cluster announces is what another reads."""
        self.assertEqual(from_txt(encoded(to_txt(ME))), TxtRecord(ME.cluster_id, "turin", FINGERPRINT))

    def test_name_and_fingerprint_may_be_missing(self) -> None:
        """They are only hints; unknown keys are skipped."""
        self.assertEqual(from_txt({b"id": b"x", b"proto": b"1", b"new": None}), TxtRecord("x", "", ""))

    def test_a_range_of_protocols_counts_when_ours_is_in_it(self) -> None:
        """A later release announces all the major versions it speaks; without ours it is not worth dialling."""
        for text, worth in (("1", True), ("1-2", True), ("0-1", True), ("2-3", False), ("2", False), ("2-1", False)):
            record = {b"id": b"x", b"proto": text.encode()}
            if worth:
                self.assertEqual(from_txt(record).cluster_id, "x", text)
            else:
                self.assertRaises(BadRecord, from_txt, record)

    def test_hostile_records_are_refused(self) -> None:
        """Every field has its shape, and the record its size."""
        good = encoded(to_txt(ME))
        for change in (
            {b"proto": b"2"},
            {b"proto": None},
            {b"proto": b"1-"},
            {b"proto": b"0-99999"},
            {b"id": None},
            {b"id": b""},
            {b"id": b"../../etc"},
            {b"id": b"A"},
            {b"id": "é".encode()},
            {b"name": b"a\nb"},
            {b"name": b"n" * 64},
            {b"fp": b"sha256:00"},
            {b"fp": b"\xff"},
            {b"filler": b"x" * 1200},
        ):
            with self.assertRaises(BadRecord, msg=str(change)):
                from_txt({**good, **change})

    @given(st.dictionaries(st.binary(max_size=20), st.none() | st.binary(max_size=300), max_size=8))
    @settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    def test_any_record(self, record: dict[bytes, bytes | None]) -> None:
        """Nothing but BadRecord comes out of any record."""
        for one in (record, {**record, b"proto": b"1"}, {**record, b"proto": b"1", b"id": b"x"}):
            try:
                from_txt(one)
            except BadRecord:
                continue

    def test_clusters_of_one_name_announce_under_two(self) -> None:
        """The instance name is readable, stable and different for every cluster ID; it always fits a DNS label."""
        other = Announcement("another", "turin", FINGERPRINT, 5872)
        self.assertTrue(instance_label(ME).startswith("turin-"))
        self.assertNotEqual(instance_label(ME), instance_label(other))
        for name in ("", "a" * 63, "x.y.z", "..", "é", "-"):
            label = instance_label(Announcement("id", name, "", 1))
            self.assertRegex(label, r"^[a-z0-9][-a-z0-9]{0,61}[a-z0-9]$", name)


class AddressTests(SynchronousTestCase):
    """Which addresses become candidates, in which order."""

    local = (ipaddress.ip_network("192.0.2.0/24"), ipaddress.ip_network("2001:db8::/64"))

    def hosts(self, *addresses: str, loopback: bool = False) -> list[str]:
        found = candidates_of(TxtRecord("x", "", ""), addresses, 5872, local=self.local, loopback=loopback)
        return [candidate.host for candidate in found]

    def test_near_ones_and_ipv4_come_first(self) -> None:
        """Our own IPv4 network, other IPv4, our IPv6 network, other IPv6, link-local with scope."""
        self.assertEqual(
            self.hosts("fe80::1%2", "2001:db8:1::1", "198.51.100.7", "2001:db8::7", "192.0.2.9", "10.0.0.1"),
            ["192.0.2.9", "10.0.0.1", "198.51.100.7", "2001:db8::7", "2001:db8:1::1", "fe80::1%2"],
        )

    def test_what_cannot_be_dialled_is_left_out(self) -> None:
        """Wildcards, multicast, broadcast, loopback, mapped addresses, link-local without scope and garbage."""
        self.assertEqual(
            self.hosts(
                "0.0.0.0", "::", "224.0.0.251", "ff02::fb", "255.255.255.255", "240.0.0.1", "127.0.0.1", "::1",
                "::ffff:127.0.0.1", "fe80::1", "nonsense", "",
            ),
            [],
        )  # fmt: skip

    def test_loopback_counts_where_it_was_chosen(self) -> None:
        """Peers on one machine find each other when loopback is configured."""
        self.assertEqual(self.hosts("127.0.0.1", "::1", loopback=True), ["127.0.0.1", "::1"])

    def test_number_is_bounded_and_port_checked(self) -> None:
        """At most eight addresses of one announcement, none without a port."""
        many = [f"10.0.0.{i}" for i in range(1, 200)]
        self.assertEqual(len(self.hosts(*many)), MAX_ADDRESSES)
        for port in (0, -1, 65536):
            self.assertEqual(candidates_of(TxtRecord("x", "", ""), many, port, local=(), loopback=False), ())


class ConfiguredPeerTests(SynchronousTestCase):
    """Peers named by hand."""

    def test_candidates_carry_the_pinned_fingerprint(self) -> None:
        """A configured fingerprint travels with the candidate; doubles are one."""
        peers = [PeerSettings("a:1", FINGERPRINT), PeerSettings("b:5872"), PeerSettings("b:5872")]
        self.assertEqual(
            manual.candidates(peers),
            (Candidate("a", 1, "Manual", fingerprint=FINGERPRINT), Candidate("b", 5872, "Manual")),
        )


class InterfaceTests(SynchronousTestCase):
    """Which interfaces are used."""

    UP = IFF_UP | IFF_MULTICAST

    def interface(self, name: str, *addresses: str, flags: int = UP, index: int = 2) -> Interface:
        return Interface(name, index, flags, tuple(ipaddress.ip_interface(address) for address in addresses))

    def test_real_ones_are_chosen(self) -> None:
        """Up, multicast, not loopback, not point-to-point, not a container's."""
        everything = [
            self.interface("eth0", "192.0.2.1/24", "fe80::1/64"),
            self.interface("br0", "198.51.100.1/24", index=3),
            self.interface("lo", "127.0.0.1/8", flags=IFF_UP | IFF_LOOPBACK),
            self.interface("eth1", "10.0.0.1/8", flags=IFF_MULTICAST),
            self.interface("ppp0", "10.1.0.1/32", flags=self.UP | IFF_POINTOPOINT),
            *(
                self.interface(name, "172.17.0.1/16")
                for name in ("docker0", "br-0123456789ab", "veth12ab", "cni0", "cali1", "cilium_host", "flannel.1",
                             "virbr0", "tun0", "wg0", "kube-bridge", "tailscale0", "liqo.vxlan", "lxc1", "kube-ipvs0")
            ),
        ]  # fmt: skip
        choice = choose(everything, [])
        self.assertEqual(choice.listen, ("192.0.2.1", 2, "198.51.100.1"))
        self.assertEqual(choice.addresses, ("192.0.2.1", "fe80::1", "198.51.100.1"))
        self.assertFalse(choice.loopback)

    def test_wanted_ones_are_chosen_whatever_they_are(self) -> None:
        """By name or by address, loopback and container bridges included, unless they are down."""
        everything = [
            self.interface("eth0", "192.0.2.1/24"),
            self.interface("lo", "127.0.0.1/8", "::1/128", flags=IFF_UP | IFF_LOOPBACK, index=1),
            self.interface("docker0", "172.17.0.1/16", index=3),
            self.interface("eth1", "10.0.0.1/8", flags=IFF_MULTICAST, index=4),
        ]
        self.assertEqual(choose(everything, ["lo"]).listen, ("127.0.0.1", 1))
        self.assertTrue(choose(everything, ["lo"]).loopback)
        self.assertEqual(choose(everything, ["127.0.0.1"]).listen, ("127.0.0.1",))
        self.assertEqual(choose(everything, ["docker0", "192.0.2.1"]).addresses, ("192.0.2.1", "172.17.0.1"))
        self.assertEqual(choose(everything, ["eth1"]).listen, ())

    def test_link_local_ipv4_is_not_announced(self) -> None:
        """An address that the machine gave itself is listened on but is no promise to others."""
        choice = choose([self.interface("eth0", "169.254.1.1/16")], [])
        self.assertEqual((choice.listen, choice.addresses), (("169.254.1.1",), ()))
