"""Addresses, alone and with a port."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from liqod.model.addresses import is_ip, parse_ip, parse_ips
from liqod.model.host_port import host_of, join_address, parse_port, split_address

HERE = ("10.0.0.1", 80)


class AddressTests(SynchronousTestCase):
    """IP addresses."""

    def test_addresses(self) -> None:
        """What is no address is None, and left out of several."""
        for text, address in (
            ("192.0.2.1", IPv4Address("192.0.2.1")),
            ("0.0.0.0", IPv4Address(0)),
            ("2001:DB8::1", IPv6Address("2001:db8::1")),
            ("fe80::1%eth0", IPv6Address("fe80::1%eth0")),
            ("192.0.2.256", None),
            ("192.0.2.01", None),
            ("192.0.2.\u0661", None),
            ("192.0.2.1/32", None),
            ("[2001:db8::1]", None),
            ("2001:db8::1::", None),
            (" 192.0.2.1", None),
            ("3221225985", None),
            ("gw.example", None),
            ("", None),
        ):
            self.assertEqual(parse_ip(text), address, text)
            self.assertEqual(is_ip(text), address is not None, text)
        self.assertEqual([*parse_ips(["::", "x", "0.0.0.0"])], [IPv6Address(0), IPv4Address(0)])


class HostPortTests(SynchronousTestCase):
    """``host:port`` and ``[IPv6]:port``."""

    def test_with_a_port(self) -> None:
        """A name or IPv4 address stands alone, an IPv6 address in a pair of brackets; others raise ValueError."""
        for text, expected in (
            ("10.0.0.1:80", HERE),
            ("10.0.0.1:1", ("10.0.0.1", 1)),
            ("rome.example.com:65535", ("rome.example.com", 65535)),
            ("rome.example.com.:80", ("rome.example.com.", 80)),
            ("rome_1:80", ("rome_1", 80)),
            ("1.example:80", ("1.example", 80)),
            ("[2001:db8::1]:443", ("2001:db8::1", 443)),
            ("[::ffff:10.0.0.1]:443", ("::ffff:10.0.0.1", 443)),
            ("[fe80::1%eth0.100]:443", ("fe80::1%eth0.100", 443)),
            ("", None),
            (":", None),
            (":80", None),
            ("[]:80", None),
            ("10.0.0.1", None),
            ("10.0.0.1:", None),
            ("10.0.0.1:0", None),
            ("10.0.0.1:080", None),
            ("10.0.0.1:+5", None),
            ("10.0.0.1:-5", None),
            ("10.0.0.1: 80", None),
            ("10.0.0.1:80\n", None),
            ("10.0.0.1:8_0", None),
            ("10.0.0.1:8\u0660", None),
            ("10.0.0.1:8\u00b2", None),
            ("10.0.0.1:65536", None),
            (f"10.0.0.1:{'1' * 5000}", None),
            ("10.0.0.1:80:80", None),
            ("10.0.0.256:80", None),
            ("10.0.0:80", None),
            ("2130706433:80", None),
            ("10.0.0.1.:80", None),
            ("[10.0.0.1]:443", None),
            ("[rome.example.com]:443", None),
            ("2001:db8::1", None),
            ("2001:db8::1:443", None),
            ("1:2:3:4:5:6:7:8:443", None),
            ("[2001:db8::1]", None),
            ("[2001:db8::1:443", None),
            ("2001:db8::1]:443", None),
            ("[[2001:db8::1]]:443", None),
            ("[2001:db8::12]3:443", None),
            ("[2001:db8::1]443", None),
            ("[2001:db8::x]:443", None),
            ("[fe80::1%]:443", None),
            ("[fe80::1%a b]:443", None),
            ("[fe80::1%a\nb]:443", None),
            ("10.0.0.1%eth0:80", None),
            ("-a:80", None),
            ("a..b:80", None),
            (f"{'a' * 64}:80", None),
            (f"{'a.' * 127}:80", None),
            ("r\u00f6m.example:80", None),
            ("a b:80", None),
            ("http://a:80", None),
            ("user@a:80", None),
        ):
            if expected is None:
                self.assertRaisesRegex(ValueError, "is not host:port", split_address, text)
            else:
                self.assertEqual(split_address(text), expected, text)
                self.assertEqual(join_address(*expected), text)

    def test_with_a_default(self) -> None:
        """There may be no port; an IPv6 address alone is one, whatever its last part looks like."""
        for text, expected in (
            ("10.0.0.1", ("10.0.0.1", 53)),
            ("10.0.0.1:80", HERE),
            ("rome", ("rome", 53)),
            ("2001:db8::1", ("2001:db8::1", 53)),
            ("2001:db8::443", ("2001:db8::443", 53)),
            ("[2001:db8::1]", ("2001:db8::1", 53)),
            ("[2001:db8::1]:80", ("2001:db8::1", 80)),
            ("fe80::1%eth0", ("fe80::1%eth0", 53)),
            ("", None),
            ("10.0.0.1:", None),
            ("10.0.0.1:0", None),
            ("10.0.0.256", None),
            ("[10.0.0.1]", None),
            ("1:2:3:4:5:6:7:8:53", None),
            ("fe80::1%a]:1[", None),
        ):
            if expected is None:
                self.assertRaises(ValueError, split_address, text, 53)
            else:
                self.assertEqual(split_address(text, 53), expected, text)

    @given(st.ip_addresses(), st.integers(1, 65535))
    def test_every_ip_address(self, address: object, port: int) -> None:
        """Whatever IP address and port are written together come out again."""
        self.assertEqual(split_address(join_address(str(address), port)), (str(address), port))

    @given(st.text("[]:.%0123456789abcfx_-\u0661 ", max_size=20), st.sampled_from((0, 53)))
    def test_one_spelling(self, text: str, default: int) -> None:
        """What is read with a port is written as it was; every other text raises ValueError."""
        try:
            host, port = split_address(text, default)
        except ValueError:
            return
        self.assertIn(text, (join_address(host, port), host, f"[{host}]"))

    def test_hosts(self) -> None:
        """The port goes, and the brackets; a text that is no address stays."""
        for text, host in (
            ("192.0.2.1:80", "192.0.2.1"),
            ("192.0.2.1", "192.0.2.1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("milan", "milan"),
            ("[fe80::1%a@b]:80", "fe80::1%a@b"),
            ("[fe80::1%a@b]:0", "fe80::1%a@b"),
            ("[fe80::1%a@b", "[fe80::1%a@b"),
            ("a local socket:0", "a local socket:0"),
            ("UNIXAddress(None)", "UNIXAddress(None)"),
            ("", ""),
        ):
            self.assertEqual(host_of(text), host)

    def test_ports(self) -> None:
        """A port is from 1 to 65535; another text is 0."""
        for text, port in (
            ("1", 1),
            ("65535", 65535),
            ("0", 0),
            ("65536", 0),
            ("99999", 0),
            ("080", 0),
            ("+5", 0),
            ("5 ", 0),
            ("\u0665", 0),
            ("", 0),
            ("1" * 5000, 0),
        ):
            self.assertEqual(parse_port(text), port, text)
